/*
 * Relink a program that was written for popen-noshell.
 *
 * Prints:
 * a b
 * status 0
 */
#include <popen_noshell.h>
#include <stdio.h>
#include <sys/wait.h>

int main(void)
{
	struct popen_noshell_pass_to_pclose pass;
	const char *const argv[] = {"echo", "a b", NULL};
	FILE *stream = popen_noshell(argv[0], argv, "r", &pass, 0);
	if (!stream) {
		perror("popen_noshell");
		return 1;
	}
	for (int c; (c = getc(stream)) != EOF;)
		putchar(c);
	printf("status %d\n", WEXITSTATUS(pclose_noshell(&pass)));
	return 0;
}
