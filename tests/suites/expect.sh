# Expect's own tests (tests/), of the installed release. Its spawn forks a child onto a terminal of
# its own.
# shellcheck shell=bash

prepare() {
	type expect >/dev/null || { echo "suites: Expect's tests need expect"; return 1; }
	fetch_source expect
}

cases() { (cd "$source/tests" && ls -- *.test); }

one() {
	cat >all.tcl <<-EOF
		package require tcltest
		namespace import ::tcltest::test ::tcltest::cleanupTests
		tcltest::configure -verbose {body pass skip error}
		set ::tcltest::testSingleFile false
		source $source/tests/$1
		::tcltest::cleanupTests
	EOF
	timeout -k 5 60 "${RUN[@]}" expect all.tcl
}
