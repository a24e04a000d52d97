#!/bin/bash
# Runs the process tests of Rust's standard library, of tokio and of `just` with the Rust library in
# place of std::process and tokio::process. The `use` is changed, and nothing else except the
# changes named below. A command of its own, not for every push.
#
#   tests/suites/std-process.sh [std] [tokio] [just]      default: all of them, some ten minutes
#
# Needs the component rust-src of the installed Rust (rustup component add rust-src), and crates.io.
# Sources are copied into $FORKLESS_SUITES, else ~/.cache/forkless-suites. `just` runs its own suite
# twice, as it is and with forkless.
#
# A test that fails must be named below, with the reason, or (`just`) fail without forkless, too. A
# named test must fail. Exit 1 if not, 2 for a wrong argument, 3 if something needed is missing.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
store=${FORKLESS_SUITES:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-suites}/std-process
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$top/target}/std-process
just_version=1.59.0

deviations() {
	case $1 in
	std) cat <<-'END' ;;
		process::debug_print           {:#?} shows what a command has here, not std's fields
		unix::test_command_fork_no_unwind a panic in pre_exec fails the start (ECANCELED); std's child aborts
	END
	esac
}

# The change of `use`: plain paths, and the two forms of names inside braces.
switch() {
	perl -0pe '
		s/\b(?:std|crate)::(?:os::unix::)?process\b(?!\()/forkless::process/g;
		s/\btokio::process\b/forkless::tokio/g;
		my %ours = (std => "forkless::process", tokio => "forkless::tokio");
		s/\buse (std|tokio)::\{((?:[^{}]|\{[^{}]*\})*?)\bprocess::(\{[^{}]*\}|\w+)(?:,\s*)?/use $ours{$1}::$3;\nuse $1::{$2/g;
		s/(?<!use )\b(std|tokio)::\{((?:[^{}]|\{[^{}]*\})*?)\bprocess::(\{[^{}]*\}|\w+)(?:,\s*)?/$ours{$1}::$3,\n  $1::{$2/g;
	'
}

missing() {
	echo "std-process: $1" >&2
	exit 3
}

# Makes a package of our own, with the library as a dependency. Standard input is the rest of the
# manifest.
package() { # NAME FEATURES [EDITION]
	rm -rf "${store:?}/$1"
	mkdir -p "$store/$1/src" "$store/$1/tests"
	{
		printf '[package]\nname = "%s-ported"\nversion = "0.0.0"\nedition = "%s"\n[workspace]\n' "$1" "${3:-2024}"
		cat
		printf '[dependencies.forkless]\npath = "%s"\nfeatures = [%s]\n' "$top/crates/forkless" "$2"
	} >"$store/$1/Cargo.toml"
	: >"$store/$1/src/lib.rs"
}

# Fetches the source of a crate by cargo, and prints its directory.
crate_source() { # NAME VERSION
	local home=${CARGO_HOME:-$HOME/.cargo} found
	find_it() { found=$(find "$home/registry/src" -maxdepth 2 -name "$1-$2" 2>/dev/null | head -1); }
	find_it "$1" "$2"
	if [ -z "$found" ]; then
		printf '%s = "=%s"\n' "$1" "$2" | { printf '[dependencies]\n'; cat; } | package fetch '' >&2
		cargo fetch --quiet --manifest-path "$store/fetch/Cargo.toml" >&2 || true
		find_it "$1" "$2"
	fi
	[ -n "$found" ] || missing "cargo cannot fetch $1 $2"
	echo "$found"
}

# The tests that failed in a run's output, one name a line.
failures() { sed -nE 's/^test (.*) \.\.\. FAILED$/\1/p' "$1" | sort -u; }

judge() { # NAME OUTPUT [OUTPUT WITHOUT FORKLESS]
	local passed expected got
	passed=$(grep -cE '^test .* \.\.\. ok$' "$2")
	got=$(failures "$2")
	# A test that fails with and without forkless is no deviation.
	[ -z "${3:-}" ] || got=$(comm -23 <(echo "$got") <(failures "$3"))
	expected=$(deviations "$1" | awk '{ print $1 }' | sort)
	if [ "$passed" -eq 0 ] || grep -q '^error: could not compile' "$2"; then
		echo "$1: not everything could be built; see $2"
		failed=1
	fi
	echo "$1: $passed pass; deviations:"
	deviations "$1" | sed 's/^/  /'
	if [ "$got" != "$expected" ]; then
		echo "$1: not as named (< fails unnamed, > is named and does not fail); see $2"
		diff <(echo "$got") <(echo "$expected") | grep '^[<>]'
		failed=1
	fi
}

std() {
	local from here=$store/std
	from=$(rustc --print sysroot)/lib/rustlib/src/rust/library/std/src
	[ -e "$from/process/tests.rs" ] || missing 'std has no sources here: rustup component add rust-src'
	printf '[dependencies]\nlibc = "0.2"\n' | package std ''
	cat >"$here/src/lib.rs" <<-'END'
		#![cfg(test)]
		#![allow(warnings)]
		#![feature(read_buf, core_io_borrowed_buf, exit_status_error)]
		mod common;
		mod process;
		mod unix;
	END
	switch <"$from/process/tests.rs" | sed 's/\bsuper::/forkless::process::/g; s/\bcrate::/std::/g' >"$here/src/process.rs"
	switch <"$from/sys/process/unix/unix/tests.rs" | sed 's/\bcrate::/std::/g' >"$here/src/unix.rs"
	# These tests are written for std's inside. They are changed to the public names of the same
	# calls. One test is about a type that is not public.
	{
		cat <<-'END'
			use forkless::process::{Command, CommandExt, Stdio};
			use libc::{sigaddset, sigemptyset};
			use std::io::{Error, Read, Result, Write};
			fn cvt(result: i32) -> Result<i32> { if result == -1 { Err(Error::last_os_error()) } else { Ok(result) } }
			fn cvt_nz(result: i32) -> Result<()> { if result == 0 { Ok(()) } else { Err(Error::from_raw_os_error(result)) } }
		END
		switch <"$from/sys/process/unix/common/tests.rs" | sed -E '
			s/\bcrate::/std::/g
			/^use super::\*|^use std::sys::/d
			s/Stdio::MakePipe/Stdio::piped()/
			s/\.pgroup\(/.process_group(/
			s/let \(mut cat, _?(mut )?pipes\) = t!\(cmd\.spawn\(Stdio::Null, true\)\)/let mut cat = t!(cmd.spawn())/
			s/\bpipes\.(stdin|stdout)/cat.\1/
			s/let (stdin_write|stdout_read)/let mut \1/
			/^fn test_program_kind/,/^}/d' | sed -z 's/#\[test\]\n\n/\n/'
	} >"$here/src/common.rs"
	(cd "$here" && RUSTC_BOOTSTRAP=1 cargo test --no-fail-fast >output 2>&1)
	judge std "$here/output"
}

tokio() {
	local from version here=$store/tokio file
	version=$(sed -n '/^name = "tokio"$/{n;s/version = "\(.*\)"/\1/p}' "$top/Cargo.lock")
	from=$(crate_source tokio "$version") || exit
	package tokio '"tokio"' 2021 <<-END
		[features]
		default = ["full", "process"]
		full = []
		process = []
		[dependencies]
		tokio = { version = "=$version", features = ["full"] }
		tokio-test = "0.4"
		tokio-stream = "0.1"
		futures = "0.3"
		libc = "0.2"
		nix = { version = "0.29", features = ["fs", "signal", "socket"] }
		tempfile = "3"
	END
	cp -r "$from/tests/support" "$here/tests/"
	for file in "$from"/tests/process_*.rs; do
		switch <"$file" >"$here/tests/${file##*/}"
	done
	(cd "$here" && cargo test --no-fail-fast >output 2>&1)
	judge tokio "$here/output"
}

just() {
	local from file way here
	from=$(crate_source just $just_version) || exit
	for way in plain switched; do
		here=$store/just-$way
		rm -rf "$here"
		cp -r "$from" "$here"
		# An own workspace keeps the package out of a workspace above the cache.
		printf '\n[workspace]\n' >>"$here/Cargo.toml"
	done
	printf '[dependencies.forkless]\npath = "%s"\n' "$top/crates/forkless" >>"$here/Cargo.toml"
	for file in $(cd "$from" && grep -rlE '\bprocess::' --include=*.rs src); do
		switch <"$from/$file" >"$here/$file"
	done
	echo "just: $(diff -r "$from/src" "$here/src" | grep -c '^>') lines of $(find "$here/src" -name '*.rs' -exec cat {} + | wc -l) changed"
	for way in plain switched; do
		(cd "$store/just-$way" && CARGO_TARGET_DIR=$CARGO_TARGET_DIR/just-$way RUST_BACKTRACE=0 cargo test --no-fail-fast >output 2>&1)
	done
	judge just "$store/just-switched/output" "$store/just-plain/output"
}

parts=("$@")
[ $# -gt 0 ] || parts=(std tokio just)
for part in "${parts[@]}"; do
	case $part in
	std | tokio | just) ;;
	*)
		echo "std-process: no part is called $part; there are: std tokio just" >&2
		exit 2
		;;
	esac
done
mkdir -p "$store" || exit 3
failed=0
for part in "${parts[@]}"; do
	$part
done
exit $failed
