# Tcl's own tests (tests/*.test), of the release of the installed tclsh8.6. Each file prints which
# of its tests passed.
# shellcheck shell=bash

prepare() {
	command -v tclsh8.6 >/dev/null || { echo "suites: tclsh8.6 is not installed"; return 1; }
	fetch_source tcl8.6
}

# The tests that make processes or threads.
cases() { (cd "$source/tests" && grep -lE '\bexec\b|\bopen +["{]?\||\bthread::|testfork' -- *.test); }

one() {
	# The tests write beside themselves.
	cp -r "$source/tests" t && cd t || return
	env TERM=dumb timeout -k 5 300 "${RUN[@]}" tclsh8.6 "$1" -verbose bpe
}
