/*
 * Join programs by pipes, and get the status of each.
 *
 * Prints:
 * a
 * b
 * statuses: 0 0 0
 */
#include <forkless.h>
#include <stdio.h>
#include <sys/wait.h>

static int add(forkless_pipeline *pipeline, const char *program, const char *arg)
{
	forkless_command *command = forkless_command_new(program);
	if (arg)
		forkless_command_arg(command, arg);
	int result = forkless_pipeline_add(pipeline, command); /* uses the command up */
	forkless_command_free(command);
	return result;
}

int main(void)
{
	forkless_pipeline *pipeline = forkless_pipeline_new();
	if (add(pipeline, "printf", "b\\na\\nb\\n") < 0 || add(pipeline, "sort", NULL) < 0 || add(pipeline, "uniq", NULL) < 0)
		return 1;
	int statuses[3];
	int count = forkless_pipeline_status(pipeline, statuses, 3);
	if (count < 0) {
		fprintf(stderr, "%s\n", forkless_error_message(forkless_pipeline_error(pipeline)));
		return 1;
	}
	printf("statuses:");
	for (int i = 0; i < count; i++)
		printf(" %d", WEXITSTATUS(statuses[i]));
	printf("\n");
	forkless_pipeline_free(pipeline);
	return 0;
}
