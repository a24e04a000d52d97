/*
 * Start a program and wait for it. If it does not start, say which step failed.
 *
 * Prints:
 * hello from the child
 * status 3
 * chdir to /nowhere: No such file or directory
 */
#include <forkless.h>
#include <stdio.h>
#include <sys/wait.h>

int main(void)
{
	forkless_command *command = forkless_command_new("sh");
	forkless_command_arg(command, "-c");
	forkless_command_arg(command, "echo hello from the child; exit 3");
	forkless_command_umask(command, 027);

	int status;
	if (forkless_command_status(command, &status) < 0) {
		fprintf(stderr, "%s\n", forkless_error_message(forkless_command_error(command)));
		return 1;
	}
	printf("status %d\n", WEXITSTATUS(status));

	/* A mistake in the command shows at the start, with its step. */
	forkless_command_current_dir(command, "/nowhere");
	if (forkless_command_status(command, &status) < 0)
		printf("%s\n", forkless_error_message(forkless_command_error(command)));
	forkless_command_free(command);
	return 0;
}
