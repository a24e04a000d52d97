/* Every option of a command, seen from inside the child; children and conversations in every way. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static int root;

/* A shell line in a command, to be given options. */
static forkless_command *sh(const char *line)
{
	forkless_command *c = forkless_command_new("/bin/sh");
	CHECK(c);
	CHECK_INT(forkless_command_arg(c, "-c"), 0);
	CHECK_INT(forkless_command_arg(c, line), 0);
	return c;
}

/* Runs it, compares what it says, and frees it. */
static void says(forkless_command *c, const char *expected)
{
	int status;
	forkless_conversation *said;
	if (forkless_command_communicate(c, NULL, &status, &said) < 0) {
		fprintf(stderr, "%s\n", forkless_error_message(forkless_command_error(c)));
		exit(1);
	}
	const void *text;
	CHECK_INT(forkless_conversation_output(said, 1, &text, NULL), 0);
	CHECK_STR((const char *)text, expected);
	CHECK_INT(status, 0);
	forkless_conversation_free(said);
	forkless_command_free(c);
}

#define SET(call) CHECK_INT(call, 0)

static void arguments_and_environment(void)
{
	forkless_command *c = sh("echo \"$0 $* $A\" ${B-unset} ${HOME-unset}");
	SET(forkless_command_args(c, (const char *const[]){"zero", "one two", "three", NULL}));
	SET(forkless_command_env(c, "A", "a"));
	SET(forkless_command_env(c, "B", "b"));
	SET(forkless_command_env_remove(c, "B"));
	SET(forkless_command_env_remove(c, "HOME"));
	says(c, "zero one two three a unset unset\n");
	c = forkless_command_new("/usr/bin/env");
	SET(forkless_command_env(c, "GONE", "1"));
	SET(forkless_command_env_clear(c));
	SET(forkless_command_env(c, "ONLY", "this"));
	says(c, "ONLY=this\n");
	c = forkless_command_new("/bin/sh");
	SET(forkless_command_arg0(c, "-renamed"));
	SET(forkless_command_args(c, (const char *const[]){"-c", "tr '\\0' ' ' </proc/$$/cmdline | cut -c1-9", NULL}));
	says(c, "-renamed \n");
}

static void places(void)
{
	forkless_command *c = sh("pwd -P; umask");
	SET(forkless_command_current_dir(c, "/usr"));
	SET(forkless_command_umask(c, 0137));
	says(c, "/usr\n0137\n");
	if (!root)
		return;
	c = forkless_command_new("/missing-outside");
	SET(forkless_command_chroot(c, "/proc/self"));
	forkless_child *child;
	CHECK_INT(forkless_command_spawn(c, &child), -ENOENT);
	CHECK_INT(forkless_error_step(forkless_command_error(c)), FORKLESS_STEP_EXEC);
	SET(forkless_command_chroot(c, "/no/such"));
	CHECK_INT(forkless_command_spawn(c, &child), -ENOENT);
	CHECK_INT(forkless_error_step(forkless_command_error(c)), FORKLESS_STEP_CHROOT);
	forkless_command_free(c);
}

