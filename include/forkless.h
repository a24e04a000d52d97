/*
 * forkless.h - start any program, from any process, at the cost of vfork.
 *
 * Link with `pkg-config --cflags --libs forkless`. Linux 5.10 and later, x86-64 and aarch64. C89 (with
 * <stdint.h>), C++98, and all later ones, with or without feature test macros.
 *
 * CONVENTIONS
 *
 * Results. A function that returns int returns 0 or more on success and a negative errno value on failure, unless its
 * comment says otherwise; `forkless_strerror` gives the text. Each handle remembers why its last call failed, with the
 * step and the thing: `forkless_command_error` and its kin. The three functions with libc's signatures
 * (`forkless_system`, `forkless_popen`, `forkless_pclose`) fail as libc's do, with -1 or NULL and errno.
 * Apart from them, and from `forkless_command_new`, no function changes errno.
 *
 * After a failure nothing is left: no child, no descriptor, no memory but the handle, no changed signal mask.
 *
 * NULL. A NULL handle gives -EINVAL, or the harmless answer where the function has no error to return. The `_free`
 * functions ignore it. A NULL string or a NULL place for a result gives -EINVAL, unless the comment allows it.
 * -EINVAL is also what a handle that was used up gives.
 *
 * Ownership. What `_new`, `_spawn`, `_prepare`, `_communicate` and `_output` hand out belongs to the caller and is
 * released by the `_free` of its type. Strings and arrays that go in are copied, unless the comment says otherwise.
 * Strings that come out belong to the handle and last until the next call on it.
 *
 * Threads. Different handles can be used by different threads at once; one handle by one thread at a time, except
 * `forkless_prepared`. No lock is held while a child is started. The functions without a handle may be called from any
 * thread at any time. The environment is read as getenv(3) does: no thread may change it while another starts a child.
 *
 * Signals. Nothing here installs a signal handler or needs one for SIGCHLD. No function is async-signal-safe. A signal
 * that interrupts a wait runs its handler, and the wait goes on.
 *
 * Cancellation. No function is a cancellation point: a thread that is cancelled meanwhile (pthread_cancel) goes on to
 * the end of the call, with its child reaped and its descriptors closed. To end a wait early, another thread kills the
 * child: not through the handle, which is in use, but by pidfd_send_signal(2) to what `forkless_child_pidfd` gave before
 * the wait. Or do not wait: poll that descriptor together with whatever else is to end it.
 *
 * fork. A process forked from one that uses this library may use it, with handles of its own. The children of its
 * parent are not its own; waiting for them gives -ECHILD, and freeing their handles neither kills nor waits.
 *
 * Wait statuses are those of waitpid(2): look at them with WIFEXITED, WEXITSTATUS, WIFSIGNALED and WTERMSIG.
 * Times are in milliseconds.
 *
 * Errors worth acting on, wherever a program is started:
 *   -ENOENT, -EACCES   the program, or the directory, is missing or forbidden; `forkless_error_step` says which
 *   -EAGAIN, -ENOMEM   no more processes or memory: try again later
 *   -EMFILE, -ENFILE   no descriptors left for the pipes
 *   -E2BIG             arguments and environment are too long
 * Any other is a mistake in the call, or a refusal of the kernel to be reported.
 *
 * Versions. `FORKLESS_VERSION` is what a program was compiled with, `forkless_version()` what it runs with. While
 * the number in the soname (libforkless.so.0) is the same, functions and constants are only added. A structure that the
 * caller allocates begins with its size, so that it can grow.
 */
#ifndef FORKLESS_H
#define FORKLESS_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* For sigset_t, which <signal.h> leaves out where a program asks for the C standard alone. */
#include <sys/select.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FORKLESS_VERSION_MAJOR 0
#define FORKLESS_VERSION_MINOR 1
#define FORKLESS_VERSION_PATCH 0
/* Compares with `forkless_version()`. */
#define FORKLESS_VERSION \
	((FORKLESS_VERSION_MAJOR << 16) | (FORKLESS_VERSION_MINOR << 8) | FORKLESS_VERSION_PATCH)

