/* forkless_system, forkless_popen and forkless_pclose behave as system(3), popen(3) and pclose(3) do. */
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>

static char tiny[4096];

static void statuses(void)
{
	errno = EXDEV;
	CHECK(forkless_system(NULL) != 0);
	CHECK_INT(forkless_system("true"), 0);
	CHECK_INT(forkless_system("exit 3"), 3 << 8);
	CHECK_INT(forkless_system("false"), 1 << 8);
	CHECK_INT(forkless_system(tiny), 0);
	CHECK_INT(forkless_system("no-such-program-anywhere 2>/dev/null"), 127 << 8);
	CHECK_INT(forkless_system("/tmp 2>/dev/null"), 126 << 8);
	CHECK_INT(forkless_system("-c 2>/dev/null"), 127 << 8);
	CHECK_INT(forkless_system(""), 0);
	/* What libc gives is the measure, whatever this machine's shell does. */
	static const char *lines[] = {"kill -9 $$", "sh -c 'kill -15 $$'", "exec sh -c 'kill -15 $$'",
	                              "sh -c 'kill -9 $$'; exit 4", "true && exit 7", "! true", "(exit 2)",
	                              "sh -c 'exit 9' | cat", "cd /nowhere 2>/dev/null", "if true; then exit 6; fi"};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		int expected = system(lines[i]);
		errno = EXDEV;
		int got = forkless_system(lines[i]);
		if (got != expected) {
			fprintf(stderr, "%s: %#x, not %#x\n", lines[i], got, expected);
			exit(1);
		}
	}
	CHECK_INT(errno, EXDEV);
}

static int read_all(FILE *f, char *text, size_t size)
{
	size_t n = fread(text, 1, size - 1, f);
	text[n] = 0;
	return n;
}

static void reading(void)
{
	char text[256];
	FILE *f = forkless_popen(tiny, "r");
	CHECK(f);
	CHECK_INT(read_all(f, text, sizeof text), 5);
	CHECK_STR(text, "tiny\n");
	CHECK_INT(forkless_pclose(f), 0);
	f = forkless_popen("echo $((1 + 2)); exit 5", "r");
	CHECK_INT(read_all(f, text, sizeof text), 2);
	CHECK_INT(forkless_pclose(f), 5 << 8);
	/* Closed once. */
	CHECK_INT(forkless_pclose(f), -1);
	CHECK_INT(errno, EINVAL);
	f = forkless_popen("no-such-program-anywhere 2>/dev/null", "re");
	CHECK(f);
	CHECK_INT(read_all(f, text, sizeof text), 0);
	CHECK_INT(forkless_pclose(f), 127 << 8);
}

static void writing(void)
{
	unlink("written");
	FILE *f = forkless_popen("cat >written", "w");
	CHECK(f);
	for (int i = 0; i < 100000; i++)
		CHECK(fprintf(f, "line %d\n", i) > 0);
	CHECK_INT(forkless_pclose(f), 0);
	struct stat st;
	CHECK(!stat("written", &st));
	CHECK_INT(st.st_size, 1088890);
	CHECK_INT(count_lines("written"), 100000);
	unlink("written");
}

static void modes(void)
{
	static const char *bad[] = {"", "e", "rw", "r+", "a", "rb", "x"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		errno = 0;
		CHECK(!forkless_popen("true", bad[i]));
		CHECK_INT(errno, EINVAL);
	}
	static const char *good[] = {"r", "w", "re", "er", "we", "ew"};
	for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
		FILE *f = forkless_popen("true", good[i]);
		CHECK(f);
		int flags = fcntl(fileno(f), F_GETFD);
		CHECK_INT(flags & FD_CLOEXEC, strchr(good[i], 'e') ? FD_CLOEXEC : 0);
		CHECK_INT(forkless_pclose(f), 0);
	}
}