static void descriptors(void)
{
	int file = open("/dev/null", O_RDWR | O_CLOEXEC), given = open("/dev/null", O_RDWR | O_CLOEXEC);
	int plain = open("/dev/null", O_RDONLY);
	/* 20 is closed, as is whatever was not given; the number of ls's own directory varies. */
	forkless_command *c = sh("for n in 0 1 2 5 6 7 8 20; do [ -e /proc/self/fd/$n ] && printf '%s ' $n; done; echo");
	SET(forkless_command_fd(c, 5, file));
	SET(forkless_command_fd_take(c, 6, given));
	SET(forkless_command_fd_same_as(c, 7, 1));
	SET(forkless_command_fd_null(c, 8));
	SET(forkless_command_fd_null(c, 20));
	SET(forkless_command_fd_close(c, 20));
	says(c, "0 1 2 5 6 7 8 \n");
	CHECK(fcntl(given, F_GETFD) < 0 && errno == EBADF); /* The command's, and freed with it. */
	char line[64], number[16];
	snprintf(line, sizeof line, "[ -e /proc/self/fd/%d ] && echo %d; exit 0", plain, plain);
	snprintf(number, sizeof number, "%d\n", plain);
	says(sh(line), "");
	c = sh(line);
	SET(forkless_command_inherit_descriptors(c, 1));
	says(c, number);
	c = sh(line);
	SET(forkless_command_fd_inherit(c, plain));
	says(c, number);
	/* A pipe the child reads at a number that is written to by custom. */
	c = sh("read word <&7; test \"$word\" = key");
	SET(forkless_command_fd_pipe_input(c, 7));
	forkless_child *child;
	SET(forkless_command_spawn(c, &child));
	int seven = forkless_child_take_pipe(child, 7), status;
	CHECK(seven >= 0 && write(seven, "key\n", 4) == 4);
	close(seven);
	SET(forkless_child_wait(child, &status));
	CHECK_INT(status, 0);
	forkless_child_free(child);
	forkless_command_free(c);
	close(file);
	close(plain);
}

static int is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* Regression: a new connection of its number closed it, and two calls for it closed it twice. */
static void descriptors_given_away(void)
{
	int pipe[2];
	CHECK(!pipe2(pipe, O_CLOEXEC));
	forkless_command *c = sh("echo six >&6; echo seven >&7; [ -e /proc/self/fd/5 ] || echo closed >&6");
	SET(forkless_command_fd_take(c, 5, pipe[1]));
	SET(forkless_command_fd(c, 6, pipe[1]));
	SET(forkless_command_fd_take(c, 7, pipe[1]));
	SET(forkless_command_fd_take(c, 5, pipe[1]));
	SET(forkless_command_fd_close(c, 5));
	CHECK(is_open(pipe[1]));
	SET(forkless_command_status(c, NULL));
	/* A number that is refused leaves it with the caller. */
	CHECK_INT(forkless_command_fd_take(c, -1, pipe[0]), -EBADF);
	forkless_command_free(c);
	CHECK(!is_open(pipe[1]));
	char text[32] = "";
	CHECK_INT(read(pipe[0], text, sizeof text), 17);
	CHECK_STR(text, "six\nseven\nclosed\n");

	/* What the command becomes has it: a prepared command, and a pipeline. */
	c = sh("read x <&5; exit 3");
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	SET(forkless_command_fd_take(c, 5, null));
	forkless_prepared *p;
	SET(forkless_command_prepare(c, &p));
	forkless_command_free(c);
	int status;
	CHECK(is_open(null));
	SET(forkless_prepared_status(p, &status));
	CHECK_INT(status, 3 << 8);
	forkless_prepared_free(p);
	CHECK(!is_open(null));
	forkless_pipeline *l = forkless_pipeline_new();
	for (int i = 0; i < 2; i++) {
		c = sh("cat <&5");
		null = i ? open("/dev/null", O_RDONLY | O_CLOEXEC) : pipe[0];
		SET(forkless_command_fd_take(c, 5, null));
		SET(forkless_command_fd_take(c, !i, null)); /* which the pipeline connects anew */
		SET(forkless_pipeline_add(l, c));
		forkless_command_free(c);
		CHECK(is_open(null));
	}
	CHECK_INT(forkless_pipeline_status(l, NULL, 0), 2);
	CHECK(is_open(null) && is_open(pipe[0]));
	forkless_pipeline_free(l);
	CHECK(!is_open(null) && !is_open(pipe[0]));
}

/* Regression: the caller's end was not to be had. */
static void pipes_that_the_child_reads_from(void)
{
	for (int n = 0; n < 4; n++) {
		char line[64];
		snprintf(line, sizeof line, "read word <&%d; test \"$word\" = key", n);
		forkless_command *c = sh(line);
		SET(forkless_command_fd_pipe_input(c, n));
		forkless_child *child;
		SET(forkless_command_spawn(c, &child));
		int end = forkless_child_take_pipe(child, n), status;
		CHECK(end >= 0 && write(end, "key\n", 4) == 4);
		CHECK_INT(forkless_child_take_pipe(child, n), -ENOENT);
		SET(forkless_child_wait(child, &status));
		CHECK_INT(status, 0);
		close(end);
		forkless_child_free(child);
		/* Nobody can write to it: the child sees the end. */
		SET(forkless_command_status(c, &status));
		CHECK_INT(status, 1 << 8);
		SET(forkless_command_communicate(c, NULL, &status, NULL));
		CHECK_INT(status, 1 << 8);
		forkless_command_free(c);
	}
}