/* The version of the library at run time, as FORKLESS_VERSION. */
unsigned forkless_version(void);

/* The same as text, "MAJOR.MINOR.PATCH". Never freed. */
const char *forkless_version_string(void);

/* ------------------------------------------------------------------------------------------------------------------ */
/* Drop-ins                                                                                                            */
/* ------------------------------------------------------------------------------------------------------------------ */

/*
 * system(3). A line that provably needs no shell is run without one; any other goes to /bin/sh.
 *
 * As there: the children inherit every descriptor that is not close-on-exec, the caller's signal mask and its
 * dispositions. While it waits, SIGINT and SIGQUIT are ignored in the whole process (until the last of the threads that
 * wait is done) and SIGCHLD is blocked in the calling thread, so a SIGCHLD handler of the program's does not take
 * the status away, and runs afterwards. A program that dies of SIGINT or SIGQUIT ends the line, with that signal as its
 * status, since the keyboard sends it to a shell, too.
 *
 * `command`: NULL asks whether there is a shell: not 0 if there is.
 * Returns the wait status; 127 as exit status when the command cannot be executed, or no shell can; -1 with errno when
 * no child could be made (EAGAIN, ENOMEM), and with ECHILD when the status is lost, which takes a program that ignores
 * SIGCHLD or waits for any child in another thread, and a kernel before Linux 6.15.
 *
 * Threads: any number at once. Unlike system(3) not a cancellation point.
 */
int forkless_system(const char *command);

/*
 * popen(3). A line that provably needs no shell is run without one; any other goes to /bin/sh.
 *
 * `mode`: "r" to read what the command writes, "w" to write what it reads; with "e" added ("re", "we") the stream's
 * descriptor is close-on-exec. Without it, it is not, but a child of a later `forkless_popen` does not have it, as POSIX
 * asks.
 *
 * Returns the stream, to be closed by `forkless_pclose` and by nothing else; NULL with errno on failure: EINVAL for the
 * mode, or what pipe2, clone or malloc say. That the command does not exist is no failure here: as with a shell, its
 * message goes to standard error, and its status is 127.
 *
 * Threads: any number at once. Children are made side by side; without "e" the call returns once those that were being
 * made when the stream came into being have their own descriptors, lest they keep its pipe open.
 */
FILE *forkless_popen(const char *command, const char *mode);

/*
 * pclose(3): closes a stream of `forkless_popen` and waits for the command.
 *
 * Returns the wait status; -1 with EINVAL, and the stream untouched, when it is not (or no longer) one of those; -1 with
 * ECHILD when the status is lost (see `forkless_system`).
 */
int forkless_pclose(FILE *stream);

/* ------------------------------------------------------------------------------------------------------------------ */
/* Errors                                                                                                              */
/* ------------------------------------------------------------------------------------------------------------------ */

/* Why a call failed. Belongs to the handle it was asked of, and lasts until the next call on that handle. */
typedef struct forkless_error forkless_error;

