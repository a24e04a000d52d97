/* Checks that name their place, and a census of what must not be left behind. */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <errno.h>
#include <forkless.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                                   \
	do {                                                                                               \
		if (!(condition)) {                                                                        \
			fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);  \
			exit(1);                                                                           \
		}                                                                                          \
	} while (0)

#define CHECK_INT(got, expected)                                                                           \
	do {                                                                                               \
		long long got_ = (got), expected_ = (expected);                                            \
		if (got_ != expected_) {                                                                   \
			fprintf(stderr, "%s:%d: %s is %lld, not %s = %lld\n", __FILE__, __LINE__, #got, got_, \
			        #expected, expected_);                                                     \
			exit(1);                                                                           \
		}                                                                                          \
	} while (0)

#define CHECK_STR(got, expected)                                                                           \
	do {                                                                                               \
		const char *got_ = (got), *expected_ = (expected);                                         \
		if (!got_ || strcmp(got_, expected_)) {                                                    \
			fprintf(stderr, "%s:%d: %s is \"%s\", not \"%s\"\n", __FILE__, __LINE__, #got,     \
			        got_ ? got_ : "(null)", expected_);                                        \
			exit(1);                                                                           \
		}                                                                                          \
	} while (0)

/* What must be the same before and after; of mappings libc's heap may give some back. */
struct census {
	int descriptors, mappings, children;
	sigset_t mask;
};

static inline int count_lines(const char *path)
{
	FILE *f = fopen(path, "r");
	CHECK(f);
	int n = 0;
	for (int c; (c = getc(f)) != EOF;)
		n += c == '\n';
	fclose(f);
	return n;
}

static inline struct census take_census(void)
{
	struct census c = {0, 0, 0, {{0}}};
	DIR *d = opendir("/proc/self/fd");
	CHECK(d);
	while (readdir(d))
		c.descriptors++;
	closedir(d);
	c.mappings = count_lines("/proc/self/maps");
	siginfo_t info;
	info.si_pid = 0;
	/* Any child at all, running or not: ECHILD when there is none. */
	c.children = !(waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 && errno == ECHILD);
	CHECK(!pthread_sigmask(SIG_BLOCK, NULL, &c.mask));
	return c;
}

static inline void same_census(const char *what, const struct census *before)
{
	struct census now = take_census();
	if (now.descriptors != before->descriptors || now.children != before->children ||
	    now.mappings > before->mappings || memcmp(&now.mask, &before->mask, 8)) {
		fprintf(stderr, "%s: descriptors %d -> %d, mappings %d -> %d, children %d -> %d, mask %s\n", what,
		        before->descriptors, now.descriptors, before->mappings, now.mappings, before->children,
		        now.children, memcmp(&now.mask, &before->mask, 8) ? "changed" : "same");
		exit(1);
	}
}

static inline double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static inline void sleep_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
	while (nanosleep(&t, &t))
		;
}

#endif
