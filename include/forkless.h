/*
 * forkless.h - start any program, from any process, at the cost of vfork.
 *
 * Link with `pkg-config --cflags --libs forkless`. The library needs Linux 5.10 or later, on x86-64
 * or aarch64. The header accepts C89 (with <stdint.h>), C++98 and all later dialects, with or
 * without feature test macros.
 *
 * The shortest use:
 *
 *     #include <forkless.h>
 *
 *     int main(void)
 *     {
 *         int status = -1;
 *         forkless_command *command = forkless_command_new("ls");
 *         forkless_command_arg(command, "-l");
 *         if (forkless_command_status(command, &status) < 0)
 *             puts(forkless_error_message(forkless_command_error(command)));
 *         forkless_command_free(command);
 *         return status != 0;
 *     }
 *
 * CONVENTIONS
 *
 * Results. A function that returns int returns 0 or more on success, and a negative errno value on
 * failure, unless its comment says otherwise. `forkless_strerror` gives the text. Each handle
 * remembers why its last call failed, with the step and the thing: see `forkless_command_error` and
 * its kin. The three functions with libc's signatures (`forkless_system`, `forkless_popen`,
 * `forkless_pclose`) fail as libc's do, with -1 or NULL and errno. No other function changes errno,
 * except `forkless_command_new`.
 *
 * After a failure nothing is left: no child, no descriptor, no memory but the handle, no changed
 * signal mask.
 *
 * NULL. A NULL handle gives -EINVAL, or the harmless answer where the function has no error to
 * return. The `_free` functions ignore it. A NULL string, or NULL as the place of a result, gives
 * -EINVAL, unless the comment allows it. A handle that was used up gives -EINVAL, too.
 *
 * Ownership. The caller owns the handles from `_new`, `_spawn`, `_prepare`, `_communicate` and
 * `_output`, and releases each by the `_free` of its type. The library copies strings and arrays
 * that it is given, unless the comment says otherwise. Strings that it returns belong to the handle
 * and last until the next call on it.
 *
 * Threads. Different threads can use different handles at once. One handle can be used by one
 * thread at a time, except `forkless_prepared`. No lock is held while a child is started. Any
 * thread may call the functions without a handle at any time. The environment is read as getenv(3)
 * does: no thread may change it while another starts a child.
 *
 * Signals. The library installs no signal handler, and needs none for SIGCHLD. No function is
 * async-signal-safe. If a signal interrupts a wait, its handler runs and the wait goes on.
 *
 * Cancellation. No function is a cancellation point. A thread that is cancelled during a call
 * (pthread_cancel) finishes the call, with its child reaped and its descriptors closed. To end a
 * wait early, another thread kills the child. It cannot do so through the handle, which is in use.
 * It calls pidfd_send_signal(2) on the pidfd that `forkless_child_pidfd` gave before the wait.
 * Alternatively, do not wait: poll the pidfd together with the descriptors of your event loop.
 *
 * fork. A process forked from one that uses this library may use it, with handles of its own. The
 * children of its parent are not its own. Waiting for them gives -ECHILD. Freeing their handles
 * neither kills nor waits.
 *
 * Wait statuses are those of waitpid(2): examine them with WIFEXITED, WEXITSTATUS, WIFSIGNALED and
 * WTERMSIG. Times are in milliseconds.
 *
 * Errors worth acting on, wherever a program is started:
 *   -ENOENT, -EACCES   the program, or the directory, is missing or forbidden;
 *                      `forkless_error_step` says which
 *   -EAGAIN, -ENOMEM   no more processes or memory: try again later
 *   -EMFILE, -ENFILE   no descriptors left for the pipes
 *   -E2BIG             arguments and environment are too long
 * Any other error is a mistake in the call, or a refusal of the kernel that should be reported.
 *
 * Memory. Three needs for memory have an error, ENOMEM: a child's stack, the output that a
 * conversation keeps, and whatever `forkless_system` and `forkless_popen` begin with. Where another
 * allocation fails, small ones all, the library aborts the program, as Rust programs do.
 *
 * Versions. A program is compiled with version `FORKLESS_VERSION`, and runs with
 * `forkless_version()`. While the number in the soname (libforkless.so.0) is the same, functions
 * and constants are only added. A structure that the caller allocates begins with its size, so that
 * it can grow.
 */
