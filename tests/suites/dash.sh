# dash has no tests. The installed dash runs busybox's tests of its own shell (shell/ash_test),
# which has the same origin. A case is a directory of tests. Some tests fail, since dash lacks
# features that they use, but all fail in the same way.
# shellcheck shell=bash

prepare() {
	fetch_source busybox || return 1
	local program
	# Programs that the tests start.
	for program in recho zecho printenv; do
		[ -x "$source/shell/ash_test/$program" ] || cc -w -o "$source/shell/ash_test/$program" "$source/shell/ash_test/$program.c" ||
			{ echo "suites: cc cannot build $program"; return 1; }
	done
}

cases() { (cd "$source/shell/ash_test" && ls -d ash-*); }

# The tests write beside themselves.
one() {
	cp -r "$source/shell/ash_test/." . && cd "$1" || return
	# This test never ends with dash.
	rm -f var_LINENO1.tests
	# shellcheck disable=SC2016
	env PATH="$PWD/..:$PATH" THIS_SH=/bin/dash TERM=dumb TMPDIR="$PWD" "${RUN[@]}" /bin/dash -c \
		'for x in *.tests; do echo "$x:"; timeout -k 5 20 $THIS_SH "./$x" 2>&1; echo "status $?"; done'
}
