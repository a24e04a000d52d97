/*
 * Talk to a program in both directions, by pipes at its descriptors 0 and 1.
 *
 * Prints:
 * 6 * 7 = 42
 */
#include <forkless.h>
#include <stdio.h>

int main(void)
{
	forkless_command *shell = forkless_command_new("sh");
	const char *const args[] = {"-c", "while read a b; do echo $((a * b)); done", NULL};
	forkless_command_args(shell, args);
	forkless_command_fd_pipe(shell, 0);
	forkless_command_fd_pipe(shell, 1);

	forkless_child *child;
	if (forkless_command_spawn(shell, &child) < 0) {
		fprintf(stderr, "%s\n", forkless_error_message(forkless_command_error(shell)));
		return 1;
	}
	FILE *to = fdopen(forkless_child_take_pipe(child, 0), "w");
	FILE *from = fdopen(forkless_child_take_pipe(child, 1), "r");
	int product;
	fprintf(to, "6 7\n");
	fflush(to);
	if (fscanf(from, "%d", &product) == 1)
		printf("6 * 7 = %d\n", product);
	fclose(to); /* the child sees the end of its input and exits */
	fclose(from);
	forkless_child_wait(child, NULL);
	forkless_child_free(child);
	forkless_command_free(shell);
	return 0;
}
