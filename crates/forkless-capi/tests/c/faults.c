/* Bad input and faults, each to its documented error, with nothing left behind. */
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* Starts and fails; the step and the message as given. */
static void fails(forkless_command *c, int number, enum forkless_step step, const char *message)
{
	forkless_child *child = (forkless_child *)1;
	errno = EXDEV;
	CHECK_INT(forkless_command_spawn(c, &child), number);
	CHECK_INT(errno, EXDEV);
	CHECK(child == (forkless_child *)1);
	const forkless_error *e = forkless_command_error(c);
	CHECK_INT(forkless_error_number(e), number);
	CHECK_INT(forkless_error_step(e), step);
	CHECK_STR(forkless_error_message(e), message);
	CHECK(*forkless_error_step_name(e));

	/* The non-blocking start says so at once or at the first wait. */
	int r = forkless_command_spawn_nonblocking(c, &child);
	if (r == 0) {
		CHECK_INT(forkless_child_wait(child, NULL), number);
		e = forkless_child_error(child);
		CHECK_INT(forkless_error_step(e), step);
		CHECK_STR(forkless_error_message(e), message);
		forkless_child_free(child);
	} else {
		CHECK_INT(r, number);
	}
	forkless_command_free(c);
}

static void empty_program(void)
{
	fails(forkless_command_new(""), -ENOENT, FORKLESS_STEP_EXEC, "exec \"\" (an empty name): No such file or directory");
}

static void missing_program(void)
{
	fails(forkless_command_new("/no/such/program"), -ENOENT, FORKLESS_STEP_EXEC,
	      "exec /no/such/program: No such file or directory");
}

static void argument_list_too_long(void)
{
	forkless_command *c = forkless_command_new("/bin/true");
	/* One string longer than MAX_ARG_STRLEN, 32 pages. */
	size_t size = 64 * 65536;
	char *big = malloc(size);
	memset(big, 'x', size - 1);
	big[size - 1] = 0;
	CHECK_INT(forkless_command_arg(c, big), 0);
	free(big);
	fails(c, -E2BIG, FORKLESS_STEP_EXEC, "exec /bin/true: Argument list too long");
}

static void write_file(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, mode);
	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void missing_interpreter(void)
{
	write_file("no-interpreter", "#!/no/such/interpreter\n", 0755);
	forkless_command *c = forkless_command_new("./no-interpreter");
	forkless_child *child;
	CHECK_INT(forkless_command_spawn(c, &child), -ENOENT);
	CHECK_INT(forkless_error_step(forkless_command_error(c)), FORKLESS_STEP_EXEC);
	forkless_command_free(c);
	unlink("no-interpreter");
}

static void directory(void)
{
	fails(forkless_command_new("/tmp"), -EACCES, FORKLESS_STEP_EXEC, "exec /tmp: Permission denied");
}