#ifndef FORKLESS_H
#define FORKLESS_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* For sigset_t. <signal.h> leaves it out if a program asks for the C standard alone. */
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

/* ---------------------------------------------------------------------------------------------- */
/* Drop-ins */
/* ---------------------------------------------------------------------------------------------- */

/*
 * system(3). A line that provably needs no shell runs without one. Any other line goes to /bin/sh.
 *
 * As with system(3), the children inherit every descriptor that is not close-on-exec, the caller's
 * signal mask and its dispositions. During the wait, SIGINT and SIGQUIT are ignored in the whole
 * process, until the last waiting thread is done. SIGCHLD is blocked in the calling thread, so a
 * SIGCHLD handler of the program does not take the status away, and runs afterwards. If a program
 * of the line dies of SIGINT or SIGQUIT, the line ends with that signal as its status: the keyboard
 * sends it to a shell, too.
 *
 * `command`: NULL asks whether there is a shell. The answer is not 0 if there is.
 *
 * Returns the wait status. Its exit status is 127 if the command, or the shell that it needs,
 * cannot be executed. Returns -1 with errno if no child could be made (EAGAIN, ENOMEM). Returns -1
 * with ECHILD if the status is lost. That takes a kernel before Linux 6.15, and a program that
 * ignores SIGCHLD or waits for any child in another thread.
 *
 * Threads: any number at once. Unlike system(3), not a cancellation point.
 */
int forkless_system(const char *command);

/*
 * popen(3). A line that provably needs no shell runs without one. Any other line goes to /bin/sh.
 *
 * `mode`: with "r" the caller reads the command's output, with "w" it writes the command's input.
 * With "e" added ("re", "we") the stream's descriptor is close-on-exec. Without "e" it is not, but
 * a child of a later `forkless_popen` does not have it, as POSIX asks.
 *
 * Returns the stream. Close it by `forkless_pclose` and by nothing else. Returns NULL with errno on
 * failure: EINVAL for the mode, ENOENT or EACCES if the line needs a shell and /bin/sh cannot be
 * executed, or the error of pipe2, clone or malloc. A command that does not exist is no failure
 * here: as with a shell, its message goes to standard error, and its status is 127.
 *
 * Threads: any number at once. Children are made side by side. Without "e", the call waits for the
 * starts that were under way when its stream was made, until those children have their own
 * descriptors. Otherwise they would keep the stream's pipe open.
 *
 * Descriptors: an open stream holds its own, a pidfd for each program of the line, and a copy of
 * standard error if the line runs without a shell. libc's holds one.
 */
FILE *forkless_popen(const char *command, const char *mode);

/*
 * pclose(3): closes a stream of `forkless_popen` and waits for the command.
 *
 * Returns the wait status. Returns -1 with EINVAL, and leaves the stream untouched, if `stream` is
 * not an open stream of `forkless_popen`. Returns -1 with ECHILD if the status is lost (see
 * `forkless_system`).
 */
int forkless_pclose(FILE *stream);

/* ---------------------------------------------------------------------------------------------- */
/* Errors */
/* ---------------------------------------------------------------------------------------------- */

/* Why a call failed. It belongs to the handle that gave it, and lasts until the next call on that
 * handle. */
typedef struct forkless_error forkless_error;

/* The step that failed: a system call or, if there is none, a part of the plan. */
enum forkless_step {
	/* not a start: a NULL argument, a signal that cannot be sent */
	FORKLESS_STEP_NONE = 0,
	FORKLESS_STEP_COMMAND = 1,       /* the command itself cannot be carried out */
	FORKLESS_STEP_PIPE = 2,          /* making a pipe */
	FORKLESS_STEP_STACK = 3,         /* memory for the child's stack */
	FORKLESS_STEP_CLONE = 4,         /* creating the process */
	FORKLESS_STEP_DESCRIPTORS = 5,   /* putting the child's descriptors in place */
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
	/* a step added after the program was compiled; it has a name */
	FORKLESS_STEP_OTHER = 99
};