/* A later child has none of the earlier streams (else the first cat would never end), and all other descriptors. */
static void earlier_streams_are_closed_in_children(void)
{
	int plain = open("/dev/null", O_RDONLY), shut = open("/dev/null", O_RDONLY | O_CLOEXEC);
	FILE *first = forkless_popen("cat", "w");
	CHECK(first && plain >= 0 && shut >= 0);
	char line[128], text[256];
	snprintf(line, sizeof line, "for n in %d %d %d; do [ -e /proc/self/fd/$n ] && echo $n; done; true", fileno(first),
	         plain, shut);
	FILE *second = forkless_popen(line, "r");
	CHECK(second);
	read_all(second, text, sizeof text);
	char expected[16];
	snprintf(expected, sizeof expected, "%d\n", plain);
	CHECK_STR(text, expected);
	CHECK_INT(forkless_pclose(second), 0);
	/* If it held the first stream's end, the first cat would wait for it, and so would pclose. */
	FILE *holder = forkless_popen("cat >/dev/null", "w");
	CHECK_INT(forkless_pclose(first), 0);
	fclose(holder); /* A mistake, but its number must not be closed in later children: it is another file's now. */
	int reused = open("/dev/null", O_RDONLY);
	snprintf(line, sizeof line, "[ -e /proc/self/fd/%d ] && echo kept", reused);
	second = forkless_popen(line, "r");
	read_all(second, text, sizeof text);
	CHECK_STR(text, "kept\n");
	CHECK_INT(forkless_pclose(second), 0);
	close(plain);
	close(shut);
	close(reused);
}

/* What the child sees of signals is what the caller has. */
static void signals_of_the_child(void)
{
	sigset_t mask, old;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	CHECK(!pthread_sigmask(SIG_BLOCK, &mask, &old));
	void (*was)(int) = signal(SIGUSR2, SIG_IGN);
	static const char *lines[] = {"grep Sig[BIC] /proc/self/status; exit 0", "grep 'Sig[BIC]' /proc/self/status",
	                              "grep SigIgn /proc/self/status && grep SigBlk /proc/self/status"};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		char to[256], a[4096], b[4096];
		snprintf(to, sizeof to, "{ %s; } >signals-libc", lines[i]);
		CHECK_INT(system(to), 0);
		fflush(stdout);
		int saved = dup(1), fd = open("signals-ours", O_CREAT | O_TRUNC | O_WRONLY, 0600);
		dup2(fd, 1);
		int status = forkless_system(lines[i]);
		dup2(saved, 1);
		close(saved);
		close(fd);
		CHECK_INT(status, 0);
		FILE *f = fopen("signals-libc", "r"), *g = fopen("signals-ours", "r");
		CHECK(read_all(f, a, sizeof a) > 20 && read_all(g, b, sizeof b) > 20);
		fclose(f);
		fclose(g);
		/* glibc's posix_spawn leaves its own two signals, 32 and 33, ignored; nobody else can send those. */
		const unsigned long long libcs_own = 3ULL << 31;
		char *x = a, *y = b;
		while ((x = strchr(x, ':')) && (y = strchr(y, ':'))) {
			unsigned long long expected = strtoull(++x, NULL, 16) & ~libcs_own;
			CHECK_INT(strtoull(++y, NULL, 16) & ~libcs_own, expected);
		}
		CHECK_INT(strlen(b), strlen(a));
	}
	unlink("signals-libc");
	unlink("signals-ours");
	signal(SIGUSR2, was);
	CHECK(!pthread_sigmask(SIG_SETMASK, &old, NULL));
}

static volatile sig_atomic_t interrupts;

static void on_interrupt(int signal)
{
	(void)signal;
	interrupts++;
}

/* A program that reads a FIFO: it runs once the other end is open, and ends when that is closed. */
struct reader {
	char fifo[64], line[128];
	pthread_t waits;
};

static void *wait_long(void *line)
{
	return (void *)(long)forkless_system(line);
}

/* Returns the other end. FORMAT makes a line of the FIFO's path. */
static int begin(struct reader *reader, const char *format, void *(*wait)(void *))
{
	static int number;
	snprintf(reader->fifo, sizeof reader->fifo, "/tmp/forkless-dropins.%d.%d", getpid(), number++);
	snprintf(reader->line, sizeof reader->line, format, reader->fifo);
	CHECK(!mkfifo(reader->fifo, 0600));
	CHECK(!pthread_create(&reader->waits, NULL, wait, reader->line));
	int end = open(reader->fifo, O_WRONLY | O_CLOEXEC);
	CHECK(end >= 0 && !unlink(reader->fifo));
	return end;
}

