# dash has no tests; busybox's tests of its own shell (shell/ash_test), which was made from the same one, run by the installed dash. A case
# is a directory of them. Some fail, for dash cannot all that they ask for, but all in the same way.
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

# They write beside themselves.
one() {
	cp -r "$source/shell/ash_test/." . && cd "$1" || return
	# It never ends with dash.
	rm -f var_LINENO1.tests
	# shellcheck disable=SC2016
	env PATH="$PWD/..:$PATH" THIS_SH=/bin/dash TERM=dumb TMPDIR="$PWD" "${RUN[@]}" /bin/dash -c \
		'for x in *.tests; do echo "$x:"; timeout -k 5 20 $THIS_SH "./$x" 2>&1; echo "status $?"; done'
}
