# The tests of findutils (tests/, and DejaGnu's tests of find and xargs), of the installed release.
# The forks are those of xargs, find -exec, the tests' shell, and Tcl.
# shellcheck shell=bash

prepare() {
	type runtest >/dev/null || { echo "suites: the tests of findutils need DejaGnu"; return 1; }
	fetch_source findutils
}

cases() {
	(cd "$source" && ls tests/{find,xargs}/*.sh | grep -v OOM && echo xargs find)
}

# DejaGnu's tests expect the built programs and their object files beside themselves.
one() {
	mkdir find xargs && ln -s /usr/bin/find find && ln -s /usr/bin/xargs xargs && touch find/ftsfind.o xargs/xargs.o
	case $1 in
	tests/*)
		env LC_ALL=C VERSION=4.9.0 PACKAGE_VERSION=4.9.0 srcdir="$source" abs_top_srcdir="$source" abs_top_builddir="$PWD" built_programs='find xargs' \
			SHELL=/bin/bash PERL=perl AWK=awk CC=cc RUN_EXPENSIVE_TESTS=yes TMPDIR="$PWD" timeout -k 5 120 "${RUN[@]}" /bin/bash "$source/$1" 9>&2
		;;
	*)
		mkdir "$1/testsuite" && cd "$1/testsuite" &&
			env LC_ALL=C timeout -k 5 300 "${RUN[@]}" runtest --all --tool "$1" --srcdir "$source/$1/testsuite"
		;;
	esac
}

# The names of directories, and times.
said() { sed -E 's/[0-9]{4}-[0-9-]+ [0-9:.]+ [+0-9]+/TIME/g; s/gt-[a-zA-Z0-9_.-]+/gt-TEMP/g; /^Test run by/d'; }
