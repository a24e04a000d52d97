/*
 * popen_noshell.h - the functions and types of popen-noshell, on libforkless.
 *
 * For programs that use popen-noshell and only want to relink: names, types and results are
 * popen-noshell's. New programs are better served by forkless.h. Its `forkless_popen` takes any
 * shell line, and its commands have every other connection (standard error, both directions, time
 * limits).
 *
 * Differences from popen-noshell: there is no stack of 8 MiB for each child. Nothing leaks on
 * failure. Signal handlers of the program cannot run in the child. Children of the first and third
 * mode are ordinary children, which waitpid finds without __WALL.
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
/* fork(2), for debugging and comparison: the one place in libforkless that forks */
#define POPEN_NOSHELL_MODE_FORK 1
/* like the default, but for the two results listed below */
#define POPEN_NOSHELL_MODE_POSIX_SPAWN 2

/* Not used. It is named because `struct popen_noshell_pass_to_pclose` has a pointer to it. */
struct popen_noshell_clone_arg;

/* `popen_noshell` fills this in for `pclose_noshell`. Read only `fp` and `pid`. */
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
 * `file` is searched in PATH if it has no '/'. `argv` ends with NULL and begins with the program's
 * own name. With `type` "r" the caller reads the program's standard output, and the program's input
 * is /dev/null. With "w" the caller writes the program's standard input, and its output is
 * /dev/null. `stderr_mode` says where its standard error goes: 0 where the caller's goes, 1 to
 * /dev/null, 2 to its standard output. The program inherits every descriptor that is not
 * close-on-exec. The stream's own descriptor is close-on-exec.
 *
 * Returns the stream. Close it by `pclose_noshell`. Returns NULL with errno on failure: EINVAL for
 * the type or a NULL argument. As in popen-noshell, two failures show in the exit status of the
 * child instead:
 *
 *                                    CLONE and FORK                POSIX_SPAWN
 *   the program cannot be executed   255, message on its stderr    127
 *   another stderr_mode              254, message on its stderr    NULL with EINVAL
 *
 * Threads: any number at once, with a `pclose_arg` each. Not a cancellation point.
 */
FILE *popen_noshell(const char *file, const char *const *argv, const char *type,
                    struct popen_noshell_pass_to_pclose *pclose_arg, int stderr_mode);

/*
 * Like `popen_noshell`, with a command string, which is split at blanks and tabs. Single and double
 * quotes hold words together and have no other effect. NULL with EINVAL for a string without a word
 * or with an open quote. NULL with EINVAL, too, if it contains any of ! \ $ ` | & ; ( ) < > or a
 * newline, quoted or not. Standard error goes where the caller's goes.
 */
FILE *popen_noshell_compat(const char *command, const char *type, struct popen_noshell_pass_to_pclose *pclose_arg);

/* Closes the stream and waits for the program. Returns its wait status. Returns -1 with errno on
 * failure, EINVAL if there is nothing to close. */
int pclose_noshell(struct popen_noshell_pass_to_pclose *arg);

/*
 * Starts a child that runs `fn(arg)` in the memory of the caller, on a stack of its own, while the
 * calling thread is suspended. The result of `fn` is the child's exit status. Signal handlers are
 * at their defaults in it. `fn` must not take locks, allocate, throw, or change memory that the
 * caller relies on. It should make a few system calls and exec.
 *
 * Returns the child's pid. The child has no exit signal: wait for it with waitpid(pid, &status,
 * __WALL). Then free(3) the memory that `*memory_to_free_on_child_exit` points to. Returns -1 with
 * errno on failure, with nothing to free.
 */
pid_t popen_noshell_vmfork(int (*fn)(void *), void *arg, void **memory_to_free_on_child_exit);

/* Sets how children of this process are made from now on: one of POPEN_NOSHELL_MODE_*. Any other
 * number acts as CLONE. */
void popen_noshell_set_fork_mode(int mode);

/* The mode that was set last. */
int popen_noshell_get_fork_mode(void);

#ifdef __cplusplus
}
#endif

#endif
