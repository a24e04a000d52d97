# What the scripts of packaging/test.sh use inside the clean tree: `try` counts, `left` says what a removal leaves.
# shellcheck shell=bash
set -u
export HOME=/tmp LC_ALL=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin DEBIAN_FRONTEND=noninteractive
unset FORKLESS FORKLESS_LIBRARY FORKLESS_OPTIONS LD_PRELOAD
export artefacts=/mnt/artefacts

try() { # NAME COMMAND...
	local name=$1
	shift
	if "$@" >/tmp/log 2>&1 </dev/null; then
		echo "ok      $name"
	else
		echo "FAILED  $name"
		tail -n 40 /tmp/log | sed 's/^/        /'
	fi
}

# Every file with kind, size and mode; not what the package manager keeps for itself.
files() {
	find / -xdev \( -path /proc -o -path /dev -o -path /mnt -o -path /tmp -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune \
		-o -type d -printf '%p %y %m\n' -o -not -path /etc/ld.so.cache -printf '%p %y %s %m\n' | LC_ALL=C sort
}

nothing_left() {
	files >/tmp/after
	diff /tmp/before /tmp/after
}

says() { # TEXT COMMAND...
	local text=$1 said
	shift
	said=$("$@") || return
	[ "$said" = "$text" ] || {
		echo "said: $said, not: $text"
		return 1
	}
}

command_works() { # FORKLESS VERSION
	try "the command has version $2" says "forkless $2" "$1" --version
	try "doctor" "$1" doctor
	try "bench spawn" "$1" bench spawn --quick --time 2 --no-save
	try "run preloads its own library" says 1 "$1" run -- grep -c 'r-xp.*libforkless-run.so' /proc/self/maps
	try "run carries out a line" says through "$1" run --report=/tmp/report -- sh -c 'echo through'
	# shellcheck disable=SC2016
	try "diagnose watches a command" sh -c '"$1" diagnose -- sh -c "ls /; true"; [ $? -le 1 ]' - "$1"
}

c_works() { # VERSION LIBRARY-FOLDER
	cat >/tmp/program.c <<-'PROGRAM'
		#include <forkless.h>
		#include <stdio.h>
		int main(void)
		{
			int status = forkless_system("exit 7");
			printf("%s %d\n", forkless_version_string(), status >> 8);
			return 0;
		}
	PROGRAM
	# shellcheck disable=SC2016
	try "a C program is built by pkg-config" \
		sh -c 'gcc -Wall -Werror -o /tmp/shared /tmp/program.c $(pkg-config --cflags --libs forkless)'
	try "it runs with the shared library" says "$1 7" env "LD_LIBRARY_PATH=$2" /tmp/shared
	try "it asks for its symbols by version" sh -c 'nm -D /tmp/shared | grep forkless_system@FORKLESS_0.1'
	try "a C program is built with the static library" \
		sh -c "gcc -Wall -Werror -o /tmp/static /tmp/program.c \$(pkg-config --cflags forkless) '$2/libforkless.a'"
	try "it runs alone" says "$1 7" /tmp/static
}
