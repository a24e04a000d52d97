/*
 * Read the output of a program line by line as it comes, and stop after enough lines.
 *
 * Prints:
 * 1: y
 * 2: y
 * 3: y
 * stopped
 */
#include <forkless.h>
#include <stdio.h>

static int on_line(void *data, int number, const void *bytes, size_t size)
{
	int *count = data;
	(void)number; /* 1 is standard output, 2 is standard error */
	printf("%d: %.*s\n", ++*count, (int)size, (const char *)bytes);
	return *count == 3; /* a result other than 0 stops */
}

int main(void)
{
	int count = 0;
	forkless_command *yes = forkless_command_new("yes");
	forkless_communicate *how = forkless_communicate_new();
	forkless_communicate_on_line(how, on_line, &count);
	forkless_conversation *said;
	if (forkless_command_communicate(yes, how, NULL, &said) < 0)
		return 1;
	if (forkless_conversation_end(said) == FORKLESS_END_STOPPED)
		puts("stopped");
	forkless_conversation_free(said);
	forkless_communicate_free(how);
	forkless_command_free(yes);
	return 0;
}
