/*
 * Give a program its input and collect its output, however long, within a time limit.
 *
 * Prints:
 * output: HELLO
 * error: done
 * ended: complete
 * a program that hangs: deadline, killed by signal 9
 */
#include <forkless.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static const char *ended(const forkless_conversation *said)
{
	switch (forkless_conversation_end(said)) {
	case FORKLESS_END_COMPLETE: return "complete";
	case FORKLESS_END_LINGERED: return "lingered";
	case FORKLESS_END_DEADLINE: return "deadline";
	case FORKLESS_END_LIMIT: return "limit";
	case FORKLESS_END_STOPPED: return "stopped";
	default: return "otherwise";
	}
}

int main(void)
{
	const char *const args[] = {"-c", "tr a-z A-Z; printf done >&2", NULL};
	forkless_command *command = forkless_command_new("sh");
	forkless_command_args(command, args);

	forkless_communicate *how = forkless_communicate_new();
	const char *input = "hello";
	forkless_communicate_input(how, input, strlen(input)); /* the library does not copy it */
	forkless_communicate_timeout(how, 10000);
	forkless_communicate_limit(how, 1 << 20);

	int status;
	forkless_conversation *said;
	if (forkless_command_communicate(command, how, &status, &said) < 0) {
		fprintf(stderr, "%s\n", forkless_error_message(forkless_command_error(command)));
		return 1;
	}
	const void *text;
	size_t size;
	forkless_conversation_output(said, 1, &text, &size);
	printf("output: %.*s\n", (int)size, (const char *)text);
	forkless_conversation_output(said, 2, &text, &size);
	printf("error: %.*s\n", (int)size, (const char *)text);
	printf("ended: %s\n", ended(said));
	forkless_conversation_free(said);
	forkless_command_free(command);
	forkless_communicate_free(how);

	how = forkless_communicate_new();
	forkless_communicate_timeout(how, 100);
	command = forkless_command_new("sleep");
	forkless_command_arg(command, "60");
	if (forkless_command_communicate(command, how, &status, &said) < 0)
		return 1;
	printf("a program that hangs: %s, killed by signal %d\n", ended(said), WTERMSIG(status));
	forkless_conversation_free(said);
	forkless_command_free(command);
	forkless_communicate_free(how);
	return 0;
}