static int ignored(int signal)
{
	struct sigaction now;
	CHECK(!sigaction(signal, NULL, &now));
	return now.sa_handler == SIG_IGN;
}

/* SIGINT and SIGQUIT are ignored from the first of several waits to the last, and the child has them at their default. */
static void keyboard_signals(void)
{
	struct sigaction handler = {.sa_handler = on_interrupt}, old;
	CHECK(!sigaction(SIGINT, &handler, &old));
	struct reader a, b;
	int end_of_a = begin(&a, "cat %s", wait_long), end_of_b = begin(&b, "cat %s", wait_long);
	CHECK(ignored(SIGINT) && ignored(SIGQUIT));
	CHECK(!kill(getpid(), SIGINT) && !kill(getpid(), SIGQUIT));
	void *status;
	CHECK(!close(end_of_a) && !pthread_join(a.waits, &status) && status == 0);
	CHECK(ignored(SIGINT) && ignored(SIGQUIT));
	CHECK(!close(end_of_b) && !pthread_join(b.waits, &status) && status == 0);
	CHECK(!ignored(SIGINT) && !ignored(SIGQUIT));
	CHECK_INT(interrupts, 0);
	struct sigaction now;
	CHECK(!sigaction(SIGINT, NULL, &now) && now.sa_handler == on_interrupt);
	CHECK(!sigaction(SIGINT, &old, NULL));
	/* A child dies of SIGINT though the caller ignores it meanwhile. */
	int expected = system("exec sh -c 'kill -INT $$; sleep 5'");
	CHECK_INT(WTERMSIG(expected), SIGINT);
	CHECK_INT(forkless_system("exec sh -c 'kill -INT $$; sleep 5'"), expected);
	/* So it does with more to come, where the line ends: the keyboard, which reaches a shell as well, is what is meant. */
	CHECK_INT(forkless_system("sh -c 'kill -INT $$; sleep 5'; exit 3"), SIGINT);
	/* And one of a caller that ignores it does not. */
	signal(SIGINT, SIG_IGN);
	CHECK_INT(forkless_system("exec sh -c 'kill -INT $$; exit 8'"), 8 << 8);
	signal(SIGINT, SIG_DFL);
}

static volatile sig_atomic_t chld, stolen;

static void reap_any(int signal)
{
	(void)signal;
	int saved = errno;
	chld++;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		stolen++;
	errno = saved;
}

/* A handler that waits for any child does not take the status away, and runs afterwards. */
static void sigchld_handler(void)
{
	struct sigaction handler = {.sa_handler = reap_any, .sa_flags = SA_RESTART}, old;
	CHECK(!sigaction(SIGCHLD, &handler, &old));
	chld = stolen = 0;
	/* Nor is it told of a child that tries a facility. */
	struct forkless_facility f = {0};
	f.size = sizeof f;
	for (size_t i = 0; !forkless_facility(i, &f); i++)
		;
	CHECK_INT(chld + stolen, 0);
	for (int i = 0; i < 50; i++)
		CHECK_INT(forkless_system(i % 2 ? "sh -c 'exit 6'" : "for i in 1; do sh -c 'exit 6'; done"), 6 << 8);
	CHECK_INT(stolen, 0);
	CHECK(chld > 0);
	sigset_t mask;
	CHECK(!pthread_sigmask(SIG_BLOCK, NULL, &mask) && !sigismember(&mask, SIGCHLD));
	CHECK(!sigaction(SIGCHLD, &old, NULL));
	/* Ignored: the kernel reaps, and the status is there all the same, or known to be lost. */
	signal(SIGCHLD, SIG_IGN);
	int kept = 0;
	for (size_t i = 0; !forkless_facility(i, &f); i++)
		kept |= !strcmp(f.name, "PIDFD_GET_INFO") && f.state == 0;
	errno = 0;
	int status = forkless_system("sh -c 'exit 6'");
	if (kept)
		CHECK_INT(status, 6 << 8);
	else
		CHECK(status == -1 && errno == ECHILD);
	signal(SIGCHLD, SIG_DFL);
	if (!kept)
		printf("skipped: PIDFD_GET_INFO is refused here\n");
}

