/* popen_noshell.h: what programs written for popen-noshell rely on, in each of its modes. */
#include "check.h"
#include <fcntl.h>
#include <popen_noshell.h>

static int mode;

static int reads(const char *const *argv, int stderr_mode, const char *expected)
{
	struct popen_noshell_pass_to_pclose pass;
	char text[512];
	FILE *f = popen_noshell(argv[0], argv, "r", &pass, stderr_mode);
	CHECK(f);
	CHECK(pass.fp == f && pass.pid > 0);
	CHECK_INT(fcntl(fileno(f), F_GETFD), FD_CLOEXEC);
	size_t n = fread(text, 1, sizeof text - 1, f);
	text[n] = 0;
	if (expected)
		CHECK_STR(text, expected);
	return pclose_noshell(&pass);
}

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})

static void statuses_and_output(void)
{
	CHECK_INT(reads(ARGV("/bin/echo", "a", "b c"), 0, "a b c\n"), 0);
	CHECK_INT(reads(ARGV("sh", "-c", "exit 111"), 0, ""), 111 << 8);
	CHECK_INT(reads(ARGV("sh", "-c", "kill -9 $$"), 0, ""), 9);
	CHECK_INT(reads(ARGV("sh", "-c", "printf 'x\\ny'; exit 3"), 0, "x\ny"), 3 << 8);
	/* Standard input is empty, not the caller's. */
	CHECK_INT(reads(ARGV("cat"), 0, ""), 0);
}

static void standard_error(void)
{
	const char *const *argv = ARGV("sh", "-c", "echo out; echo err >&2");
	CHECK_INT(reads(argv, 1, "out\n"), 0);
	CHECK_INT(reads(argv, 2, "out\nerr\n"), 0);
}

static void writes(void)
{
	struct popen_noshell_pass_to_pclose one, two;
	/* The second does not hold the first one's stream, or this would not end. */
	CHECK(popen_noshell("cat", ARGV("cat"), "w", &one, 0));
	CHECK(popen_noshell("cat", ARGV("cat"), "w", &two, 0));
	CHECK(fputs("into nothing\n", one.fp) >= 0);
	CHECK_INT(pclose_noshell(&one), 0);
	CHECK_INT(pclose_noshell(&two), 0);
	/* Closed once. */
	CHECK_INT(pclose_noshell(&two), -1);
	CHECK_INT(errno, EINVAL);
	CHECK(popen_noshell("sh", ARGV("sh", "-c", "read line; exit $line"), "w", &one, 1));
	fputs("42\n", one.fp);
	CHECK_INT(pclose_noshell(&one), 42 << 8);
}

static void failures(void)
{
	struct popen_noshell_pass_to_pclose pass;
	errno = 0;
	CHECK(!popen_noshell("true", ARGV("true"), "rw", &pass, 0));
	CHECK_INT(errno, EINVAL);
	CHECK_INT(reads(ARGV("/"), 1, ""), (mode == POPEN_NOSHELL_MODE_POSIX_SPAWN ? 127 : 255) << 8);
	CHECK_INT(reads(ARGV("no-such-program-anywhere"), 1, ""),
	          (mode == POPEN_NOSHELL_MODE_POSIX_SPAWN ? 127 : 255) << 8);
	/* The message is on the child's standard error. */
	char text[256];
	FILE *f = popen_noshell("/no/such", ARGV("/no/such"), "r", &pass, 2);
	CHECK(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	CHECK(mode == POPEN_NOSHELL_MODE_POSIX_SPAWN ? !*text : strstr(text, "exec /no/such: ") == text);
	CHECK(pclose_noshell(&pass) > 0);
	int saved = dup(2), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	dup2(null, 2);
	errno = 0;
	f = popen_noshell("true", ARGV("true"), "r", &pass, 3);
	int status = f ? pclose_noshell(&pass) : -1, error = errno;
	dup2(saved, 2);
	close(saved);
	close(null);
	if (mode == POPEN_NOSHELL_MODE_POSIX_SPAWN)
		CHECK(!f && error == EINVAL);
	else
		CHECK_INT(status, 254 << 8);
}

static void command_strings(void)
{
	struct popen_noshell_pass_to_pclose pass;
	char text[256];
	FILE *f = popen_noshell_compat(" printf '%s,' 'a  b'\"c\" d\te ", "r", &pass);
	CHECK(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	CHECK_STR(text, "a  bc,d,e,");
	CHECK_INT(pclose_noshell(&pass), 0);
	static const char *refused[] = {"", " ", "a | b", "a 'b", "Some b&d command", "echo '$HOME'", "a;b"};
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		errno = 0;
		CHECK(!popen_noshell_compat(refused[i], "r", &pass));
		CHECK_INT(errno, EINVAL);
	}
}

/* Inheritance is popen's: what is not close-on-exec, the mask, and what is ignored. */
static void inheritance(void)
{
	int plain = open("/dev/null", O_RDONLY), shut = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char line[128], expected[16];
	snprintf(line, sizeof line, "for n in %d %d; do [ -e /proc/self/fd/$n ] && echo $n; done; exit 0", plain, shut);
	snprintf(expected, sizeof expected, "%d\n", plain);
	CHECK_INT(reads(ARGV("sh", "-c", line), 0, expected), 0);
	close(plain);
	close(shut);
	sigset_t mask, old;
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	CHECK(!pthread_sigmask(SIG_BLOCK, &mask, &old));
	CHECK_INT(reads(ARGV("grep", "SigBlk", "/proc/self/status"), 0, "SigBlk:\t0000000000004000\n"), 0);
	CHECK(!pthread_sigmask(SIG_SETMASK, &old, NULL));
}

static int moved;

static int in_child(void *arg)
{
	moved = *(int *)arg;
	execl("/bin/sh", "sh", "-c", "exit 12", (char *)NULL);
	return 99;
}

static void on_usr1(int signal)
{
	(void)signal;
}

static void vmfork_shares_memory(void)
{
	signal(SIGUSR1, on_usr1);
	int value = 4711;
	void *memory = NULL;
	pid_t pid = popen_noshell_vmfork(in_child, &value, &memory);
	CHECK(pid > 0 && memory);
	CHECK_INT(moved, 4711);
	int status;
	CHECK(waitpid(pid, &status, __WALL) == pid);
	CHECK_INT(status, 12 << 8);
	free(memory);
	struct sigaction now;
	CHECK(!sigaction(SIGUSR1, NULL, &now) && now.sa_handler == on_usr1);
	signal(SIGUSR1, SIG_DFL);
}

int main(void)
{
	static void (*const cases[])(void) = {statuses_and_output, standard_error, writes,      failures,
	                                      command_strings,     inheritance,    vmfork_shares_memory};
	CHECK_INT(popen_noshell_get_fork_mode(), POPEN_NOSHELL_MODE_CLONE);
	for (mode = 0; mode <= 2; mode++) {
		popen_noshell_set_fork_mode(mode);
		CHECK_INT(popen_noshell_get_fork_mode(), mode);
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
			char name[64];
			snprintf(name, sizeof name, "mode %d case %zu", mode, i);
			cases[i]();
			struct census before = take_census();
			cases[i]();
			same_census(name, &before);
		}
	}
	return 0;
}