/* The step that failed: a system call, or where there is none a part of the plan. */
enum forkless_step {
	FORKLESS_STEP_NONE = 0,          /* not a step of a start: a NULL argument, a signal that cannot be sent */
	FORKLESS_STEP_COMMAND = 1,       /* the command itself cannot be carried out */
	FORKLESS_STEP_PIPE = 2,          /* making a pipe */
	FORKLESS_STEP_STACK = 3,         /* memory for the child's stack */
	FORKLESS_STEP_CLONE = 4,         /* creating the process */
	FORKLESS_STEP_DESCRIPTORS = 5,   /* bringing the child's descriptors in place */
	FORKLESS_STEP_SIGNALS = 6,       /* signal dispositions */
	FORKLESS_STEP_SETSID = 7,        /* setsid(2) */
	FORKLESS_STEP_PROCESS_GROUP = 8, /* setpgid(2) */
	FORKLESS_STEP_TERMINAL = 9,      /* the controlling terminal or its foreground group */
	FORKLESS_STEP_CGROUP = 10,       /* joining a cgroup */
	FORKLESS_STEP_RLIMIT = 11,       /* setrlimit(2) */
	FORKLESS_STEP_NICE = 12,         /* setpriority(2) */
	FORKLESS_STEP_SCHEDULER = 13,    /* sched_setscheduler(2) */
	FORKLESS_STEP_AFFINITY = 14,     /* sched_setaffinity(2) */
	FORKLESS_STEP_CHROOT = 15,       /* chroot(2) */
	FORKLESS_STEP_GROUPS = 16,       /* setgroups(2) */
	FORKLESS_STEP_GID = 17,          /* setgid(2) */
	FORKLESS_STEP_UID = 18,          /* setuid(2) */
	FORKLESS_STEP_CHDIR = 19,        /* chdir(2) */
	FORKLESS_STEP_NO_NEW_PRIVS = 20, /* prctl(PR_SET_NO_NEW_PRIVS) */
	FORKLESS_STEP_DEATH_SIGNAL = 21, /* prctl(PR_SET_PDEATHSIG) */
	FORKLESS_STEP_PRE_EXEC = 22,     /* the caller's own function */
	FORKLESS_STEP_EXEC = 23,         /* execve(2) */
	FORKLESS_STEP_WAIT = 24,         /* waiting for the child, or talking to it */
	FORKLESS_STEP_OTHER = 99         /* a step younger than the program; it has a name all the same */
};

/* The negative errno value; 0 for NULL. */
int forkless_error_number(const forkless_error *error);

/* One of `enum forkless_step`; FORKLESS_STEP_NONE for NULL. */
int forkless_error_step(const forkless_error *error);

/* The step as one word, as "exec" or "chdir"; "" for FORKLESS_STEP_NONE and for NULL. */
const char *forkless_error_step_name(const forkless_error *error);

/* What the step was about: a path, a number, an argument. NULL where there is nothing to name. */
const char *forkless_error_thing(const forkless_error *error);

/* All of it in one line, as "chdir to /x: No such file or directory". "no error" for NULL. */
const char *forkless_error_message(const forkless_error *error);

/* The text of an errno value of either sign. Never freed, never overwritten: unlike strerror(3) safe in every thread. */
const char *forkless_strerror(int error);

/* ------------------------------------------------------------------------------------------------------------------ */
/* Commands                                                                                                            */
/* ------------------------------------------------------------------------------------------------------------------ */

/*
 * A program to start, and how. Nothing is opened or checked before a start, so most mistakes show there.
 * None of the options leaves the fast path, and there is no fork to fall back to.
 */
typedef struct forkless_command forkless_command;
/* A running child, held by a pidfd: signals and waits reach this child and no other, as long as the program leaves the
 * descriptor alone. One that closes all of its descriptors frees its handles before. */
typedef struct forkless_child forkless_child;
/* A command laid out once, for many starts. */
typedef struct forkless_prepared forkless_prepared;

/*
 * A command that runs `program` without arguments. A name without '/' is searched in the PATH that the child will have.
 *
 * The child gets descriptors 0, 1 and 2 and those named by the functions below, and no others, close-on-exec or not;
 * `forkless_command_inherit_descriptors` changes that. Of 0, 1 and 2 what no function names is as it is in the caller:
 * closed in the program if it is closed or close-on-exec there. Signals are as posix_spawn(3) hands them on: those that the
 * calling thread blocks are blocked, those that the process ignores are ignored.
 *
 * Returns NULL with EINVAL when `program` is NULL.
 */
forkless_command *forkless_command_new(const char *program);

/* Releases a command. Its children live on. */
void forkless_command_free(forkless_command *command);

