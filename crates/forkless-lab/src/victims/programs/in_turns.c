/*
 * Runs several command lines side by side, one of them at a time: each for some milliseconds in its turn, while the others are stopped. What slows
 * the machine down for a while then slows all of them alike, also where one run takes a second.
 *
 *   in_turns MILLISECONDS WORDS LINE... [WORDS LINE...]...     each line comes after the number of its words
 *
 * Orders come on standard input, one a line: "turns COUNT". The answer is one line: COUNT times, for each line in the order given, the
 * nanoseconds of its turns, from its start to its end. The end of the input ends the program.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

extern char **environ;

enum { MOST = 8 };
enum state { WAITING, STOPPED, ENDED };

static struct line {
	char *words[64];
	enum state state;
	pid_t pid; /* its process group's, too */
	int pidfd;
	double took;
} lines[MOST];
static int count, milliseconds, null;

/* What was stopped when something failed would stay so. */
static void end_all(void)
{
	for (int i = 0; i < count; i++)
		if (lines[i].state == STOPPED)
			kill(-lines[i].pid, SIGKILL);
}

/* In a process group of its own, so that what it starts stops and goes on with it. */
static void start(struct line *line)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t group;

	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, null, 0);
	posix_spawn_file_actions_adddup2(&files, null, 1);
	posix_spawnattr_init(&group);
	posix_spawnattr_setflags(&group, POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setpgroup(&group, 0);
	if ((errno = posix_spawn(&line->pid, line->words[0], &files, &group, line->words, environ)))
		die(line->words[0]);
	posix_spawnattr_destroy(&group);
	posix_spawn_file_actions_destroy(&files);
	line->pidfd = (int)syscall(SYS_pidfd_open, line->pid, 0);
	if (line->pidfd < 0)
		die("pidfd_open");
}

/* Only a line that exited with 0 did what is timed. */
static void reap(struct line *line)
{
	int status;

	if (waitpid(line->pid, &status, 0) < 0)
		die("waitpid");
	if (status) {
		fprintf(stderr, "%s ended with wait status %#x\n", line->words[0], status);
		exit(1);
	}
	close(line->pidfd);
	line->state = ENDED;
}

static void turn(struct line *line)
{
	double begin = now();

	if (line->state == WAITING)
		start(line);
	else if (kill(-line->pid, SIGCONT))
		die("SIGCONT");

	struct pollfd end = { .fd = line->pidfd, .events = POLLIN };
	int ended = poll(&end, 1, milliseconds);

	if (ended < 0)
		die("poll");
	/* Its first process is not reaped, so the number is still the group's. */
	if (!ended && kill(-line->pid, SIGSTOP))
		die("SIGSTOP");
	line->took += now() - begin;
	if (ended)
		reap(line);
	else
		line->state = STOPPED;
}

static void all_lines(void)
{
	int left = count;

	for (int i = 0; i < count; i++) {
		lines[i].state = WAITING;
		lines[i].took = 0;
	}
	while (left) {
		int order[MOST];

		/* Nobody always comes after the same one. */
		for (int i = 0; i < count; i++) {
			int j = (int)(random() % (i + 1));

			order[i] = order[j];
			order[j] = i;
		}
		for (int i = 0; i < count; i++) {
			struct line *line = &lines[order[i]];

			if (line->state == ENDED)
				continue;
			turn(line);
			left -= line->state == ENDED;
		}
	}
}

int main(int argc, char **argv)
{
	int repetitions, words;

	if (argc < 4) {
		fprintf(stderr, "usage: in_turns MILLISECONDS WORDS LINE... [WORDS LINE...]...\n");
		return 2;
	}
	milliseconds = atoi(argv[1]);
	for (int at = 2; at < argc; at += 1 + words) {
		words = atoi(argv[at]);
		if (count == MOST || words < 1 || words > 63 || at + words >= argc) {
			fprintf(stderr, "in_turns: not so many words: %s\n", argv[at]);
			return 2;
		}
		memcpy(lines[count++].words, argv + at + 1, (size_t)words * sizeof(*argv));
	}
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0)
		die("/dev/null");
	atexit(end_all);
	printf("ready\n");
	fflush(stdout);
	while (scanf(" turns %d", &repetitions) == 1) {
		while (repetitions-- > 0) {
			all_lines();
			for (int i = 0; i < count; i++)
				printf("%.1f ", lines[i].took);
		}
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