/* The negative errno value; 0 for NULL. */
int forkless_error_number(const forkless_error *error);

/* One of `enum forkless_step`; FORKLESS_STEP_NONE for NULL. */
int forkless_error_step(const forkless_error *error);

/* The step as one word, such as "exec" or "chdir". "" for FORKLESS_STEP_NONE and for NULL. */
const char *forkless_error_step_name(const forkless_error *error);

/* The thing that the step failed on: a path, a number, an argument. NULL if there is none. */
const char *forkless_error_thing(const forkless_error *error);

/* The whole error in one line, such as "chdir to /x: No such file or directory". "no error" for
 * NULL. */
const char *forkless_error_message(const forkless_error *error);

/* The text of an errno value of either sign. It is never freed and never overwritten: unlike
 * strerror(3), the function is safe in every thread. */
const char *forkless_strerror(int error);

/* ---------------------------------------------------------------------------------------------- */
/* Commands */
/* ---------------------------------------------------------------------------------------------- */

/*
 * A program to start, and how. Nothing is opened or checked before a start, so most mistakes show
 * there. No option leaves the fast path, and no start falls back to fork.
 */
typedef struct forkless_command forkless_command;
/* A running child, held by a pidfd. Signals and waits reach this child and no other, as long as the
 * program leaves the descriptor alone. A program that closes all of its descriptors must free its
 * handles first.
 *
 * If there is no pidfd (see `forkless_child_pidfd`), a timer on the child's clock tells whether the
 * child has been reaped, and is asked before each use of its number. Without that timer only the
 * number is left. If other code of the program then reaps the child, the number can become another
 * child's, and signals and waits reach that one. It takes a filter that refuses timer_create, or a
 * user at RLIMIT_SIGPENDING. */
typedef struct forkless_child forkless_child;
/* A command after `forkless_command_prepare`, for many starts. */
typedef struct forkless_prepared forkless_prepared;

/*
 * A command that runs `program` without arguments. A name without '/' is searched in the PATH that
 * the child will have, as by execvp(3). A directory there that is too long is passed over. (At such
 * a directory glibc 2.36 ends its search, or takes the working directory instead.)
 *
 * The child gets descriptors 0, 1 and 2 and those named by the functions below, and no others,
 * close-on-exec or not. `forkless_command_inherit_descriptors` changes that. If no function names
 * 0, 1 or 2, the child has it as the caller has it. It is closed in the program if it is closed or
 * close-on-exec in the caller. Signals are inherited as with posix_spawn(3): those that the calling
 * thread blocks are blocked, those that the process ignores are ignored.
 *
 * Returns NULL with EINVAL if `program` is NULL.
 */
forkless_command *forkless_command_new(const char *program);

/* Releases a command. Its children live on. */
void forkless_command_free(forkless_command *command);

/* Why the last call on this command failed; NULL if it did not. */
const forkless_error *forkless_command_error(const forkless_command *command);

/* Adds an argument. */
int forkless_command_arg(forkless_command *command, const char *arg);

/* Adds the arguments of a vector that ends with NULL. They follow argv[0]; the vector does not
 * contain argv[0]. */
int forkless_command_args(forkless_command *command, const char *const *args);

/* Sets argv[0], the program's own name as it sees it. The file executed stays the same. */
int forkless_command_arg0(forkless_command *command, const char *arg0);

/* Sets an environment variable of the child. Other variables have the caller's values at the moment
 * of the start. */
int forkless_command_env(forkless_command *command, const char *name, const char *value);

/* Removes an environment variable. */
int forkless_command_env_remove(forkless_command *command, const char *name);

/* Starts with no variable at all, and forgets the variables set so far. */
int forkless_command_env_clear(forkless_command *command);

/* The working directory, entered with the child's own credentials. A relative program is searched
 * from there. */
int forkless_command_current_dir(forkless_command *command, const char *dir);