/* Why the last call on this command failed; NULL if it did not. */
const forkless_error *forkless_command_error(const forkless_command *command);

/* Adds an argument. */
int forkless_command_arg(forkless_command *command, const char *arg);

/* Adds the arguments of a vector that ends with NULL. They come after argv[0], which is not among them. */
int forkless_command_args(forkless_command *command, const char *const *args);

/* Sets argv[0], what the program sees as its own name. The file executed stays the same. */
int forkless_command_arg0(forkless_command *command, const char *arg0);

/* Sets an environment variable of the child. The rest is the environment of the caller at the moment of the start. */
int forkless_command_env(forkless_command *command, const char *name, const char *value);

/* Removes an environment variable. */
int forkless_command_env_remove(forkless_command *command, const char *name);

/* Starts with no variable at all, and forgets those set so far. */
int forkless_command_env_clear(forkless_command *command);

/* The working directory, entered with the child's own credentials. A relative program is looked up from there. */
int forkless_command_current_dir(forkless_command *command, const char *dir);

/*
 * Descriptors. `number` is one of the child's; numbers of parent and child may overlap in any way, swaps and cycles
 * included. The last call for a number counts. -EBADF for a negative one.
 */

/* Connects `number` to `from`, a descriptor of the caller's that it keeps, and keeps open until the last start: -EBADF then
 * if it is not. */
int forkless_command_fd(forkless_command *command, int number, int from);

/* Likewise, and on success `from` belongs to the command, which closes it when it is freed. -EBADF if it is not open. */
int forkless_command_fd_take(forkless_command *command, int number, int from);

/* Connects `number` to the same number of the caller: the default for 0, 1 and 2, which stay as they are, close-on-exec
 * included. A higher one is not closed by exec; -EBADF at the start if it is not open. */
int forkless_command_fd_inherit(forkless_command *command, int number);

/* Connects `number` to /dev/null. */
int forkless_command_fd_null(forkless_command *command, int number);

/* Connects `number` to a new pipe, which the child reads if `number` is 0 and writes otherwise. The caller's end is got
 * by `forkless_child_take_pipe`. */
int forkless_command_fd_pipe(forkless_command *command, int number);

/* Connects `number` to a new pipe that the child reads, whatever the number. */
int forkless_command_fd_pipe_input(forkless_command *command, int number);

/* Closes `number` in the child. Most programs do not expect that of 0, 1 and 2. */
int forkless_command_fd_close(forkless_command *command, int number);

/* Makes `number` the same as the child's `other`: number 2 and other 1 is the shell's 2>&1. */
int forkless_command_fd_same_as(forkless_command *command, int number, int other);

/* Not 0: the child gets every descriptor of the caller that is not close-on-exec, at a cost that grows with their
 * number. Default 0. */
int forkless_command_inherit_descriptors(forkless_command *command, int yes);

/* Not 0: a file that the kernel refuses with ENOEXEC is run by /bin/sh, as execvp(3) does. Default 1. */
int forkless_command_scripts_without_interpreter(forkless_command *command, int yes);

/* The user, as setuid(2) by the child. When root starts a program as somebody else and `forkless_command_groups` is not
 * used, the supplementary groups are emptied, unless that is refused (EPERM, as in some user namespaces). */
int forkless_command_uid(forkless_command *command, uid_t uid);

/* The group, as setgid(2) by the child. */
int forkless_command_gid(forkless_command *command, gid_t gid);

/* The supplementary groups; `count` of them, 0 for none. -EPERM at the start without the right to set them. */
int forkless_command_groups(forkless_command *command, const gid_t *groups, size_t count);

/* The process group; 0 for a new one, which `forkless_child_signal_group` then reaches. */
int forkless_command_process_group(forkless_command *command, pid_t pgid);

/* Not 0: a new session, without a controlling terminal. */
int forkless_command_setsid(forkless_command *command, int yes);

