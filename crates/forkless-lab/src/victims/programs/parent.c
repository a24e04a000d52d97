/*
 * The C victims of `forkless bench victims`: a program that holds memory and does on order what unmodified programs do.
 * Its memory is written by orders, too, a MiB each, so that several of them can share what the machine has evenly.
 *
 *   parent MIB PROGRAM [ARGS...]
 *
 * Orders come on standard input, one a line: "NAME COUNT". The answer is one line: COUNT times the nanoseconds of one
 * repetition (for some orders several numbers a repetition). The end of the input ends the program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "common.h"

extern char **environ;

static char **program; /* what children execute, with its arguments */
static char *memory;
static size_t bytes, touched;
static int null;

/* Only a child that exited with 0 did what is timed. */
static void reap(pid_t pid)
{
	int status;

	if (pid < 0)
		die("fork");
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			die("waitpid");
	if (status) {
		fprintf(stderr, "a child ended with wait status %#x\n", status);
		exit(1);
	}
}

/* What programs written for fork do: redirect, reset a signal, execute. */
static void fork_exec(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct sigaction usual = { .sa_handler = SIG_DFL };

		dup2(null, 1);
		sigaction(SIGPIPE, &usual, NULL);
		execve(program[0], program, environ);
		_exit(127);
	}
	reap(pid);
}

static void order_forkexec(double *result)
{
	double begin = now();

	fork_exec();
	result[0] = now() - begin;
}

static void order_vfork(double *result)
{
	double begin = now();
	pid_t pid = vfork();

	if (pid == 0) {
		execve(program[0], program, environ);
		_exit(127);
	}
	reap(pid);
	result[0] = now() - begin;
}

static void order_touch(double *result)
{
	if (touched < bytes)
		memset(memory + touched, 1, 1 << 20);
	touched += 1 << 20;
	result[0] = 0;
}

static void pass(double *result)
{
	double begin = now();

	for (size_t at = 0; at < bytes; at += 4096)
		memory[at]++;
	result[0] = now() - begin;
}

static void order_after(double *result)
{
	fork_exec();
	pass(result);
}

/* What daemons and their libraries do under a limit of 2^20 descriptors, the default of many container engines. */
static void order_closes(double *result)
{
	double begin = now();
	pid_t pid = fork();

	if (pid == 0) {
		for (int fd = 3; fd < 1 << 20; fd++)
			close(fd);
		execve(program[0], program, environ);
		_exit(127);
	}
	reap(pid);
	result[0] = now() - begin;
}

static void *idle(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* One more thread, which does nothing. */
static void order_thread(double *result)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, idle, NULL))
		die("pthread_create");
	result[0] = 0;
}

/* A worker: the child never executes anything. The call itself, and until the child is reaped. */
static void work(double *result, int past)
{
	double begin = now();
	/* The second is not the library's to see, and lacks libc's part, some microseconds. */
	pid_t pid = past ? (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L) : fork();

	if (pid == 0)
		_exit(0);
	result[0] = now() - begin;
	reap(pid);
	result[1] = now() - begin;
}

static void order_worker(double *result)
{
	work(result, 0);
}

static void order_past(double *result)
{
	work(result, 1);
}

static void order_system(double *result)
{
	double begin = now();

	if (system(program[0]))
		die("system");
	result[0] = now() - begin;
}

static void order_popen(double *result)
{
	char buffer[256];
	double begin = now();
	FILE *stream = popen(program[0], "r");

	if (!stream)
		die("popen");
	while (fread(buffer, 1, sizeof(buffer), stream) > 0)
		;
	if (pclose(stream))
		die("pclose");
	result[0] = now() - begin;
}

/* `sh -c LINE`, with a command that every shell executes in its own place. */
static char **shell(void)
{
	static char line[4096], *vector[] = { "sh", "-c", line, NULL };

	snprintf(line, sizeof(line), "exec %s", program[0]);
	return vector;
}

static void order_shexec(double *result)
{
	char **vector = shell();
	double begin = now();
	pid_t pid = vfork();

	if (pid == 0) {
		execve("/bin/sh", vector, environ);
		_exit(127);
	}
	reap(pid);
	result[0] = now() - begin;
}

static void order_shspawn(double *result)
{
	char **vector = shell();
	pid_t pid;
	double begin = now();

	if ((errno = posix_spawn(&pid, "/bin/sh", NULL, NULL, vector, environ)))
		die("/bin/sh");
	reap(pid);
	result[0] = now() - begin;
}

static void order_launch(double *result)
{
	posix_spawn_file_actions_t actions;
	pid_t pid;
	double begin = now();

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, null, 0);
	posix_spawn_file_actions_adddup2(&actions, null, 1);
	if ((errno = posix_spawn(&pid, program[0], &actions, NULL, program, environ)))
		die(program[0]);
	reap(pid);
	result[0] = now() - begin;
	posix_spawn_file_actions_destroy(&actions);
}