/*
 * Descriptors. `number` is a number of the child. Numbers of parent and child may overlap in any
 * way, swaps and cycles included. The last call for a number counts. -EBADF for a negative number.
 */

/* Connects `number` to `from`, a descriptor that stays the caller's. The caller keeps it open until
 * the last start; a start gives -EBADF if it is not open. */
int forkless_command_fd(forkless_command *command, int number, int from);

/* Like `forkless_command_fd`, but on success `from` belongs to the command, which closes it when it
 * is freed, and not before. Until then it can be connected to other numbers, too; a second call
 * with the same `from` changes nothing in its ownership. A prepared command or a pipeline takes it
 * over with the command. -EBADF if it is not open. */
int forkless_command_fd_take(forkless_command *command, int number, int from);

/* Connects `number` to the same number of the caller. This is the default for 0, 1 and 2, which
 * stay as they are, close-on-exec included. Exec does not close a higher number. -EBADF at the
 * start if a higher number is not open. */
int forkless_command_fd_inherit(forkless_command *command, int number);

/* Connects `number` to /dev/null. */
int forkless_command_fd_null(forkless_command *command, int number);

/* Connects `number` to a new pipe, which the child reads if `number` is 0 and writes otherwise.
 * `forkless_child_take_pipe` gives the caller's end. A function that starts the child and waits for
 * it closes the ends that it does not read or write itself: nobody else could. */
int forkless_command_fd_pipe(forkless_command *command, int number);

/* Connects `number` to a new pipe that the child reads, whatever the number. */
int forkless_command_fd_pipe_input(forkless_command *command, int number);

/* Closes `number` in the child. Most programs do not expect 0, 1 or 2 to be closed. */
int forkless_command_fd_close(forkless_command *command, int number);

/* Makes `number` the same as the child's `other`: with number 2 and other 1, the shell's 2>&1. */
int forkless_command_fd_same_as(forkless_command *command, int number, int other);

/* If `yes` is not 0, the child gets every descriptor of the caller that is not close-on-exec, at a
 * cost that grows with their number. Default 0. */
int forkless_command_inherit_descriptors(forkless_command *command, int yes);

/* If `yes` is not 0, /bin/sh runs a file that the kernel refuses with ENOEXEC, as execvp(3) does.
 * Default 1. */
int forkless_command_scripts_without_interpreter(forkless_command *command, int yes);

/* The user, set as by setuid(2) in the child. Without `forkless_command_groups`, the supplementary
 * groups are emptied if the effective user is root, or the caller has CAP_SETGID. Otherwise they
 * stay. A refusal to empty them is ignored (EPERM, as in some user namespaces). */
int forkless_command_uid(forkless_command *command, uid_t uid);

/* The group, set as by setgid(2) in the child. */
int forkless_command_gid(forkless_command *command, gid_t gid);

/* The supplementary groups: `count` groups, 0 for none. -EPERM at the start without the right to
 * set them. */
int forkless_command_groups(forkless_command *command, const gid_t *groups, size_t count);

/* The process group. 0 makes a new one, which `forkless_child_signal_group` then reaches. */
int forkless_command_process_group(forkless_command *command, pid_t pgid);

/* If `yes` is not 0, the child gets a new session, without a controlling terminal. */
int forkless_command_setsid(forkless_command *command, int yes);

/* Makes the terminal at this number of the child the controlling terminal of its new session.
 * Implies setsid. */
int forkless_command_controlling_terminal(forkless_command *command, int number);

/* Makes the child's process group the foreground group of the terminal at this number of the
 * child. */
int forkless_command_foreground(forkless_command *command, int number);

/* The file mode creation mask. umask(2) takes only its permission bits (0777). */
int forkless_command_umask(forkless_command *command, mode_t mask);

/* A resource limit: RLIMIT_* of <sys/resource.h>, in the resource's own unit, UINT64_MAX for no
 * limit. The last call for a resource counts. Limits are set after the descriptors are connected:
 * their numbers keep to the caller's RLIMIT_NOFILE. -EINVAL for a resource that does not exist. */
int forkless_command_rlimit(forkless_command *command, int resource, uint64_t soft, uint64_t hard);