static void swapped_descriptors(void)
{
	int a = open("/dev/null", O_RDONLY | O_CLOEXEC), b = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	CHECK(a >= 3 && b >= 3);
	char line[128], expected[64];
	snprintf(line, sizeof line, "readlink /proc/$$/fd/%d; readlink /proc/$$/fd/%d", a, b);
	snprintf(expected, sizeof expected, "/dev/zero\n/dev/null\n");
	forkless_command *c = sh(line);
	SET(forkless_command_fd(c, a, b));
	SET(forkless_command_fd(c, b, a));
	says(c, expected);
	close(a);
	close(b);
}

static void identity(void)
{
	if (!root)
		return;
	forkless_command *c = sh("id -u; id -g; id -G");
	SET(forkless_command_uid(c, 4711));
	SET(forkless_command_gid(c, 4712));
	SET(forkless_command_groups(c, (const gid_t[]){4713, 4714}, 2));
	says(c, "4711\n4712\n4712 4713 4714\n");
	CHECK_INT(getuid(), 0);
}

static void groups_and_sessions(void)
{
	/* pid (1), parent (4), group (5), session (6) */
	const char *line = "read -r pid name state parent group session rest </proc/$$/stat; "
	                   "[ $pid = $group ] && echo leads; [ $pid = $session ] && echo session; exit 0";
	says(sh(line), "");
	forkless_command *c = sh(line);
	SET(forkless_command_process_group(c, 0));
	says(c, "leads\n");
	c = sh(line);
	SET(forkless_command_setsid(c, 1));
	says(c, "leads\nsession\n");
}

static void terminals(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (master < 0 || grantpt(master) || unlockpt(master)) {
		printf("skipped: no pseudo-terminals here\n");
		return;
	}
	int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	CHECK(slave >= 0);
	forkless_command *c = sh("read -r pid name state parent group session tty foreground rest </proc/$$/stat; "
	                         "[ $tty != 0 ] && [ $foreground = $group ] && echo owner");
	SET(forkless_command_fd(c, 9, slave));
	SET(forkless_command_controlling_terminal(c, 9));
	SET(forkless_command_foreground(c, 9));
	says(c, "owner\n");
	c = forkless_command_new("/bin/true");
	SET(forkless_command_controlling_terminal(c, 0));
	SET(forkless_command_fd_null(c, 0));
	forkless_child *child;
	CHECK(forkless_command_spawn(c, &child) < 0);
	CHECK_INT(forkless_error_step(forkless_command_error(c)), FORKLESS_STEP_TERMINAL);
	forkless_command_free(c);
	close(slave);
	close(master);
}

static void limits(void)
{
	forkless_command *c = sh("ulimit -S -n; ulimit -H -n; ulimit -c");
	SET(forkless_command_rlimit(c, RLIMIT_NOFILE, 60, 61));
	SET(forkless_command_rlimit(c, RLIMIT_CORE, 0, UINT64_MAX));
	struct rlimit core;
	CHECK(!getrlimit(RLIMIT_CORE, &core));
	if (core.rlim_max != RLIM_INFINITY && !root) {
		forkless_command_free(c);
		return;
	}
	says(c, "60\n61\n0\n");
}