static void script_without_interpreter_line(void)
{
	write_file("plain-script", "exit 5\n", 0755);
	forkless_command *c = forkless_command_new("./plain-script");
	int status;
	CHECK_INT(forkless_command_status(c, &status), 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
	CHECK_INT(forkless_command_scripts_without_interpreter(c, 0), 0);
	fails(c, -ENOEXEC, FORKLESS_STEP_EXEC, "exec ./plain-script: Exec format error");
	unlink("plain-script");
}

static void closed_standard_descriptors(void)
{
	int saved[3];
	for (int n = 0; n < 3; n++) {
		saved[n] = fcntl(n, F_DUPFD_CLOEXEC, 50);
		CHECK(saved[n] >= 0);
		close(n);
	}
	/* Nothing may be printed from here on. */
	forkless_command *c = forkless_command_new("/bin/echo");
	forkless_conversation *said = NULL;
	int status = -1;
	forkless_command_arg(c, "hello");
	int r = forkless_command_communicate(c, NULL, &status, &said);
	for (int n = 0; n < 3; n++) {
		dup2(saved[n], n);
		close(saved[n]);
	}
	CHECK_INT(r, 0);
	const void *bytes;
	CHECK_INT(forkless_conversation_output(said, 1, &bytes, NULL), 0);
	CHECK_STR((const char *)bytes, "hello\n");
	forkless_conversation_free(said);
	forkless_command_free(c);
}

static void no_descriptors_left(void)
{
	struct rlimit old, low;
	CHECK(!getrlimit(RLIMIT_NOFILE, &old));
	low = old;
	low.rlim_cur = 3;
	forkless_command *c = forkless_command_new("/bin/true");
	CHECK_INT(forkless_command_fd_pipe(c, 1), 0);
	CHECK(!setrlimit(RLIMIT_NOFILE, &low));
	forkless_child *child;
	int r = forkless_command_spawn(c, &child);
	CHECK(!setrlimit(RLIMIT_NOFILE, &old));
	CHECK_INT(r, -EMFILE);
	CHECK_STR(forkless_error_step_name(forkless_command_error(c)), "pipe");
	forkless_command_free(c);
}

/* RLIMIT_NPROC does not bind root, so this runs as somebody else, in a process of its own. */
static void no_processes_left(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		if (!getuid() && setuid(54321))
			_exit(2);
		struct rlimit none = {0, 0};
		if (setrlimit(RLIMIT_NPROC, &none))
			_exit(3);
		forkless_command *c = forkless_command_new("/bin/true");
		forkless_child *child;
		int r = forkless_command_spawn(c, &child);
		if (r != -EAGAIN)
			_exit(4);
		_exit(forkless_error_step(forkless_command_error(c)) == FORKLESS_STEP_CLONE ? 0 : 5);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
}

/* The first start of a process maps a stack; here there is no address space for it. */
static void no_memory_left(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		/* Heap for what the call itself allocates. */
		free(malloc(100000));
		forkless_command *c = forkless_command_new("/bin/true");
		struct rlimit tight = {1, RLIM_INFINITY}, old;
		getrlimit(RLIMIT_AS, &old);
		tight.rlim_max = old.rlim_max;
		if (setrlimit(RLIMIT_AS, &tight))
			_exit(3);
		forkless_child *child;
		int r = forkless_command_spawn(c, &child);
		setrlimit(RLIMIT_AS, &old);
		if (r != -ENOMEM)
			_exit(4);
		if (forkless_error_step(forkless_command_error(c)) != FORKLESS_STEP_STACK)
			_exit(5);
		/* And it is not for ever. */
		_exit(forkless_command_status(c, NULL) == 0 ? 0 : 6);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
}

/* Regression: the library aborted this process. */
static void output_that_does_not_fit(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		struct rlimit room;
		getrlimit(RLIMIT_AS, &room);
		room.rlim_cur = 300 << 20;
		if (setrlimit(RLIMIT_AS, &room))
			_exit(3);
		forkless_command *c = forkless_command_new("head");
		forkless_command_args(c, (const char *const[]){"-c", "900000000", "/dev/zero", NULL});
		forkless_conversation *said = NULL;
		if (forkless_command_communicate(c, NULL, NULL, &said) != -ENOMEM || said)
			_exit(4);
		if (forkless_error_step(forkless_command_error(c)) != FORKLESS_STEP_WAIT)
			_exit(5);
		_exit(waitpid(-1, NULL, 0) < 0 && errno == ECHILD ? 0 : 6);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
}

/* Regression: likewise. libc's functions return with errno. */
static void no_heap_left(void)
{
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		struct rlimit none;
		getrlimit(RLIMIT_AS, &none);
		none.rlim_cur = 1;
		if (setrlimit(RLIMIT_AS, &none))
			_exit(3);
		for (size_t size = 1 << 24; size >= 16; size /= 2)
			while (malloc(size))
				;
		errno = 0;
		if (forkless_popen("/bin/echo hi", "r") || errno != ENOMEM)
			_exit(4);
		errno = 0;
		if (forkless_system("/bin/echo hi") != -1 || errno != ENOMEM)
			_exit(5);
		_exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
}

static void directory_that_vanished(void)
{
	char before[4096];
	CHECK(getcwd(before, sizeof before));
	CHECK(!mkdir("vanishing", 0755) && !chdir("vanishing") && !rmdir("../vanishing"));
	/* The working directory of the caller: no matter to a program with an absolute path. */
	forkless_command *c = forkless_command_new("/bin/true");
	CHECK_INT(forkless_command_status(c, NULL), 0);
	forkless_command_free(c);
	CHECK(!chdir(before));
	/* The child's own. */
	c = forkless_command_new("/bin/true");
	CHECK_INT(forkless_command_current_dir(c, "vanishing"), 0);
	fails(c, -ENOENT, FORKLESS_STEP_CHDIR, "chdir to vanishing: No such file or directory");
}

static void descriptor_mapped_twice(void)
{
	int a[2], b[2];
	CHECK(!pipe2(a, O_CLOEXEC) && !pipe2(b, O_CLOEXEC));
	forkless_command *c = forkless_command_new("/bin/sh");
	const char *args[] = {"-c", "echo five >&5; echo six >&6", NULL};
	forkless_command_args(c, args);
	/* One number twice: the last call counts. One source at two numbers: both have it. */
	CHECK_INT(forkless_command_fd(c, 5, a[1]), 0);
	CHECK_INT(forkless_command_fd(c, 5, b[1]), 0);
	CHECK_INT(forkless_command_fd(c, 6, b[1]), 0);
	int status;
	CHECK_INT(forkless_command_status(c, &status), 0);
	CHECK_INT(status, 0);
	forkless_command_free(c);
	close(a[1]);
	close(b[1]);
	char text[32] = "";
	CHECK_INT(read(a[0], text, sizeof text), 0);
	CHECK_INT(read(b[0], text, sizeof text), 9);
	CHECK(!memcmp(text, "five\nsix\n", 9));
	close(a[0]);
	close(b[0]);
}

static void descriptor_that_is_not_open(void)
{
	forkless_command *c = forkless_command_new("/bin/true");
	CHECK_INT(forkless_command_fd(c, 5, 900), 0);
	forkless_child *child;
	CHECK_INT(forkless_command_spawn(c, &child), -EBADF);
	CHECK_INT(forkless_error_step(forkless_command_error(c)), FORKLESS_STEP_DESCRIPTORS);
	CHECK_INT(forkless_command_fd_take(c, 5, 900), -EBADF);
	CHECK_INT(forkless_command_fd(c, -1, 0), -EBADF);
	CHECK_INT(forkless_command_fd(c, 5, -1), -EBADF);
	forkless_command_free(c);
}

static void deadline_of_zero(void)
{
	forkless_command *c = forkless_command_new("sleep");
	forkless_command_arg(c, "60");
	forkless_communicate *how = forkless_communicate_new();
	CHECK_INT(forkless_communicate_timeout(how, 0), 0);
	forkless_conversation *said;
	int status;
	CHECK_INT(forkless_command_communicate(c, how, &status, &said), 0);
	CHECK_INT(forkless_conversation_end(said), FORKLESS_END_DEADLINE);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	forkless_conversation_free(said);
	forkless_communicate_free(how);

	forkless_child *child;
	CHECK_INT(forkless_command_on_free(c, FORKLESS_KILL), 0);
	CHECK_INT(forkless_command_spawn(c, &child), 0);
	CHECK_INT(forkless_child_wait_timeout(child, 0, &status), -ETIMEDOUT);
	CHECK_INT(forkless_error_step(forkless_child_error(child)), FORKLESS_STEP_WAIT);
	CHECK_INT(forkless_child_try_wait(child, &status), 0);
	forkless_child_free(child);
	forkless_command_free(c);
}

static void child_that_closes_its_pipes_and_lives_on(void)
{
	forkless_command *c = forkless_command_new("/bin/sh");
	const char *args[] = {"-c", "echo before; exec >&- 2>&- <&-; exec sleep 60", NULL};
	forkless_command_args(c, args);
	forkless_communicate *how = forkless_communicate_new();
	size_t size = 0;
	/* A busy machine may come to the deadline before the child has written. */
	for (int limit = 300; size == 0 && limit < 1000000; limit *= 10) {
		forkless_communicate_timeout(how, limit);
		forkless_conversation *said;
		int status;
		CHECK_INT(forkless_command_communicate(c, how, &status, &said), 0);
		CHECK_INT(forkless_conversation_end(said), FORKLESS_END_DEADLINE);
		const void *bytes;
		CHECK_INT(forkless_conversation_output(said, 1, &bytes, &size), 0);
		CHECK(WIFSIGNALED(status));
		forkless_conversation_free(said);
	}
	CHECK_INT(size, 7);
	forkless_communicate_free(how);
	forkless_command_free(c);
}

static void stopped_child(void)
{
	forkless_command *c = forkless_command_new("sleep");
	forkless_command_arg(c, "60");
	forkless_child *child;
	CHECK_INT(forkless_command_spawn(c, &child), 0);
	CHECK_INT(forkless_child_signal(child, SIGSTOP), 0);
	int status = 77;
	CHECK_INT(forkless_child_wait_timeout(child, 50, &status), -ETIMEDOUT);
	CHECK_INT(status, 77);
	CHECK_INT(forkless_child_kill(child), 0);
	CHECK_INT(forkless_child_wait(child, &status), 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	/* Again the same, and a signal to what is gone is no error. */
	CHECK_INT(forkless_child_wait(child, &status), 0);
	CHECK_INT(forkless_child_try_wait(child, &status), 1);
	CHECK_INT(forkless_child_kill(child), 0);
	CHECK_INT(forkless_child_signal_group(child, SIGTERM), -EINVAL);
	forkless_child_free(child);
	forkless_command_free(c);
}

static void child_killed_during_exec(void)
{
	forkless_command *c = forkless_command_new("sleep");
	forkless_command_arg(c, "60");
	for (int i = 0; i < 20; i++) {
		forkless_child *child;
		CHECK_INT(forkless_command_spawn_nonblocking(c, &child), 0);
		CHECK_INT(forkless_child_kill(child), 0);
		int status;
		CHECK_INT(forkless_child_wait(child, &status), 0);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		forkless_child_free(child);
	}
	forkless_command_free(c);
}

static int hook_fails(void *data)
{
	return *(int *)data;
}

static void hook_that_fails(void)
{
	static int error = EDOM;
	forkless_command *c = forkless_command_new("/bin/true");
	CHECK_INT(forkless_command_pre_exec(c, hook_fails, &error), 0);
	fails(c, -EDOM, FORKLESS_STEP_PRE_EXEC, "pre_exec: Numerical argument out of domain");
}

static void options_that_do_not_exist(void)
{
	forkless_command *c = forkless_command_new("/bin/true");
	CHECK_INT(forkless_command_rlimit(c, 99, 0, 0), -EINVAL);
	CHECK_STR(forkless_error_message(forkless_command_error(c)), "resource 99 does not exist");
	CHECK_INT(forkless_command_scheduler(c, 77, 0), -EINVAL);
	CHECK_INT(forkless_command_scheduler(c, 0, 5), -EINVAL);
	CHECK_INT(forkless_command_on_free(c, 9), -EINVAL);
	/* A call that succeeds forgets the failure. */
	CHECK_INT(forkless_command_umask(c, 022), 0);
	CHECK(!forkless_command_error(c));
	CHECK_INT(forkless_error_number(NULL), 0);
	forkless_command_free(c);
}

static void handles_used_up(void)
{
	forkless_command *c = forkless_command_new("/bin/true");
	forkless_prepared *p;
	CHECK_INT(forkless_command_prepare(c, &p), 0);
	CHECK_INT(forkless_command_arg(c, "x"), -EINVAL);
	CHECK_INT(forkless_command_prepare(c, &p), -EINVAL);
	forkless_command_free(c);
	int status;
	CHECK_INT(forkless_prepared_status(p, &status), 0);
	CHECK(!forkless_prepared_error(p));
	CHECK_INT(status, 0);
	forkless_prepared_free(p);

	forkless_pipeline *l = forkless_pipeline_new();
	c = forkless_command_new("/bin/true");
	CHECK_INT(forkless_pipeline_status(l, &status, 1), -EINVAL);
	CHECK_INT(forkless_pipeline_add(l, c), 0);
	CHECK_INT(forkless_pipeline_add(l, c), -EINVAL);
	CHECK_INT(forkless_pipeline_status(l, &status, 1), -EINVAL);
	forkless_command_free(c);
	c = forkless_command_new("/bin/false");
	CHECK_INT(forkless_pipeline_add(l, c), 0);
	forkless_command_free(c);
	int statuses[2];
	CHECK_INT(forkless_pipeline_status(l, statuses, 1), -EINVAL);
	CHECK_INT(forkless_pipeline_status(l, NULL, 0), 2);
	CHECK_INT(forkless_pipeline_status(l, statuses, 2), 2);
	CHECK(statuses[0] == 0 && WEXITSTATUS(statuses[1]) == 1);
	forkless_pipeline_free(l);
}

static void pipeline_whose_last_command_is_missing(void)
{
	forkless_pipeline *l = forkless_pipeline_new();
	const char *programs[] = {"cat", "cat", "/no/such"};
	for (int i = 0; i < 3; i++) {
		forkless_command *c = forkless_command_new(programs[i]);
		CHECK_INT(forkless_pipeline_add(l, c), 0);
		forkless_command_free(c);
	}
	forkless_child *children[3];
	CHECK_INT(forkless_pipeline_spawn(l, children, 3), -ENOENT);
	CHECK_STR(forkless_error_thing(forkless_pipeline_error(l)), "/no/such");
	forkless_pipeline_free(l);
}

static void limits_and_stops(void)
{
	forkless_command *c = forkless_command_new("yes");
	forkless_communicate *how = forkless_communicate_new();
	forkless_communicate_limit(how, 1000);
	CHECK_INT(forkless_communicate_capture(how, 0), -EINVAL);
	CHECK_INT(forkless_communicate_capture(how, -1), -EBADF);
	forkless_conversation *said;
	size_t size;
	CHECK_INT(forkless_command_communicate(c, how, NULL, &said), 0);
	CHECK_INT(forkless_conversation_end(said), FORKLESS_END_LIMIT);
	CHECK_INT(forkless_conversation_output(said, 1, NULL, &size), 0);
	CHECK_INT(size, 1000);
	CHECK_INT(forkless_conversation_output(said, 7, NULL, NULL), -ENOENT);
	forkless_conversation_free(said);
	forkless_communicate_free(how);
	forkless_command_free(c);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
#define CASE(f) {#f, f}
	CASE(empty_program),
	CASE(missing_program),
	CASE(argument_list_too_long),
	CASE(missing_interpreter),
	CASE(directory),
	CASE(script_without_interpreter_line),
	CASE(closed_standard_descriptors),
	CASE(no_descriptors_left),
	CASE(no_processes_left),
	CASE(no_memory_left),
	CASE(output_that_does_not_fit),
	CASE(no_heap_left),
	CASE(directory_that_vanished),
	CASE(descriptor_mapped_twice),
	CASE(descriptor_that_is_not_open),
	CASE(deadline_of_zero),
	CASE(child_that_closes_its_pipes_and_lives_on),
	CASE(stopped_child),
	CASE(child_killed_during_exec),
	CASE(hook_that_fails),
	CASE(options_that_do_not_exist),
	CASE(handles_used_up),
	CASE(pipeline_whose_last_command_is_missing),
	CASE(limits_and_stops),
};

int main(void)
{
	/* Before anything else has mapped a stack. */
	no_memory_left();
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		/* Twice to warm up: the library keeps stacks, and libc its heap. */
		cases[i].run();
		cases[i].run();
		struct census before = take_census();
		cases[i].run();
		same_census(cases[i].name, &before);
	}
	printf("%zu cases\n", sizeof cases / sizeof *cases);
	return 0;
}