/* The nice value, -20 to 19. It is absolute, and brought into that range. -EACCES at the start for
 * a value below the caller's without the right to it. */
int forkless_command_nice(forkless_command *command, int value);

/* The scheduling policy: SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH or SCHED_IDLE. The priority
 * is 1 to 99 for FIFO and RR, else 0. -EINVAL for another policy. */
int forkless_command_scheduler(forkless_command *command, int policy, int priority);

/* The numbers of the CPUs that the child may run on: `count` numbers. -EINVAL at the start if no
 * such CPU exists. */
int forkless_command_affinity(forkless_command *command, const unsigned *cpus, size_t count);

/* The signal that the child gets when this process dies, and not merely the calling thread. 0 for
 * none. -EINVAL at the start for a number that is no signal. A child started by the first thread
 * also gets it when that thread ends by pthread_exit and others go on. A child loses it by
 * executing a program with more privileges (prctl(2)). */
int forkless_command_parent_death_signal(forkless_command *command, int signal);

/* If `yes` is not 0, neither the program nor its descendants can gain privileges by exec. */
int forkless_command_no_new_privs(forkless_command *command, int yes);

/* The root directory, entered before credentials change. */
int forkless_command_chroot(forkless_command *command, const char *dir);

/* The directory of a cgroup (version 2) in which the child is created. Every such start suspends
 * the caller until the program runs. Otherwise a cgroup that is out of memory would kill this
 * process, too. */
int forkless_command_cgroup(forkless_command *command, const char *dir);

/* The signals blocked in the program, instead of the calling thread's blocked signals. The set is
 * copied. */
int forkless_command_signal_mask(forkless_command *command, const sigset_t *blocked);

/* If `yes` is not 0, SIGPIPE stays as it is: the default. If it is 0, the program starts with
 * SIGPIPE at its default action, even if this process ignores it. Other ignored signals stay
 * ignored either way. Forgets a mask set by `forkless_command_signal_mask`. */
int forkless_command_inherit_signals(forkless_command *command, int yes);

/* Signals that have their default action when the program starts, added to those of earlier calls.
 * A full set is accepted. */
int forkless_command_default_signals(forkless_command *command, const sigset_t *signals);

/* Signals that are ignored when the program starts, added to those of earlier calls. -EINVAL at the
 * start if SIGKILL or SIGSTOP is among them. */
int forkless_command_ignore_signals(forkless_command *command, const sigset_t *signals);

/* The effect of `forkless_child_free` on a child that still runs. No choice leaves a zombie. */
enum forkless_on_free {
	FORKLESS_DETACH = 0, /* it lives on, and is reaped when it ends */
	FORKLESS_KILL = 1,   /* it gets SIGKILL and is waited for */
	FORKLESS_WAIT = 2    /* it is waited for */
};

/* Sets the choice for the children of this command. The default is FORKLESS_DETACH. */
int forkless_command_on_free(forkless_command *command, int on_free);

/*
 * A function that runs in the child, as the last thing before exec. It returns 0, or an errno value
 * that fails the start.
 *
 * It runs IN THE MEMORY OF THE CALLER, on a stack of 2 MiB. The calling thread is suspended
 * meanwhile, and the other threads run on. The function has its own pid and descriptors. It may
 * make system calls. It must not take a lock, allocate, change memory that others rely on, longjmp
 * out, or throw. It must not call setuid and its kin through libc, which would signal the other
 * threads.
 *
 * `data` is passed on unchanged. With a death signal, a start by another thread than the first runs
 * the function on a thread of the library. It then finds that thread's thread-locals.
 */
int forkless_command_pre_exec(forkless_command *command, int (*function)(void *data), void *data);

/*
 * Starts the program and returns once it runs. The command can be started again. On success
 * `*child` is the handle. On failure `*child` is untouched, and `forkless_command_error` says which
 * step failed.
 */
int forkless_command_spawn(forkless_command *command, forkless_child **child);

/*
 * Like `forkless_command_spawn`, but returns as soon as the child process exists. If the child
 * cannot execute the program, the first wait fails, with the error that `forkless_command_spawn`
 * would have given. The call blocks like `forkless_command_spawn` if the command changes
 * credentials, has a cgroup or has a function to run in the child.
 */
