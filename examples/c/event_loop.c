/*
 * Start programs without waiting for their exec, then wait for all of them in poll(2).
 * No SIGCHLD handler is needed.
 *
 * Prints:
 * first: exit 1
 * second: exit 2
 * third: exec /no/such/program: No such file or directory
 */
#include <forkless.h>
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>

int main(void)
{
	static const char *const names[] = {"first", "second", "third"};
	static const char *const programs[] = {"sh", "sh", "/no/such/program"};
	static const char *const lines[] = {"exit 1", "sleep 0.2; exit 2", ""};
	forkless_child *children[3];
	struct pollfd fds[3];
	for (int i = 0; i < 3; i++) {
		forkless_command *command = forkless_command_new(programs[i]);
		forkless_command_arg(command, "-c");
		forkless_command_arg(command, lines[i]);
		if (forkless_command_spawn_nonblocking(command, &children[i]) < 0)
			return 1;
		forkless_command_free(command);
		/* readable once the child has ended */
		fds[i].fd = forkless_child_pidfd(children[i]);
		fds[i].events = POLLIN;
	}
	/* The third child ends first or last, by chance. It is kept until the others are done, so
	 * that the output is in order. */
	for (int left = 2; left;) {
		if (poll(fds, 2, -1) < 0)
			continue;
		for (int i = 0; i < 2; i++) {
			int status;
			if (fds[i].revents && forkless_child_wait(children[i], &status) == 0) {
				printf("%s: exit %d\n", names[i], WEXITSTATUS(status));
				fds[i].fd = -1;
				left--;
			}
		}
	}
	if (forkless_child_wait(children[2], NULL) < 0)
		printf("%s: %s\n", names[2], forkless_error_message(forkless_child_error(children[2])));
	for (int i = 0; i < 3; i++)
		forkless_child_free(children[i]);
	return 0;
}
