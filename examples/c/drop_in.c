/*
 * Use system() and popen() under other names: the same lines give the same results.
 *
 * Prints:
 * from system
 * system: exit 4
 * popen read: 3 lines
 * popen wrote: 5
 */
#include <forkless.h>
#include <stdio.h>
#include <sys/wait.h>

int main(void)
{
	fflush(stdout);
	int status = forkless_system("printf 'from system\\n'; exit 4");
	printf("system: exit %d\n", WEXITSTATUS(status));

	FILE *stream = forkless_popen("printf 'a\\nb\\nc\\n' | sort -r", "re");
	if (!stream)
		return 1;
	int lines = 0;
	for (int c; (c = getc(stream)) != EOF;)
		lines += c == '\n';
	if (forkless_pclose(stream) != 0)
		return 1;
	printf("popen read: %d lines\n", lines);

	printf("popen wrote: ");
	fflush(stdout);
	stream = forkless_popen("wc -c", "we");
	if (!stream)
		return 1;
	fputs("12345", stream);
	return forkless_pclose(stream) != 0;
}
