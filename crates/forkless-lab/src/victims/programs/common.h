/* What the C programs of `forkless bench victims` that take orders share. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Nanoseconds. */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
