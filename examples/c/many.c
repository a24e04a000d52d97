/*
 * Prepare a program once, and start it many times from several threads.
 *
 * Prints:
 * 40 children, 0 failures
 */
#include <forkless.h>
#include <pthread.h>
#include <stdio.h>

static void *run(void *data)
{
	const forkless_prepared *program = data;
	long failures = 0;
	for (int i = 0; i < 10; i++) {
		int status;
		if (forkless_prepared_status(program, &status) < 0 || status != 0)
			failures++;
	}
	return (void *)failures;
}

int main(void)
{
	forkless_command *command = forkless_command_new("true");
	forkless_prepared *program;
	if (forkless_command_prepare(command, &program) < 0)
		return 1;
	forkless_command_free(command);
	pthread_t threads[4];
	long failures = 0;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, run, program);
	for (int i = 0; i < 4; i++) {
		void *result;
		pthread_join(threads[i], &result);
		failures += (long)result;
	}
	printf("%d children, %ld failures\n", 4 * 10, failures);
	forkless_prepared_free(program);
	return 0;
}