static void scheduling(void)
{
	forkless_command *c = sh("nice; taskset -p $$ | sed 's/.*: //'; chrt -p $$ | sed -n 's/.*policy: //p'");
	SET(forkless_command_nice(c, 7));
	SET(forkless_command_affinity(c, (const unsigned[]){0}, 1));
	SET(forkless_command_scheduler(c, SCHED_BATCH, 0));
	cpu_set_t mine;
	CHECK(!sched_getaffinity(0, sizeof mine, &mine));
	if (!CPU_ISSET(0, &mine)) {
		forkless_command_free(c);
		printf("skipped: CPU 0 is not this process's\n");
		return;
	}
	says(c, "7\n1\nSCHED_BATCH\n");
	c = forkless_command_new("/bin/true");
	SET(forkless_command_affinity(c, (const unsigned[]){60000}, 1));
	forkless_child *child;
	CHECK_INT(forkless_command_spawn(c, &child), -EINVAL);
	CHECK_INT(forkless_error_step(forkless_command_error(c)), FORKLESS_STEP_AFFINITY);
	forkless_command_free(c);
}

static void signals(void)
{
	sigset_t usr1, term, old;
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	CHECK(!pthread_sigmask(SIG_BLOCK, &usr1, &old));
	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	const unsigned long long ours = 1 << (SIGTERM - 1) | 1 << (SIGUSR1 - 1) | 1 << (SIGPIPE - 1);
	const unsigned long long both = 1 << (SIGTERM - 1) | 1 << (SIGPIPE - 1);
	const char *const args[] = {"Sig[BI]", "/proc/self/status", NULL};
	const struct {
		int pipe_at_default, mask, reset, ignore;
		unsigned long long blocked, ignored;
	} cases[] = {
	        /* As posix_spawn(3). */
	        {0, 0, 0, 0, 1 << (SIGUSR1 - 1), both},
	        {1, 0, 0, 0, 1 << (SIGUSR1 - 1), 1 << (SIGTERM - 1)},
	        {0, 1, 0, 0, 1 << (SIGTERM - 1), both},
	        {0, 0, 1, 0, 1 << (SIGUSR1 - 1), 1 << (SIGPIPE - 1)},
	        {0, 0, 0, 1, 1 << (SIGUSR1 - 1), ours},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		forkless_command *c = forkless_command_new("grep");
		SET(forkless_command_args(c, args));
		if (cases[i].pipe_at_default)
			SET(forkless_command_inherit_signals(c, 0));
		if (cases[i].mask)
			SET(forkless_command_signal_mask(c, &term));
		if (cases[i].reset)
			SET(forkless_command_default_signals(c, &term));
		if (cases[i].ignore)
			SET(forkless_command_ignore_signals(c, &usr1));
		forkless_conversation *said;
		const void *text;
		SET(forkless_command_communicate(c, NULL, NULL, &said));
		SET(forkless_conversation_output(said, 1, &text, NULL));
		unsigned long long blocked, ignored;
		CHECK_INT(sscanf(text, "SigBlk: %llx SigIgn: %llx", &blocked, &ignored), 2);
		CHECK_INT(blocked, cases[i].blocked);
		/* Whoever started this program may have left others ignored. */
		CHECK_INT(ignored & ours, cases[i].ignored);
		forkless_conversation_free(said);
		forkless_command_free(c);
	}
	signal(SIGTERM, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	CHECK(!pthread_sigmask(SIG_SETMASK, &old, NULL));
}

static void privileges(void)
{
	forkless_command *c = sh("grep NoNewPrivs /proc/self/status");
	SET(forkless_command_no_new_privs(c, 1));
	says(c, "NoNewPrivs:\t1\n");
	CHECK_INT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
}

/* In a process of its own, which dies: the child tells by the end of a pipe that it was killed. */
static void death_of_the_parent(void)
{
	int pipe[2];
	CHECK(!pipe2(pipe, O_CLOEXEC));
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		forkless_command *c = forkless_command_new("sleep");
		forkless_child *child;
		forkless_command_arg(c, "60");
		forkless_command_fd(c, 7, pipe[1]);
		forkless_command_parent_death_signal(c, SIGKILL);
		_exit(forkless_command_spawn(c, &child) ? 1 : 0);
	}
	close(pipe[1]);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	struct pollfd end = {pipe[0], POLLIN, 0};
	CHECK_INT(poll(&end, 1, 10000), 1);
	close(pipe[0]);
}

