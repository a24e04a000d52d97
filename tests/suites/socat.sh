# socat's own tests (test.sh), of the installed release. They are the tests of addresses that start
# programs, of servers that fork, of signals, and of children that no process waits for. The forks
# are those of socat and of the tests' shell.
# shellcheck shell=bash

prepare() {
	type socat >/dev/null || { echo "suites: socat's tests need socat"; return 1; }
	fetch_source socat || return 1
	# This takes at least some seconds.
	[ -e "$source/testcert.dh" ] || openssl dhparam -dsaparam -out "$source/testcert.dh" 2048 2>/dev/null
}

# The words by which socat's tests are chosen.
cases() { printf '%s\n' exec system fork signal zombie maxchildren pipe stdio gopen listen umask; }

one() {
	cp "$source/testcert.dh" . && env SOCAT=/usr/bin/socat TMPDIR="$PWD" timeout -k 5 240 "${RUN[@]}" bash "$source/test.sh" "$1"
}

# The result of each test.
said() { grep -aE '^(test|Summary|FAILED)|FAILED|cannot'; }