int forkless_command_spawn_nonblocking(forkless_command *command, forkless_child **child);

/* Runs the program and waits for it. Its pipes, if it has any, are closed: the program sees their
 * end. `status` may be NULL. */
int forkless_command_status(forkless_command *command, int *status);

/* Executes the program in place of this process. Returns only on failure, with the reason.
 * Attributes set before the failing step stay set. */
int forkless_command_exec(forkless_command *command);

/*
 * Prepares arguments, environment and search path once, as they are now, for many starts. The
 * command is used up, whatever the result: only its error can still be asked for, and it can be
 * freed. The program need not exist yet.
 */
int forkless_command_prepare(forkless_command *command, forkless_prepared **prepared);

/* Releases a prepared command. Its children live on. No other thread may be using it. */
void forkless_prepared_free(forkless_prepared *prepared);

/* Why the calling thread's last call on a prepared command failed; NULL if it did not. Lasts until
 * that thread's next call on a prepared command. */
const forkless_error *forkless_prepared_error(const forkless_prepared *prepared);

/* Like `forkless_command_spawn`, from any number of threads at once. */
int forkless_prepared_spawn(const forkless_prepared *prepared, forkless_child **child);

/* Like `forkless_command_spawn_nonblocking`, from any number of threads at once. */
int forkless_prepared_spawn_nonblocking(const forkless_prepared *prepared, forkless_child **child);

/* Like `forkless_command_status`, from any number of threads at once. */
int forkless_prepared_status(const forkless_prepared *prepared, int *status);

/* ---------------------------------------------------------------------------------------------- */
/* Children */
/* ---------------------------------------------------------------------------------------------- */

/* Releases the handle, and closes the pipes that were not taken. `enum forkless_on_free` says what
 * happens to a child that still runs. */
void forkless_child_free(forkless_child *child);

/* Why the last call on this child failed; NULL if it did not. */
const forkless_error *forkless_child_error(const forkless_child *child);

/* The process id. Once the child has been waited for, the number can mean another process: prefer
 * the functions here. */
pid_t forkless_child_pid(forkless_child *child);

/* The pidfd, for poll and epoll: it is readable once the child has ended. It is close-on-exec. It
 * stays the handle's: do not close it. -ENOTSUP if the kernel or a filter refuses pidfds, or if no
 * descriptor was left at the start. */
int forkless_child_pidfd(forkless_child *child);

/* The caller's end of the pipe at this number of the child, close-on-exec. From then on it belongs
 * to the caller, who closes it. -ENOENT if there is no such pipe, or if it was taken. */
int forkless_child_take_pipe(forkless_child *child, int number);

/* Sets the effect of freeing this handle: see `enum forkless_on_free`. */
int forkless_child_on_free(forkless_child *child, int on_free);

/*
 * Waits for the child to end. The pipes that the child reads from and that were not taken are
 * closed first, so that the child sees the end. Its output is not read: a child that fills a pipe
 * without a reader does not end (`forkless_child_output` reads). The function can be called again,
 * and gives the same status. `status` may be NULL.
 *
 * -ECHILD if the child is gone and its status is lost. That takes a kernel older than Linux 6.15,
 * and a process that ignores SIGCHLD or waited for any child elsewhere. After a non-blocking start:
 * the error of the start.
 */
int forkless_child_wait(forkless_child *child, int *status);

/* Returns 1 and gives the status if the child has ended, else returns 0 at once. Errors as for
 * `forkless_child_wait`. */
int forkless_child_try_wait(forkless_child *child, int *status);

/* Waits for at most this many milliseconds; for ever if negative. -ETIMEDOUT if the time is over
 * first: the child goes on. Otherwise like `forkless_child_wait`. */
int forkless_child_wait_timeout(forkless_child *child, int64_t milliseconds, int *status);

/* Sends SIGKILL. No error if the child has ended already. */
int forkless_child_kill(forkless_child *child);

