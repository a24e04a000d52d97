/*
 * popen_noshell.h - the functions and types of popen-noshell, on libforkless.
 *
 * For programs that use popen-noshell and only want to relink: names, types and results are its own. New programs are
 * better served by forkless.h, whose `forkless_popen` takes any shell line, and whose commands have every other
 * connection (standard error, both directions, time limits).
 *
 * What differs from popen-noshell: no 8 MiB stack a child; nothing leaks on failure; signal handlers of the program
 * cannot run in the child; children made by the first and third mode are ordinary ones, which waitpid finds without __WALL.
 */
#ifndef POPEN_NOSHELL_H
#define POPEN_NOSHELL_H

#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The size in bytes of the stack that `popen_noshell_vmfork` gives its function. */
#define POPEN_NOSHELL_STACK_SIZE (8 * 1024 * 1024)

/* For `popen_noshell_set_fork_mode`. */
#define POPEN_NOSHELL_MODE_CLONE 0       /* the default */
#define POPEN_NOSHELL_MODE_FORK 1        /* fork(2), for debugging and comparison: the one place in libforkless that forks */
#define POPEN_NOSHELL_MODE_POSIX_SPAWN 2 /* as the default, but for the two results below */

/* Not used; named because `struct popen_noshell_pass_to_pclose` has a pointer to it. */
struct popen_noshell_clone_arg;

/* Filled in by `popen_noshell`, for `pclose_noshell`. Look only at `fp` and `pid`. */
struct popen_noshell_pass_to_pclose {
	FILE *fp;  /* the stream */
	pid_t pid; /* the child */
	int free_clone_mem;
	void *stack;
	struct popen_noshell_clone_arg *func_args;
};

/*
 * Starts a program with a pipe to it, without a shell.
 *
 * `file` is searched in PATH if it has no '/'. `argv` ends with NULL and begins with the program's own name.
 * `type` is "r", to read the program's standard output (its input is /dev/null), or "w", to write its standard input (its
 * output is /dev/null). `stderr_mode` says where its standard error goes: 0 where the caller's goes, 1 to /dev/null, 2 to
 * its standard output. The program inherits every descriptor that is not close-on-exec; the stream's own is.
 *
 * Returns the stream, to be closed by `pclose_noshell`; NULL with errno on failure: EINVAL for the type or a NULL
 * argument. As in popen-noshell, two failures show in the exit status of the child instead:
 *
 *                                    CLONE and FORK                POSIX_SPAWN
 *   the program cannot be executed   255, message on its stderr    127
 *   stderr_mode is none of these     254, message on its stderr    NULL with EINVAL
 *
 * Threads: any number at once, with a `pclose_arg` each. Not a cancellation point.
 */
FILE *popen_noshell(const char *file, const char *const *argv, const char *type,
                    struct popen_noshell_pass_to_pclose *pclose_arg, int stderr_mode);

/*
 * Likewise with a command string, which is split at blanks and tabs; single and double quotes hold words together, and
 * that is all they do. NULL with EINVAL for a string without a word, with an open quote, or with any of ! \ $ ` | & ; ( )
 * < > or a newline, quoted or not. Standard error goes where the caller's goes.
 */
FILE *popen_noshell_compat(const char *command, const char *type, struct popen_noshell_pass_to_pclose *pclose_arg);

/* Closes the stream and waits for the program. Returns its wait status; -1 with errno on failure, EINVAL if there is
 * nothing to close. */
int pclose_noshell(struct popen_noshell_pass_to_pclose *arg);

/*
 * A child that runs `fn(arg)` in the memory of the caller, on a stack of its own, while the calling thread is suspended;
 * what `fn` returns is its exit status. Signal handlers are at their defaults in it. `fn` must not take locks, allocate,
 * throw, or change what the caller relies on; it is to make a few system calls and exec.
 *
 * Returns the child's pid, which has no exit signal: wait for it with waitpid(pid, &status, __WALL), then free(3) what
 * `*memory_to_free_on_child_exit` points to. -1 with errno on failure, with nothing to free.
 */
pid_t popen_noshell_vmfork(int (*fn)(void *), void *arg, void **memory_to_free_on_child_exit);

/* How children of this process are made from now on; one of POPEN_NOSHELL_MODE_*, anything else is as CLONE. */
void popen_noshell_set_fork_mode(int mode);

/* What was set last. */
int popen_noshell_get_fork_mode(void);

#ifdef __cplusplus
}
#endif

#endif
