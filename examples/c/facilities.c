/*
 * List the facilities that work on this kernel, and what replaces those that do not.
 *
 * Prints lines that begin with:
 * clone3:
 */
#include <forkless.h>
#include <stdio.h>

int main(void)
{
	struct forkless_facility f = {.size = sizeof f};
	for (size_t i = 0; forkless_facility(i, &f) == 0; i++) {
		if (f.state == 0)
			printf("%s: works, for %s\n", f.name, f.used_for);
		else
			printf("%s: %s; instead: %s\n", f.name, f.state < 0 ? "not tried" : forkless_strerror(f.state), f.fallback);
	}
	return 0;
}
