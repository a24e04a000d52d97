/*
 * What a fork costs beside threads that compute, for the pages of docs/results. It is no test.
 *
 *   cc -O2 -o busy_fork tests/bench/busy_fork.c -lpthread
 *   busy_fork MIB THREADS FORKS, plainly and under forkless run
 *
 * A process of MIB MiB in small pages, with THREADS threads that never wait, makes FORKS children
 * that execute true, with a pause of 2 ms between them. Printed are the median and the 90th
 * percentile, in milliseconds, of the call of fork and of the time until the program has ended.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void *compute(void *nothing)
{
	for (volatile unsigned long n = 0;; n++)
		;
	return nothing;
}

static int by_size(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;

	return (difference > 0) - (difference < 0);
}

static void show(const char *what, double *times, int count)
{
	qsort(times, count, sizeof(*times), by_size);
	printf("%s: %.2f %.2f ms\n", what, times[count / 2], times[count * 9 / 10]);
}

int main(int argc, char **argv)
{
	if (argc != 4 || atoi(argv[1]) < 1 || atoi(argv[3]) < 1) {
		fprintf(stderr, "usage: busy_fork MIB THREADS FORKS\n");
		return 2;
	}
	size_t size = (size_t)atoi(argv[1]) << 20;
	int threads = atoi(argv[2]), forks = atoi(argv[3]);
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double *calls = calloc(forks, sizeof(*calls)), *ends = calloc(forks, sizeof(*ends));

	if (memory == MAP_FAILED || !calls || !ends)
		return 1;
	madvise(memory, size, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < size; at += 4096)
		memory[at] = 1;
	for (int i = 0; i < threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, compute, NULL))
			return 1;
	}
	for (int i = 0; i < forks; i++) {
		int status;
		double begun = now();
		pid_t child = fork();

		if (!child) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(127);
		}
		calls[i] = now() - begun;
		if (child < 0 || waitpid(child, &status, 0) < 0 || status)
			return 1;
		ends[i] = now() - begun;
		usleep(2000);
	}
	show("fork", calls, forks);
	show("until the end", ends, forks);
	return 0;
}
