# Tests of util-linux about processes (tests/ts), of the installed release: script and its replay on
# terminals, setsid, flock, chrt, the listings of namespaces and descriptors. The forks are those of
# script and of the tests' shell.
# shellcheck shell=bash

prepare() {
	fetch_source util-linux || return 1
	# The tests' own program.
	local found=(-O1 -w -D_GNU_SOURCE -DHAVE_NANOSLEEP -DHAVE_USLEEP -DHAVE_STRNLEN -DHAVE_STRNDUP -DHAVE_MEMPCPY -DHAVE_STRTOUMAX -Iinclude)
	(cd "$source" && cc "${found[@]}" -o test_mkfds tests/helpers/test_mkfds.c) || { echo "suites: test_mkfds of util-linux's tests cannot be built"; return 1; }
}

cases() { (cd "$source/tests/ts" && ls -- {script,misc,schedutils,lsns,lsfd}/* | grep -vE '\.|functions|strtosize|mbsencode'); }

# The tests write beside themselves.
one() {
	rm -rf "$source/tests/output" && cd "$source" && timeout -k 5 120 "${RUN[@]}" bash "tests/ts/$1" --use-system-commands --show-diff
}

# Times.
said() { sed -E 's/^(---|\+\+\+) (\S+)\t.*/\1 \2/; s/\(diff [0-9]+ sec\)/(diff N sec)/'; }