/* Makes the terminal at this number of the child the controlling one of its new session; implies setsid. */
int forkless_command_controlling_terminal(forkless_command *command, int number);

/* Makes the child's process group the foreground group of the terminal at this number of the child. */
int forkless_command_foreground(forkless_command *command, int number);

/* The file mode creation mask, of which umask(2) takes the permission bits (0777). */
int forkless_command_umask(forkless_command *command, mode_t mask);

/* A resource limit, RLIMIT_* of <sys/resource.h>, in the resource's own unit; UINT64_MAX for none. -EINVAL for a
 * resource that does not exist. */
int forkless_command_rlimit(forkless_command *command, int resource, uint64_t soft, uint64_t hard);

/* The nice value, -20 to 19; absolute, and brought into that range. -EACCES at the start for one below the caller's without
 * the right to it. */
int forkless_command_nice(forkless_command *command, int value);

/* The scheduling policy, SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH or SCHED_IDLE, and its priority: 1 to 99 for FIFO
 * and RR, else 0. -EINVAL for another policy. */
int forkless_command_scheduler(forkless_command *command, int policy, int priority);

/* The CPUs it may run on, by number; `count` of them. -EINVAL at the start if none of them is there. */
int forkless_command_affinity(forkless_command *command, const unsigned *cpus, size_t count);

/* A signal the child gets when this process (not merely the calling thread) dies; 0 for none, -EINVAL at the start for a
 * number that is no signal. A child that the first thread starts gets it also when that thread ends by pthread_exit and
 * others go on. A child that execs a program with more privileges loses it (prctl(2)). */
int forkless_command_parent_death_signal(forkless_command *command, int signal);

/* Not 0: neither the program nor what it starts can gain privileges by exec. */
int forkless_command_no_new_privs(forkless_command *command, int yes);

/* The root directory, entered before credentials change. */
int forkless_command_chroot(forkless_command *command, const char *dir);

/* The directory of a cgroup (version 2) that the child is born in. Every start with one suspends the caller until the program
 * runs: a cgroup that is out of memory would otherwise take this process along. */
int forkless_command_cgroup(forkless_command *command, const char *dir);

/* The signals blocked in the program, instead of those that the calling thread blocks. The set is copied. */
int forkless_command_signal_mask(forkless_command *command, const sigset_t *blocked);

/* Not 0, the default: SIGPIPE stays as it is. 0: the program starts with SIGPIPE at its default action, though this process
 * ignores it. Other ignored signals stay ignored either way. Forgets a mask set by `forkless_command_signal_mask`. */
int forkless_command_inherit_signals(forkless_command *command, int yes);

/* Signals the program starts with at their default action; adds to those of earlier calls. A full set will do. */
int forkless_command_default_signals(forkless_command *command, const sigset_t *signals);

/* Signals the program starts with ignored; adds to those of earlier calls. -EINVAL at the start if SIGKILL or SIGSTOP is
 * among them. */
int forkless_command_ignore_signals(forkless_command *command, const sigset_t *signals);

/* What `forkless_child_free` does to a child that still runs. No choice leaves a zombie. */
enum forkless_on_free {
	FORKLESS_DETACH = 0, /* it lives on, and is reaped when it ends */
	FORKLESS_KILL = 1,   /* it gets SIGKILL and is waited for */
	FORKLESS_WAIT = 2    /* it is waited for */
};

/* Sets it for the children of this command; FORKLESS_DETACH by default. */
int forkless_command_on_free(forkless_command *command, int on_free);

/*
 * A function to run in the child, as the last thing before exec. Returns 0, or an errno value that fails the start.
 *
 * It runs IN THE MEMORY OF THE CALLER, on a stack of 2 MiB, while the calling thread is suspended and others run
 * on; it has its own pid and descriptors. So it may make system calls, and must not take a lock, allocate, change memory
 * that others rely on, call setuid and its kin through libc (which would signal the other threads), longjmp out, or throw.
 * `data` is handed on as it is. With a death signal set from another thread than the first it runs on a thread of the
 * library's, and finds that thread's thread-locals.
 */