static void missing_cgroup(void)
{
	forkless_command *c = forkless_command_new("/bin/true");
	SET(forkless_command_cgroup(c, "/sys/fs/cgroup/no-such-group"));
	forkless_child *child;
	CHECK_INT(forkless_command_spawn(c, &child), -ENOENT);
	CHECK_INT(forkless_error_step(forkless_command_error(c)), FORKLESS_STEP_CGROUP);
	CHECK_STR(forkless_error_thing(forkless_command_error(c)), "/sys/fs/cgroup/no-such-group");
	forkless_command_free(c);
}

static int seen_pid;

static int hook(void *data)
{
	*(int *)data = (int)syscall(SYS_getpid);
	return 0;
}

static void function_in_the_child(void)
{
	forkless_command *c = forkless_command_new("/bin/true");
	SET(forkless_command_pre_exec(c, hook, &seen_pid));
	forkless_child *child;
	SET(forkless_command_spawn(c, &child));
	CHECK_INT(seen_pid, forkless_child_pid(child));
	SET(forkless_child_wait(child, NULL));
	forkless_child_free(child);
	forkless_command_free(c);
}

static void exec_in_place(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		forkless_command *c = forkless_command_new("/no/such");
		if (forkless_command_exec(c) != -ENOENT)
			_exit(1);
		c = sh("exit 23");
		forkless_command_exec(c);
		_exit(2);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 23 << 8);
}

static void children(void)
{
	forkless_command *c = forkless_command_new("sleep");
	SET(forkless_command_arg(c, "60"));
	SET(forkless_command_process_group(c, 0));
	forkless_child *child;
	int status;
	SET(forkless_command_spawn(c, &child));
	int pidfd = forkless_child_pidfd(child);
	struct pollfd ends = {pidfd, POLLIN, 0};
	CHECK(pidfd >= 0 && (fcntl(pidfd, F_GETFD) & FD_CLOEXEC));
	CHECK_INT(poll(&ends, 1, 0), 0);
	CHECK_INT(forkless_child_try_wait(child, &status), 0);
	CHECK_INT(forkless_child_signal(child, 4711), -EINVAL);
	SET(forkless_child_signal_group(child, SIGTERM));
	CHECK_INT(poll(&ends, 1, 300000), 1);
	SET(forkless_child_wait_timeout(child, 300000, &status));
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	CHECK_INT(forkless_child_kill_group(child), -ESRCH);
	CHECK_INT(forkless_child_take_pipe(child, 0), -ENOENT);
	forkless_child_free(child);

	/* What freeing does: nothing is left of any of them. */
	SET(forkless_command_on_free(c, FORKLESS_KILL));
	SET(forkless_command_spawn(c, &child));
	pid_t pid = forkless_child_pid(child);
	forkless_child_free(child);
	CHECK(kill(pid, 0) < 0 && errno == ESRCH);
	forkless_command_free(c);
	c = sh("sleep 0.2");
	SET(forkless_command_spawn(c, &child));
	SET(forkless_child_on_free(child, FORKLESS_WAIT));
	pid = forkless_child_pid(child);
	forkless_child_free(child);
	CHECK(kill(pid, 0) < 0 && errno == ESRCH);
	forkless_command_free(c);
	c = sh("exec sleep 60");
	SET(forkless_command_spawn(c, &child));
	pid = forkless_child_pid(child);
	forkless_child_free(child); /* detached: it runs on, and is reaped when it ends */
	CHECK_INT(kill(pid, SIGKILL), 0);
	for (int i = 0; !kill(pid, 0) && i < 30000; i++)
		sleep_ms(10);
	CHECK(kill(pid, 0) < 0 && errno == ESRCH);
	forkless_command_free(c);
}

static void *wait_for(void *child)
{
	int status = -1;
	CHECK_INT(forkless_child_wait(child, &status), 0);
	return (void *)(long)status;
}