static void *many(void *arg)
{
	char line[128], text[128];
	for (int i = 0; i < 20; i++) {
		long n = (long)arg * 1000 + i;
		snprintf(line, sizeof line, i % 2 ? "echo %ld" : "printf '%%s\\n' %ld", n);
		FILE *f = forkless_popen(line, i % 3 ? "r" : "re");
		CHECK(f);
		read_all(f, text, sizeof text);
		CHECK_INT(atol(text), n);
		CHECK_INT(forkless_pclose(f), 0);
		FILE *w = forkless_popen("cat >/dev/null", "w");
		CHECK(w);
		CHECK(fputs("text\n", w) >= 0);
		CHECK_INT(forkless_pclose(w), 0);
		CHECK_INT(forkless_system(i % 2 ? tiny : "exit 2") % 256, 0);
	}
	return NULL;
}

/* Were a stream ever inherited by another thread's child, a cat would wait for a cat, and this would not end. */
static void threads(void)
{
	pthread_t t[12];
	for (long i = 0; i < 12; i++)
		CHECK(!pthread_create(&t[i], NULL, many, (void *)i));
	for (int i = 0; i < 12; i++)
		CHECK(!pthread_join(t[i], NULL));
}

static int tasks(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void change_credentials(void)
{
	uid_t user = geteuid();
	gid_t group = getegid();
	CHECK(!setresuid(user, user, user));
	CHECK(!setresgid(group, group, group));
	if (!user)
		CHECK(!setgroups(0, NULL));
}

static int all_done;

static void *changing(void *arg)
{
	(void)arg;
	while (!__atomic_load_n(&all_done, __ATOMIC_RELAXED)) {
		change_credentials();
		sleep_ms(1);
	}
	return NULL;
}

/* libc asks every thread to change its credentials, the library's own too, and waits for each. The alarm ends a hang. */
static void credentials(void)
{
	alarm(500);
	pthread_t t[5];
	__atomic_store_n(&all_done, 0, __ATOMIC_RELAXED);
	CHECK(!pthread_create(&t[0], NULL, changing, NULL));
	/* A running child is freed: the library reaps it. */
	forkless_command *c = forkless_command_new("/bin/sleep");
	CHECK_INT(forkless_command_arg(c, "0.2"), 0);
	forkless_child *child;
	CHECK_INT(forkless_command_spawn(c, &child), 0);
	forkless_child_free(child);
	forkless_command_free(c);
	change_credentials();
	/* A stream that is closed past pclose: the next popen lets its child go. */
	fclose(forkless_popen("cat >/dev/null", "w"));
	CHECK_INT(forkless_pclose(forkless_popen("cat >/dev/null", "w")), 0);
	change_credentials();
	for (long i = 1; i < 5; i++)
		CHECK(!pthread_create(&t[i], NULL, many, (void *)i));
	for (int i = 1; i < 5; i++)
		CHECK(!pthread_join(t[i], NULL));
	__atomic_store_n(&all_done, 1, __ATOMIC_RELAXED);
	CHECK(!pthread_join(t[0], NULL));
	/* The threads that reap end after the last child. */
	for (int i = 0; tasks() > 1 && i < 150000; i++)
		sleep_ms(2);
	CHECK_INT(tasks(), 1);
	alarm(0);
}

static volatile int finished;

static void *cancelled(void *line)
{
	int status = forkless_system(line);
	finished = status == 7 << 8;
	pthread_testcancel();
	finished = 2;
	return NULL;
}

static void cancellation(void)
{
	struct reader reader;
	void *result;
	int end = begin(&reader, "cat %s; exit 7", cancelled);
	CHECK(!pthread_cancel(reader.waits));
	CHECK(!close(end));
	CHECK(!pthread_join(reader.waits, &result));
	CHECK(result == PTHREAD_CANCELED);
	CHECK_INT(finished, 1);
}

static void after_a_fork(void)
{
	CHECK_INT(forkless_system(tiny), 0);
	FILE *f = forkless_popen("cat", "r");
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		/* The stream's command is not this process's child. */
		if (forkless_pclose(f) != -1 || errno != ECHILD)
			_exit(2);
		_exit(forkless_system("sh -c 'exit 9'") == 9 << 8 ? 0 : 1);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	CHECK_INT(forkless_pclose(f), 0);
}

static volatile int busy;

static void *keep_calling(void *arg)
{
	while (busy) {
		FILE *f = forkless_popen(tiny, "w");
		CHECK(f);
		forkless_pclose(f);
		forkless_system(arg);
	}
	return NULL;
}

/* Forks that fall into other threads' calls: the new process waits for none of them, and its keyboard signals are as before. */
static void forks_during_calls(void)
{
	pthread_t t[3];
	busy = 1;
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&t[i], NULL, keep_calling, i ? tiny : "sleep 0.02"));
	for (int i = 0; i < 60; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			alarm(300); /* Rather than hang. */
			if (ignored(SIGINT) || ignored(SIGQUIT))
				_exit(1);
			FILE *f = forkless_popen(tiny, "w");
			if (!f || forkless_pclose(f))
				_exit(2);
			_exit(forkless_system("sh -c 'exit 9'") == 9 << 8 ? 0 : 3);
		}
		int status;
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK_INT(status, 0);
	}
	busy = 0;
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_join(t[i], NULL));
	CHECK(!ignored(SIGINT) && !ignored(SIGQUIT));
}

