# Tests of coreutils about processes and signals (tests/), of the release of the installed programs.
# The forks are those of the tests' shell and Perl, split, sort, timeout and the programs' own
# children.
# shellcheck shell=bash

prepare() {
	fetch_source coreutils || return 1
	# The tests expect the built programs there, and a program that prints limits.
	mkdir -p "$source/built/src" && ln -sf /usr/bin/* "$source/built/src" && : >"$source/built/config.h" &&
		printf '%s\n' '#!/bin/sh' 'for t in INT:2147483647:2147483648 PID_T:2147483647:2147483648 UINT:4294967295:4294967296 \' \
			'OFF_T:9223372036854775807:9223372036854775808 INTMAX:9223372036854775807:9223372036854775808 \' \
			'SIZE:18446744073709551615:18446744073709551616 UINTMAX:18446744073709551615:18446744073709551616' \
			'do n=${t%%:*} t=${t#*:}; echo "${n}_MAX=${t%:*}"; echo "${n}_OFLOW=${t#*:}"; done' >"$source/built/src/getlimits" &&
		chmod +x "$source/built/src/getlimits"
}

cases() {
	(cd "$source/tests" && ls misc/{timeout,nohup,nice,env,kill,stdbuf,chroot,tee,sleep,sort-c,sort-exit,sort-merge-fd,sort-s,sort-u,tty,stty,yes,seq}* \
		misc/{head-w,cat-proc,cat-buf,wc-p,csplit,close,printf-s,printenv,factor-p,md5sum-p,nproc,truncate-fifo,false,pwd,tac-2,date-t}* split/* \
		tail-2/{pid,wait,pipe,F-,follow,assert,retry,symlink,flush}* dd/{stats,misc,skip-seek2}* 2>/dev/null | grep -E '\.(sh|pl)$' | grep -vE 'fdlimit|FMR')
}

one() {
	local test=$source/tests/$1 name=${1##*/} by=(/bin/bash)
	ln -s "$source"/built/* .
	case $1 in *.pl) by=(perl -w "-I$source/tests" -MCuSkip -MCoreutils "-MCuTmpdir=$name") ;; esac
	env LC_ALL=C VERSION=9.1 PACKAGE_VERSION=9.1 srcdir="$source" top_srcdir="$source" abs_top_srcdir="$source" abs_srcdir="$source" \
		abs_top_builddir="$PWD" built_programs="$(ls src/ | tr '\n' ' ')" CONFIG_HEADER="$PWD/config.h" host_os=linux-gnu \
		SHELL=/bin/bash PERL=perl AWK=awk CC=cc CU_TEST_NAME="$name" RUN_EXPENSIVE_TESTS=yes TMPDIR="$PWD" PATH="$PWD/src:$PATH" \
		timeout -k 5 120 "${RUN[@]}" "${by[@]}" "$test" 9>&2
}

# The names of the tests' directories, the time that dd took, and bash's lines about killed
# children.
said() { sed -E "s/ copied, .*/ copied/; s/(gt-[a-zA-Z0-9_-]+|[.]tmp-)[.]?[a-zA-Z0-9]{4}\\b/\\1/g; s/(line [0-9]+: +)[0-9]+( Killed| Term)/\\1PID\\2/"; }