/* As the header says: by the pidfd, since the handle is in use. */
static void ending_the_wait_of_another_thread(void)
{
	forkless_command *c = forkless_command_new("sleep");
	SET(forkless_command_arg(c, "60"));
	forkless_child *child;
	SET(forkless_command_spawn(c, &child));
	int pidfd = forkless_child_pidfd(child);
	pthread_t waiting;
	CHECK_INT(pthread_create(&waiting, NULL, wait_for, child), 0);
	sleep_ms(20);
	CHECK_INT(syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0), 0);
	void *status;
	CHECK_INT(pthread_join(waiting, &status), 0);
	CHECK_INT((long)status, SIGTERM);
	forkless_child_free(child);
	forkless_command_free(c);
}

static void full_signal_sets(void)
{
	sigset_t all;
	sigfillset(&all);
	void (*before)(int) = signal(SIGHUP, SIG_IGN);
	forkless_command *c = sh("kill -HUP $$");
	int status;
	SET(forkless_command_default_signals(c, &all));
	SET(forkless_command_status(c, &status));
	CHECK_INT(status, SIGHUP);
	forkless_command_free(c);
	signal(SIGHUP, before);
	c = forkless_command_new("true");
	SET(forkless_command_ignore_signals(c, &all));
	CHECK_INT(forkless_command_status(c, NULL), -EINVAL);
	CHECK_INT(forkless_error_step(forkless_command_error(c)), FORKLESS_STEP_SIGNALS);
	forkless_command_free(c);
}

static void output_of_a_child(void)
{
	forkless_command *c = sh("cat; echo err >&2");
	for (int n = 0; n < 3; n++)
		SET(forkless_command_fd_pipe(c, n));
	forkless_child *child;
	SET(forkless_command_spawn(c, &child));
	int in = forkless_child_take_pipe(child, 0);
	CHECK(in >= 0 && write(in, "in", 2) == 2);
	CHECK_INT(forkless_child_take_pipe(child, 0), -ENOENT);
	close(in);
	int status;
	forkless_conversation *said;
	SET(forkless_child_output(child, &status, &said));
	const void *text;
	SET(forkless_conversation_output(said, 1, &text, NULL));
	CHECK_STR((const char *)text, "in");
	SET(forkless_conversation_output(said, 2, &text, NULL));
	CHECK_STR((const char *)text, "err\n");
	forkless_conversation_free(said);
	CHECK_INT(forkless_child_wait(child, NULL), -EINVAL);
	CHECK_INT(forkless_child_output(child, NULL, &said), -EINVAL);
	forkless_child_free(child);
	forkless_command_free(c);
}

struct heard {
	size_t bytes;
	int calls, number;
};

static int on_chunk(void *data, int number, const void *bytes, size_t size)
{
	struct heard *h = data;
	(void)bytes;
	h->bytes += size;
	h->calls++;
	h->number = number;
	return 0;
}

struct lines {
	char text[64];
	int stop_at;
	int go_on;
};

/* Collects "NUMBER:LINE|". The child goes on after each line of three letters. */
static int on_line(void *data, int number, const void *bytes, size_t size)
{
	struct lines *l = data;
	size_t used = strlen(l->text);
	snprintf(l->text + used, sizeof l->text - used, "%d:%.*s|", number, (int)size, (const char *)bytes);
	int stop = l->stop_at && --l->stop_at == 0;
	/* The child that is to be killed waits: it could end by itself before. */
	CHECK(stop || size != 3 || write(l->go_on, "\n", 1) == 1);
	return stop;
}