static int handler_forks;

static void forks_again(void)
{
	if (!handler_forks)
		return;
	handler_forks = 0;
	pid_t pid = fork();
	if (!pid)
		_exit(0);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

/* Regression: the fork in the handler waited for the locks that the other fork had taken. */
static void a_fork_handler_forks(void)
{
	CHECK_INT(forkless_system(tiny), 0);
	handler_forks = 1;
	alarm(300); /* Rather than hang. */
	pid_t pid = fork();
	if (!pid)
		_exit(forkless_system("exit 5") == 5 << 8 ? 0 : 1);
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	alarm(0);
	CHECK_INT(status, 0);
	CHECK_INT(handler_forks, 0);
	CHECK_INT(forkless_system("exit 6"), 6 << 8);
	FILE *f = forkless_popen("true", "r");
	CHECK(f);
	CHECK_INT(forkless_pclose(f), 0);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(f) {#f, f}
	CASE(statuses),
	CASE(reading),
	CASE(writing),
	CASE(modes),
	CASE(signals_of_the_child),
	CASE(keyboard_signals),
	CASE(sigchld_handler),
	CASE(threads),
	CASE(credentials),
	CASE(cancellation),
	CASE(after_a_fork),
	CASE(forks_during_calls),
	CASE(a_fork_handler_forks),
	/* Last: it leaves a child that ends by itself, after a second or so. */
	CASE(earlier_streams_are_closed_in_children),
};

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	CHECK(freopen("/dev/null", "r", stdin));
	snprintf(tiny, sizeof tiny, "%s", argv[1]);
	/* Before the library's, so that it is called after them. */
	CHECK(!pthread_atfork(forks_again, NULL, NULL));
	fflush(stdout);
	int out = dup(1);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (argc > 2 && strcmp(argv[2], cases[i].name))
			continue;
		/* What commands print is not this program's. */
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
		dup2(null, 1);
		close(null);
		cases[i].run();
		struct census before = take_census();
		cases[i].run();
		if (cases[i].run == threads || cases[i].run == credentials || cases[i].run == forks_during_calls)
			before.mappings += 2 * 12; /* As many stacks, kept for later, as were in use at once. */
		if (cases[i].run != earlier_streams_are_closed_in_children)
			same_census(cases[i].name, &before);
		fflush(stdout);
		dup2(out, 1);
		if (argc > 2)
			break;
	}
	return 0;
}
