/* One call, for a tracer to watch: argv[1] says which, argv[2] is the program. */
#include "check.h"
#include <popen_noshell.h>
#include <sys/syscall.h>

/* A system call that nothing else makes: what is traced between two of them is the call's own. */
static void mark(void)
{
	syscall(SYS_getsid, 4242);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	char text[64];
	struct popen_noshell_pass_to_pclose pass;
	const char *const vector[] = {argv[2], NULL};
	/* Once before, so that what is found out once is found out. */
	for (int i = 0; i < 2; i++) {
		if (i == 1)
			mark();
		if (!strcmp(argv[1], "system")) {
			CHECK_INT(forkless_system(argv[2]), 0);
		} else if (!strcmp(argv[1], "popen")) {
			FILE *f = forkless_popen(argv[2], "r");
			CHECK(f && fgets(text, sizeof text, f) && !strcmp(text, "tiny\n"));
			CHECK_INT(forkless_pclose(f), 0);
		} else if (!strcmp(argv[1], "popen-w")) {
			FILE *f = forkless_popen(argv[2], "we");
			CHECK(f);
			CHECK_INT(forkless_pclose(f), 0);
		} else if (!strncmp(argv[1], "noshell", 7)) {
			popen_noshell_set_fork_mode(argv[1][7] - '0');
			FILE *f = popen_noshell(argv[2], vector, "r", &pass, 0);
			CHECK(f && fgets(text, sizeof text, f) && !strcmp(text, "tiny\n"));
			CHECK_INT(pclose_noshell(&pass), 0);
		} else {
			CHECK_INT(forkless_system("exit $((0))"), 0);
		}
	}
	mark();
	return 0;
}