/* Sends a signal to the child and to no other process; `forkless_child` names the one exception. No
 * error if the child has ended already. -EINVAL for a number that is no signal, -EPERM for a child
 * that changed its user. */
int forkless_child_signal(forkless_child *child, int signal);

/* Sends a signal to the whole process group that the child leads. -EINVAL if the child was not
 * started with process group 0 or setsid. -ESRCH if no process of the group is left. */
int forkless_child_signal_group(forkless_child *child, int signal);

/* Sends SIGKILL to the whole group: see `forkless_child_signal_group`. */
int forkless_child_kill_group(forkless_child *child);

/* ---------------------------------------------------------------------------------------------- */
/* Conversations */
/* ---------------------------------------------------------------------------------------------- */

/* How to talk to a child. It can be used for several children. */
typedef struct forkless_communicate forkless_communicate;
/* The output of a child, and how the conversation ended. */
typedef struct forkless_conversation forkless_conversation;

/* Begins with no input, no limit and no time limit. */
forkless_communicate *forkless_communicate_new(void);

/* Releases it. */
void forkless_communicate_free(forkless_communicate *how);

/* Bytes for the child's standard input, which is closed after them, whatever the command connects 0
 * to. They are not copied: they stay the caller's, and must stay in place until the last conversation with them has ended. A child
 * that does not read them all is no error. */
int forkless_communicate_input(forkless_communicate *how, const void *bytes, size_t size);

/* If `yes` is not 0, standard error goes to standard output's place, in the order written. */
int forkless_communicate_merged(forkless_communicate *how, int yes);

/* Captures the child's output to this number, too. -EINVAL for 0, its input; -EBADF for a negative
 * number. */
int forkless_communicate_capture(forkless_communicate *how, int number);

/* The largest number of bytes to keep of each stream. A child that writes more is killed
 * (FORKLESS_END_LIMIT). */
int forkless_communicate_limit(forkless_communicate *how, size_t bytes);

/* The time limit for the conversation in milliseconds; none if negative. When it is over, the child
 * is killed (FORKLESS_END_DEADLINE), and the call returns, whoever holds the pipes. */
int forkless_communicate_timeout(forkless_communicate *how, int64_t milliseconds);

/* A process that the child left behind may keep a pipe open after the child has ended. This sets
 * for how many milliseconds to go on reading then (FORKLESS_END_LINGERED). The default is for ever,
 * as for a negative number. */
int forkless_communicate_linger(forkless_communicate *how, int64_t milliseconds);

/* If `yes` is not 0, the child leads a process group, which is killed together with it. A command
 * that names another group stays in it, and the child alone is killed. */
int forkless_communicate_kill_group(forkless_communicate *how, int yes);

/*
 * A function that gets each piece of output as it arrives, instead of the output being collected.
 * `number` is the child's. A result other than 0 ends the conversation and kills the child
 * (FORKLESS_END_STOPPED). The function is called in the thread that talks. It must not longjmp or
 * throw, and must use neither the command nor `how`, which are in use. NULL for none.
 */
int forkless_communicate_on_chunk(forkless_communicate *how,
                                  int (*function)(void *data, int number, const void *bytes, size_t size),
                                  void *data);

/* Like `forkless_communicate_on_chunk`, with each line without its newline. A last line without a
 * newline counts. `forkless_communicate_limit` is then the longest line: no part of a longer line
 * is handed over. The bytes are not followed by a NUL. After a call that asked to stop there is no
 * other. */
int forkless_communicate_on_line(forkless_communicate *how,
                                 int (*function)(void *data, int number, const void *bytes, size_t size), void *data);

/*
 * Starts the command, talks to it until both sides are done, and waits for it. Standard input is
 * empty, and output and error are captured, unless the command says otherwise. A pipe at another
 * number is closed unless `how` captures it. `how`, `status` and `conversation` may be NULL. Output
 * that does not fit in memory gives -ENOMEM, and the child is killed.
 *
 * A time limit, a limit and a stop are no failures: see `forkless_conversation_end`.
 */
int forkless_command_communicate(forkless_command *command, const forkless_communicate *how, int *status,
                                 forkless_conversation **conversation);

