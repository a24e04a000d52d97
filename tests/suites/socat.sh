# socat's own tests (test.sh), of the release that is installed: those of addresses that start programs, of servers that fork, of
# signals and children that nobody waits for. What forks are socat and the tests' shell.
# shellcheck shell=bash

prepare() {
	type socat >/dev/null || { echo "suites: socat's tests need socat"; return 1; }
	fetch_source socat || return 1
	# Some seconds at best, and more at worst.
	[ -e "$source/testcert.dh" ] || openssl dhparam -dsaparam -out "$source/testcert.dh" 2048 2>/dev/null
}

# Words that its tests are chosen by.
cases() { printf '%s\n' exec system fork signal zombie maxchildren pipe stdio gopen listen umask; }

one() {
	cp "$source/testcert.dh" . && env SOCAT=/usr/bin/socat TMPDIR="$PWD" timeout -k 5 240 "${RUN[@]}" bash "$source/test.sh" "$1"
}

# What each test came to.
said() { grep -aE '^(test|Summary|FAILED)|FAILED|cannot'; }