int forkless_command_pre_exec(forkless_command *command, int (*function)(void *data), void *data);

/*
 * Starts the program and returns once it runs. The command can be started again.
 * On success `*child` is the handle; on failure it is untouched, and `forkless_command_error` says which step failed.
 */
int forkless_command_spawn(forkless_command *command, forkless_child **child);

/*
 * Likewise, but returns as soon as the child process exists. Whether it became the program shows at the first wait,
 * which then fails with the error that `forkless_command_spawn` would have given. Blocks as that does where the command
 * changes credentials, has a cgroup or has a function to run in the child.
 */
int forkless_command_spawn_nonblocking(forkless_command *command, forkless_child **child);

/* Runs the program and waits for it. `status` may be NULL. */
int forkless_command_status(forkless_command *command, int *status);

/* Becomes the program: this process is replaced. Returns only to say why not; what was set before the failing step
 * stays set. */
int forkless_command_exec(forkless_command *command);

/*
 * Lays everything out once: arguments, environment and search path as they are now. The command is used up, whatever the
 * result, and can only be asked for its error and freed. The program need not exist yet.
 */
int forkless_command_prepare(forkless_command *command, forkless_prepared **prepared);

/* Releases a prepared command. Its children live on. No other thread may be using it. */
void forkless_prepared_free(forkless_prepared *prepared);

/* Why the calling thread's last call on a prepared command failed; NULL if it did not. Lasts until that thread's next
 * one. */
const forkless_error *forkless_prepared_error(const forkless_prepared *prepared);

/* As `forkless_command_spawn`; from any number of threads at once. */
int forkless_prepared_spawn(const forkless_prepared *prepared, forkless_child **child);

/* As `forkless_command_spawn_nonblocking`; from any number of threads at once. */
int forkless_prepared_spawn_nonblocking(const forkless_prepared *prepared, forkless_child **child);

/* As `forkless_command_status`; from any number of threads at once. */
int forkless_prepared_status(const forkless_prepared *prepared, int *status);

/* ------------------------------------------------------------------------------------------------------------------ */
/* Children                                                                                                            */
/* ------------------------------------------------------------------------------------------------------------------ */

/* Releases the handle; see `enum forkless_on_free` for what becomes of a child that still runs. Closes the pipes not
 * taken. */
void forkless_child_free(forkless_child *child);

/* Why the last call on this child failed; NULL if it did not. */
const forkless_error *forkless_child_error(const forkless_child *child);

/* The process id. A number alone does not keep its meaning once the child has been waited for: prefer the functions
 * here. */
pid_t forkless_child_pid(forkless_child *child);

/* The pidfd, close-on-exec, readable once the child has ended: for poll and epoll. It stays the handle's: do not close
 * it. -ENOTSUP where the kernel or a filter refuses pidfds, and where no descriptor was left at the start. */
int forkless_child_pidfd(forkless_child *child);

/* The caller's end of the pipe at this number of the child, close-on-exec; it belongs to the caller from then on, who
 * closes it. -ENOENT if there is none, or it was taken. */
int forkless_child_take_pipe(forkless_child *child, int number);

/* What freeing this handle does; see `enum forkless_on_free`. */
int forkless_child_on_free(forkless_child *child, int on_free);

/*
 * Waits for the child to end. Its standard input, if that is a pipe not taken, is closed first, so that it sees the end.
 * Its output is not read: a child that fills a pipe which nobody reads does not end (`forkless_child_output` reads).
 * Can be called again, and gives the same status. `status` may be NULL.
 *
 * -ECHILD when the child is gone and its status lost: the process ignores SIGCHLD, or another part of it waited for any
 * child, and the kernel is older than Linux 6.15. After a non-blocking start: the error of the start.
 */
int forkless_child_wait(forkless_child *child, int *status);