static void lines_of_a_conversation(void)
{
	int go[2];
	CHECK(!pipe2(go, O_CLOEXEC));
	struct lines l = {"", 0, go[1]};
	/* The streams are two: the child waits until a line has been read. */
	forkless_command *c = sh("echo one; read x <&5; echo two >&2; read x <&5; echo; printf last");
	SET(forkless_command_fd(c, 5, go[0]));
	forkless_communicate *how = forkless_communicate_new();
	SET(forkless_communicate_on_line(how, on_line, &l));
	int status;
	forkless_conversation *said;
	const void *text;
	size_t size;
	SET(forkless_command_communicate(c, how, &status, &said));
	CHECK_STR(l.text, "1:one|2:two|1:|1:last|");
	CHECK_INT(forkless_conversation_end(said), FORKLESS_END_COMPLETE);
	SET(forkless_conversation_output(said, 1, &text, &size));
	CHECK(size == 0); /* the function had them */
	forkless_conversation_free(said);
	/* A function that has enough. */
	l = (struct lines){"", 2, go[1]};
	SET(forkless_command_communicate(c, how, &status, &said));
	CHECK_STR(l.text, "1:one|2:two|");
	CHECK_INT(forkless_conversation_end(said), FORKLESS_END_STOPPED);
	CHECK_INT(status, SIGKILL);
	forkless_conversation_free(said);
	/* NULL takes it away again. */
	SET(forkless_communicate_on_line(how, NULL, NULL));
	CHECK(write(go[1], "\n\n", 2) == 2);
	SET(forkless_command_communicate(c, how, &status, &said));
	CHECK(!close(go[0]) && !close(go[1]));
	SET(forkless_conversation_output(said, 1, &text, NULL));
	CHECK_STR((const char *)text, "one\n\nlast");
	forkless_conversation_free(said);
	forkless_communicate_free(how);
	forkless_command_free(c);
}

static void versions_and_texts(void)
{
	CHECK_INT(forkless_version(), FORKLESS_VERSION);
	char version[32];
	snprintf(version, sizeof version, "%d.%d.%d", FORKLESS_VERSION_MAJOR, FORKLESS_VERSION_MINOR,
	         FORKLESS_VERSION_PATCH);
	CHECK_STR(forkless_version_string(), version);
	CHECK_STR(forkless_strerror(ENOENT), "No such file or directory");
	CHECK_STR(forkless_strerror(-ENOENT), "No such file or directory");
	CHECK(forkless_strerror(0) && forkless_strerror(123456));
}

static void conversations(void)
{
	/* Far more than a pipe holds, both ways at once. */
	size_t size = 3 << 20;
	char *input = malloc(size);
	CHECK(input);
	memset(input, 'x', size);
	forkless_command *c = forkless_command_new("cat");
	forkless_communicate *how = forkless_communicate_new();
	SET(forkless_communicate_input(how, input, size));
	forkless_conversation *said;
	const void *text;
	size_t heard;
	SET(forkless_command_communicate(c, how, NULL, &said));
	SET(forkless_conversation_output(said, 1, &text, &heard));
	CHECK(heard == size && !memcmp(text, input, size));
	CHECK_INT(forkless_conversation_end(said), FORKLESS_END_COMPLETE);
	forkless_conversation_free(said);
	struct heard h = {0, 0, 0};
	SET(forkless_communicate_on_chunk(how, on_chunk, &h));
	SET(forkless_command_communicate(c, how, NULL, NULL));
	CHECK(h.bytes == size && h.calls > 1 && h.number == 1);
	forkless_communicate_free(how);
	forkless_command_free(c);
	free(input);

	c = sh("echo out; echo err >&2; echo five >&5");
	how = forkless_communicate_new();
	SET(forkless_communicate_merged(how, 1));
	SET(forkless_communicate_capture(how, 5));
	SET(forkless_command_communicate(c, how, NULL, &said));
	SET(forkless_conversation_output(said, 1, &text, NULL));
	CHECK_STR((const char *)text, "out\nerr\n");
	SET(forkless_conversation_output(said, 5, &text, NULL));
	CHECK_STR((const char *)text, "five\n");
	forkless_conversation_free(said);
	forkless_communicate_free(how);
	forkless_command_free(c);

	/* A grandchild that keeps the pipes: lingered, and with a deadline for the group, gone. */
	c = sh("sleep 60 & echo $!");
	how = forkless_communicate_new();
	SET(forkless_communicate_linger(how, 50));
	SET(forkless_command_communicate(c, how, NULL, &said));
	CHECK_INT(forkless_conversation_end(said), FORKLESS_END_LINGERED);
	SET(forkless_conversation_output(said, 1, &text, NULL));
	CHECK_INT(kill(atoi((const char *)text), SIGKILL), 0);
	forkless_conversation_free(said);
	forkless_communicate_free(how);
	forkless_command_free(c);
	c = sh("sleep 60 & wait");
	how = forkless_communicate_new();
	SET(forkless_communicate_timeout(how, 100));
	SET(forkless_communicate_kill_group(how, 1));
	SET(forkless_command_communicate(c, how, NULL, &said));
	CHECK_INT(forkless_conversation_end(said), FORKLESS_END_DEADLINE);
	forkless_conversation_free(said);
	forkless_communicate_free(how);
	forkless_command_free(c);
}