/* Closes the standard input of a running child, collects standard output and error, and waits.
 * Pipes at other numbers are closed. Only pipes that were not taken are closed and read. The
 * child's handle is used up, and can only be freed. If the call fails while the child runs, it acts
 * as `forkless_child_free`. `status` may be NULL. */
int forkless_child_output(forkless_child *child, int *status, forkless_conversation **conversation);

/* How a conversation ended. */
enum forkless_end {
	FORKLESS_END_COMPLETE = 0, /* the child ended, and every pipe with it */
	FORKLESS_END_LINGERED = 1, /* the child ended, but another process kept a pipe open */
	FORKLESS_END_DEADLINE = 2, /* the time was over; the child was killed if it still ran */
	FORKLESS_END_LIMIT = 3,    /* a stream was longer than its limit; the child was killed */
	FORKLESS_END_STOPPED = 4,  /* the caller's function asked to stop; the child was killed */
	FORKLESS_END_OTHER = 99    /* an end added after the program was compiled */
};

/* One of `enum forkless_end`; -EINVAL for NULL. */
int forkless_conversation_end(const forkless_conversation *conversation);

/*
 * The child's output to `number`. The bytes belong to the conversation; a NUL that is not counted
 * follows them. `bytes` and `size` may be NULL. -ENOENT for a number that was not captured.
 */
int forkless_conversation_output(const forkless_conversation *conversation, int number, const void **bytes,
                                 size_t *size);

/* Releases the conversation and its bytes. */
void forkless_conversation_free(forkless_conversation *conversation);

/* ---------------------------------------------------------------------------------------------- */
/* Pipelines */
/* ---------------------------------------------------------------------------------------------- */

/* Commands in a row: each command's output is the input of the next. */
typedef struct forkless_pipeline forkless_pipeline;

/* An empty pipeline. A start needs at least two commands. */
forkless_pipeline *forkless_pipeline_new(void);

/* Releases it and its commands. Its children live on. */
void forkless_pipeline_free(forkless_pipeline *pipeline);

/* Why the last call on this pipeline failed; NULL if it did not. */
const forkless_error *forkless_pipeline_error(const forkless_pipeline *pipeline);

/* Adds a command at the end. The command is used up, and can only be freed. */
int forkless_pipeline_add(forkless_pipeline *pipeline, forkless_command *command);

/*
 * Starts every command. `children` has space for `room` handles. -EINVAL if that is less than one
 * for each command. Returns the number of children. If a command cannot be started, the children
 * before it are killed and waited for.
 */
int forkless_pipeline_spawn(forkless_pipeline *pipeline, forkless_child **children, size_t room);

/* Runs the pipeline. `statuses` gets each command's wait status, and has space for `room` statuses,
 * or is NULL. Pipes other than those between the commands are closed, as
 * `forkless_command_status` does. Returns the number of commands. */
int forkless_pipeline_status(forkless_pipeline *pipeline, int *statuses, size_t room);

/* Runs the pipeline and collects the last command's output and error. Other pipes are closed. The
 * status is the last command's. `status` may be NULL. */
int forkless_pipeline_output(forkless_pipeline *pipeline, int *status, forkless_conversation **conversation);

/* ---------------------------------------------------------------------------------------------- */
/* The kernel */
/* ---------------------------------------------------------------------------------------------- */

/* A facility of the kernel that the library uses if it can. The strings are never freed. */
struct forkless_facility {
	size_t size;          /* set by the caller: sizeof (struct forkless_facility) */
	const char *name;     /* the kernel's name for it */
	/* 0 if it works here, the errno of its refusal, or -1 if not tried yet */
	int state;
	const char *used_for; /* its purpose */
	const char *fallback; /* what the library does without it */
};

/* Fills in the facility number `index`, counting from 0. -ENOENT past the last one. Number 0 tries
 * those that worked again: a filter may have come. A child that this takes is no child of the
 * program's: no handler for SIGCHLD and no wait for any child is told of it. */
int forkless_facility(size_t index, struct forkless_facility *facility);

#ifdef __cplusplus
}
#endif

#endif