/* 1 and the status if the child has ended, else 0, at once. Errors as `forkless_child_wait`. */
int forkless_child_try_wait(forkless_child *child, int *status);

/* Waits for at most this many milliseconds; for ever if negative. -ETIMEDOUT when the time is over first: the child goes
 * on. Else as `forkless_child_wait`. */
int forkless_child_wait_timeout(forkless_child *child, int64_t milliseconds, int *status);

/* Sends SIGKILL. No error if the child has ended already. */
int forkless_child_kill(forkless_child *child);

/* Sends a signal to the child and to no other process, ever. No error if it has ended already. -EINVAL for a number that
 * is no signal, -EPERM for a child that changed its user. */
int forkless_child_signal(forkless_child *child, int signal);

/* Sends a signal to the whole process group that the child leads. -EINVAL if it was not started with process group 0 or
 * setsid; -ESRCH if nobody of the group is left. */
int forkless_child_signal_group(forkless_child *child, int signal);

/* SIGKILL to the whole group; see `forkless_child_signal_group`. */
int forkless_child_kill_group(forkless_child *child);

/* ------------------------------------------------------------------------------------------------------------------ */
/* Conversations                                                                                                       */
/* ------------------------------------------------------------------------------------------------------------------ */

/* How to talk to a child; can be used for several. */
typedef struct forkless_communicate forkless_communicate;
/* What a child wrote, and how the conversation ended. */
typedef struct forkless_conversation forkless_conversation;

/* No input, no limit, no time limit. */
forkless_communicate *forkless_communicate_new(void);

/* Releases it. */
void forkless_communicate_free(forkless_communicate *how);

/* Bytes for the child's standard input, which is closed after them. They are not copied: they stay the caller's, and in
 * place until the last conversation with them has ended. A child that does not read them all is no error. */
int forkless_communicate_input(forkless_communicate *how, const void *bytes, size_t size);

/* Not 0: standard error goes where standard output goes, in the order written. */
int forkless_communicate_merged(forkless_communicate *how, int yes);

/* Captures what the child writes to this number, too. */
int forkless_communicate_capture(forkless_communicate *how, int number);

/* The most bytes to keep of each stream. A child that writes more is killed (FORKLESS_END_LIMIT). */
int forkless_communicate_limit(forkless_communicate *how, size_t bytes);

/* The most milliseconds for all of it; none if negative. Then the child is killed (FORKLESS_END_DEADLINE), and the call
 * returns, whoever holds the pipes. */
int forkless_communicate_timeout(forkless_communicate *how, int64_t milliseconds);

/* For how many milliseconds to go on reading after the child has ended, while a process that it left behind keeps a pipe
 * open (FORKLESS_END_LINGERED); for ever if negative, which is the default. */
int forkless_communicate_linger(forkless_communicate *how, int64_t milliseconds);

/* Not 0: when the child is killed, so is its process group, which it is made to lead. */
int forkless_communicate_kill_group(forkless_communicate *how, int yes);

/*
 * A function that gets each piece as it arrives, instead of it being collected. `number` is the child's. Not 0 ends the
 * conversation and kills the child (FORKLESS_END_STOPPED). Called in the thread that talks; must not longjmp or throw.
 * NULL for none.
 */
int forkless_communicate_on_chunk(forkless_communicate *how,
                                  int (*function)(void *data, int number, const void *bytes, size_t size),
                                  void *data);

/* Likewise with each line, without its newline; a last line without one counts. `forkless_communicate_limit` is then the
 * longest line: no part of a longer one is handed over. The bytes are not followed by a NUL. There is no call after one
 * that asked to stop. */
int forkless_communicate_on_line(forkless_communicate *how,
                                 int (*function)(void *data, int number, const void *bytes, size_t size), void *data);

/*
 * Starts the command, talks to it until both are done, and waits for it. Standard input is empty, output and error are
 * captured, unless the command says otherwise. `how`, `status` and `conversation` may be NULL.
 *
 * A time limit, a limit and a stop are no failures: see `forkless_conversation_end`.
 */
