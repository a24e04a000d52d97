/* What the web server starts for each request. Built static: what is measured is the server. */
#include <stdio.h>

int main(void)
{
	puts("Content-Type: text/plain\n\nhello");
	return 0;
}
