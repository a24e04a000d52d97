# bash's own tests (tests/run-*), of the release of the installed bash.
# shellcheck shell=bash

prepare() {
	fetch_source bash || return 1
	# Programs of bash's sources that the tests start.
	[ -e "$source/xcase" ] || (cd "$source" && ./configure >configured 2>&1 && make -s recho zecho printenv xcase >made 2>&1) ||
		{ echo "suites: bash's own test programs cannot be built: see $source/configured and $source/made"; return 1; }
}

cases() { (cd "$source/tests" && ls -d run-* | grep -vxE 'run-(all|minimal|gprof)'); }

# The tests write beside themselves.
one() {
	cp -r "$source/tests" t && cd t || return
	env PATH="$source:$PATH:." THIS_SH=/bin/bash BUILD_DIR="$source" TERM=dumb TMPDIR="$PWD" timeout -k 5 120 "${RUN[@]}" /bin/bash "./$1"
}

said() { sed -E 's/[0-9]+\.[0-9]{3}/N/g'; }