int forkless_command_communicate(forkless_command *command, const forkless_communicate *how, int *status,
                                 forkless_conversation **conversation);

/* Closes the standard input of a running child, collects standard output and error as far as they are pipes not taken,
 * and waits. The child's handle is used up, and can only be freed. `status` may be NULL. */
int forkless_child_output(forkless_child *child, int *status, forkless_conversation **conversation);

/* How a conversation ended. */
enum forkless_end {
	FORKLESS_END_COMPLETE = 0, /* the child ended, and every pipe with it */
	FORKLESS_END_LINGERED = 1, /* the child ended, but somebody kept a pipe open */
	FORKLESS_END_DEADLINE = 2, /* the time was over; the child was killed if it still ran */
	FORKLESS_END_LIMIT = 3,    /* a stream was longer than its limit; the child was killed */
	FORKLESS_END_STOPPED = 4,  /* the caller's function asked to stop; the child was killed */
	FORKLESS_END_OTHER = 99    /* a way younger than the program */
};

/* One of `enum forkless_end`; -EINVAL for NULL. */
int forkless_conversation_end(const forkless_conversation *conversation);

/*
 * What the child wrote to `number`. The bytes belong to the conversation; a NUL that is not counted follows them.
 * `bytes` and `size` may be NULL. -ENOENT for a number that was not captured.
 */
int forkless_conversation_output(const forkless_conversation *conversation, int number, const void **bytes,
                                 size_t *size);

/* Releases what was said. */
void forkless_conversation_free(forkless_conversation *conversation);

/* ------------------------------------------------------------------------------------------------------------------ */
/* Pipelines                                                                                                           */
/* ------------------------------------------------------------------------------------------------------------------ */

/* Commands, each one's output the next one's input. */
typedef struct forkless_pipeline forkless_pipeline;

/* An empty one; it takes two commands at least to start it. */
forkless_pipeline *forkless_pipeline_new(void);

/* Releases it and its commands. Its children live on. */
void forkless_pipeline_free(forkless_pipeline *pipeline);

/* Why the last call on this pipeline failed; NULL if it did not. */
const forkless_error *forkless_pipeline_error(const forkless_pipeline *pipeline);

/* Adds a command at the end. The command is used up, and can only be freed. */
int forkless_pipeline_add(forkless_pipeline *pipeline, forkless_command *command);

/*
 * Starts every command. `children` has room for `room` handles, at least one for each command, or -EINVAL.
 * Returns the number of children. If one cannot be started, those before it are killed and waited for.
 */
int forkless_pipeline_spawn(forkless_pipeline *pipeline, forkless_child **children, size_t room);

/* Runs it. `statuses` gets each command's wait status, and has room for `room` of them, or is NULL. Returns their
 * number. */
int forkless_pipeline_status(forkless_pipeline *pipeline, int *statuses, size_t room);

/* Runs it and collects the last command's output and error; the status is the last command's. `status` may be NULL. */
int forkless_pipeline_output(forkless_pipeline *pipeline, int *status, forkless_conversation **conversation);

/* ------------------------------------------------------------------------------------------------------------------ */
/* The kernel                                                                                                          */
/* ------------------------------------------------------------------------------------------------------------------ */

/* One facility of the kernel that the library likes to use. The strings are never freed. */
struct forkless_facility {
	size_t size;          /* set by the caller: sizeof (struct forkless_facility) */
	const char *name;     /* the kernel's name for it */
	int state;            /* 0 if it works here, the errno value that refused it, or -1 if not tried yet */
	const char *used_for; /* what for */
	const char *fallback; /* what is done without it */
};

/* Fills in the facility number `index`, counting from 0. -ENOENT past the last one. */
int forkless_facility(size_t index, struct forkless_facility *facility);

#ifdef __cplusplus
}
#endif

#endif
