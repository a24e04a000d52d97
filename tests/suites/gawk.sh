# gawk's own tests (test/) with system(), pipes, coprocesses or terminals, of the release of the
# installed gawk.
# shellcheck shell=bash

prepare() {
	[ -x /usr/bin/gawk ] || { echo "suites: gawk's tests need gawk"; return 1; }
	fetch_source gawk || return 1
	# gawk's extensions, as installed.
	mkdir -p "$source/extension" && ln -sfn /usr/lib/*/gawk "$source/extension/.libs"
	[ -e "$source/test/Makefile" ] || (cd "$source" && ./configure >configured 2>&1) ||
		{ echo "suites: gawk's tests cannot be configured: see $source/configured"; return 1; }
}

cases() {
	(cd "$source/test" && grep -lE 'system *\(|getline|\| *["(a-z]|\|&|/inet|PROCINFO' -- *.awk *.sh | sed 's/\.[a-z]*$//' | sort -u |
		grep -Fx -f <(sed -n 's/^\([a-zA-Z0-9_-]*\):.*/\1/p' Makefile))
}

# The tests write beside themselves. A test that fails leaves _CASE behind.
one() {
	cd "$source/test" || return
	rm -f _*
	timeout -k 5 60 "${RUN[@]}" make -s AWKPROG=/usr/bin/gawk "$1"
	cat _* 2>/dev/null
	rm -f _*
}