static void pipelines(void)
{
	forkless_pipeline *l = forkless_pipeline_new();
	static const char *const stages[] = {"printf 'b\\na\\n'; exit 3", "sort", "cat; exit 4"};
	for (int i = 0; i < 3; i++) {
		forkless_command *c = sh(stages[i]);
		SET(forkless_pipeline_add(l, c));
		forkless_command_free(c);
	}
	int status;
	forkless_conversation *said;
	SET(forkless_pipeline_output(l, &status, &said));
	const void *text;
	SET(forkless_conversation_output(said, 1, &text, NULL));
	CHECK_STR((const char *)text, "a\nb\n");
	CHECK_INT(status, 4 << 8);
	forkless_conversation_free(said);
	forkless_child *children[3];
	CHECK_INT(forkless_pipeline_spawn(l, children, 2), -EINVAL);
	forkless_pipeline_free(l);

	l = forkless_pipeline_new();
	for (int i = 0; i < 2; i++) {
		forkless_command *c = sh(i ? "cat >/dev/null; exit 6" : "exit 5");
		SET(forkless_pipeline_add(l, c));
		forkless_command_free(c);
	}
	CHECK_INT(forkless_pipeline_spawn(l, children, 3), 2);
	for (int i = 0; i < 2; i++) {
		SET(forkless_child_wait(children[i], &status));
		CHECK_INT(status, (5 + i) << 8);
		forkless_child_free(children[i]);
	}
	forkless_pipeline_free(l);
}

static void prepared(void)
{
	forkless_command *c = sh("exit 9");
	forkless_prepared *p;
	SET(forkless_command_prepare(c, &p));
	forkless_command_free(c);
	forkless_child *child;
	int status;
	SET(forkless_prepared_spawn(p, &child));
	SET(forkless_child_wait(child, &status));
	CHECK_INT(status, 9 << 8);
	forkless_child_free(child);
	SET(forkless_prepared_spawn_nonblocking(p, &child));
	SET(forkless_child_wait(child, &status));
	CHECK_INT(status, 9 << 8);
	forkless_child_free(child);
	CHECK_INT(forkless_prepared_spawn(p, NULL), -EINVAL);
	CHECK(forkless_prepared_error(p));
	SET(forkless_prepared_status(p, &status));
	CHECK(!forkless_prepared_error(p));
	forkless_prepared_free(p);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(f) {#f, f}
	CASE(arguments_and_environment),
	CASE(places),
	CASE(descriptors),
	CASE(descriptors_given_away),
	CASE(pipes_that_the_child_reads_from),
	CASE(swapped_descriptors),
	CASE(identity),
	CASE(groups_and_sessions),
	CASE(terminals),
	CASE(limits),
	CASE(scheduling),
	CASE(signals),
	CASE(privileges),
	CASE(death_of_the_parent),
	CASE(missing_cgroup),
	CASE(function_in_the_child),
	CASE(exec_in_place),
	CASE(children),
	CASE(ending_the_wait_of_another_thread),
	CASE(full_signal_sets),
	CASE(output_of_a_child),
	CASE(conversations),
	CASE(lines_of_a_conversation),
	CASE(versions_and_texts),
	CASE(pipelines),
	CASE(prepared),
};

int main(void)
{
	root = !geteuid();
	if (!root)
		printf("skipped: credentials and chroot: not root\n");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cases[i].run();
		struct census before = take_census();
		cases[i].run();
		same_census(cases[i].name, &before);
	}
	return 0;
}