/* Two threads of the program's own making that take turns. */
enum { SWITCHES = 2000 };
static ucontext_t here, there;

static void other(void)
{
	for (;;)
		swapcontext(&there, &here);
}

static void order_swap(double *result)
{
	static char stack[64 << 10];

	if (!there.uc_stack.ss_sp) {
		getcontext(&there);
		there.uc_stack.ss_sp = stack;
		there.uc_stack.ss_size = sizeof(stack);
		makecontext(&there, other, 0);
	}

	double begin = now();

	for (int i = 0; i < SWITCHES / 2; i++)
		swapcontext(&here, &there);
	result[0] = (now() - begin) / SWITCHES;
}

static void order_localtime(double *result)
{
	time_t t = 1700000000;
	double begin = now();

	for (int i = 0; i < 2000; i++, t++)
		if (!localtime(&t))
			die("localtime");
	result[0] = (now() - begin) / 2000;
}

/* Whether TZ is set: what shows that --tz was at work. */
static void order_tz(double *result)
{
	result[0] = getenv("TZ") != NULL;
}

/* A thread that does nothing but allocate, and the longest it ever had to wait. */
static atomic_int active;
static _Atomic uint64_t longest, rounds;

static void *allocate(void *unused)
{
	for (unsigned i = 0;; i++) {
		if (!atomic_load(&active)) {
			usleep(500);
			continue;
		}

		double begin = now();
		/* Beyond what the thread's own cache holds, so that the arena is asked. */
		volatile char *block = malloc(2000 + i % 61 * 1000);

		if (!block)
			die("malloc");
		block[0] = 1;
		free((void *)block);

		uint64_t took = (uint64_t)(now() - begin);

		if (took > atomic_load(&longest))
			atomic_store(&longest, took);
		atomic_fetch_add(&rounds, 1);
	}
	return unused;
}

static void order_stall(double *result)
{
	static pthread_t thread;

	if (!thread && pthread_create(&thread, NULL, allocate, NULL))
		die("pthread_create");
	atomic_store(&rounds, 0);
	atomic_store(&active, 1);
	while (atomic_load(&rounds) < 1000)
		usleep(100);
	atomic_store(&longest, 0);

	fork_exec();

	/* One that began before the fork returned has to be over to be known. */
	uint64_t seen = atomic_load(&rounds);

	while (atomic_load(&rounds) < seen + 10)
		usleep(50);
	result[0] = (double)atomic_load(&longest);
	atomic_store(&active, 0);
}

static const struct order {
	const char *name;
	void (*once)(double *result);
	int results;
} orders[] = {
	{ "forkexec", order_forkexec, 1 },
	{ "vfork", order_vfork, 1 },
	{ "touch", order_touch, 1 },
	{ "clean", pass, 1 },
	{ "after", order_after, 1 },
	{ "closes", order_closes, 1 },
	{ "thread", order_thread, 1 },
	{ "worker", order_worker, 2 },
	{ "past", order_past, 2 },
	{ "system", order_system, 1 },
	{ "popen", order_popen, 1 },
	{ "shexec", order_shexec, 1 },
	{ "shspawn", order_shspawn, 1 },
	{ "launch", order_launch, 1 },
	{ "swap", order_swap, 1 },
	{ "localtime", order_localtime, 1 },
	{ "tz", order_tz, 1 },
	{ "stall", order_stall, 1 },
};

static void obey(const char *name, int count)
{
	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		const struct order *order = &orders[i];
		double *results;

		if (strcmp(order->name, name))
			continue;
		results = calloc((size_t)count, sizeof(*results) * (size_t)order->results);
		if (!results)
			die("calloc");
		/* Nothing is printed between two timed repetitions. */
		for (int n = 0; n < count; n++)
			order->once(results + n * order->results);
		for (int n = 0; n < count * order->results; n++)
			printf("%.1f ", results[n]);
		printf("\n");
		fflush(stdout);
		free(results);
		return;
	}
	fprintf(stderr, "no order %s\n", name);
	exit(2);
}

int main(int argc, char **argv)
{
	char name[32];
	int count;

	if (argc < 3) {
		fprintf(stderr, "usage: parent MIB PROGRAM [ARGS...]\n");
		return 2;
	}
	bytes = (size_t)atol(argv[1]) << 20;
	program = argv + 2;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	memory = malloc(bytes + 1);
	if (null < 0 || !memory)
		die("set up");
	printf("ready\n");
	fflush(stdout);
	while (scanf("%31s %d", name, &count) == 2)
		obey(name, count);
	return 0;
}
