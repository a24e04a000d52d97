# GNU tar's own tests (tests/), of the installed release: with compressors, checkpoint actions,
# filters and volume scripts. The forks are those of tar and of the tests' shell.
# shellcheck shell=bash

prepare() {
	fetch_source tar || return 1
	# The tests' own programs.
	[ -x "$source/tests/genfile" ] || (cd "$source" && FORCE_UNSAFE_CONFIGURE=1 ./configure >configured 2>&1 &&
		make -s -C gnu >made 2>&1 && make -s -C lib >>made 2>&1 && make -s -C tests testsuite atconfig atlocal genfile >>made 2>&1) ||
		{ echo "suites: the helpers of tar's tests cannot be built: see $source/configured and $source/made"; return 1; }
}

# Without the test that writes and reads 8 GiB.
cases() { (cd "$source/tests" && sh testsuite -l) | sed -nE 's/^ *([0-9]+): ([^. ]+)\.at.*/\1-\2/p' | grep -v sparse03; }

one() {
	cp "$source"/tests/at{config,local} . &&
		timeout -k 5 200 "${RUN[@]}" sh "$source/tests/testsuite" "AUTOTEST_PATH=/usr/bin:$source/tests" -C "$PWD" -v "${1%%-*}"
	cat testsuite.dir/*/testsuite.log 2>/dev/null
}

# The times that a test took, and the times of files.
said() { sed -E 's/[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}/TIME/g; s/^((---|\+\+\+) [^\t]*)\t.*/\1/; s/\([0-9]+m[0-9.]+s [0-9]+m[0-9.]+s\)//'; }
