#!/bin/bash
# A short form of the trials that docs/trust.md lists. Beside most of them runs a negative control: the
# same trial of a copy of this tree with a fault put in, which must fail. A trial that finds nothing
# in a broken copy shows nothing.
#
#   tests/trust.sh [--only WORD] [--list]     ./x trust calls it
#
# The faults are in `prepare` below. Their copies and builds lie in target/trust. --only runs the
# trials and controls whose names have WORD in them.
#
# The last line is "N passed, N failed, N skipped". Exit codes: 0 fine, 1 something failed,
# 2 usage, 3 something needed is missing.
set -uo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 3
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
place=$target/trust
only='' list=''
while [ $# -gt 0 ]; do
	case $1 in
	--only)
		[ $# -gt 1 ] || { echo "trust: --only needs a word" >&2; exit 2; }
		only=$2 && shift
		;;
	--list) list=1 ;;
	*) echo "trust: no argument '$1': tests/trust.sh [--only WORD] [--list]" >&2 && exit 2 ;;
	esac
	shift
done
command -v cargo >/dev/null || { echo "trust: cargo is not installed" >&2; exit 3; }
unset FORKLESS FORKLESS_LIBRARY FORKLESS_OPTIONS FORKLESS_TEST_LIBRARY LD_PRELOAD
mkdir -p "$place"

passed=0 failed=0 skipped=0 begun=$SECONDS
wanted() { # NAME
	[[ $1 == *"$only"* ]] || return 1
	[ -z "$list" ] || { echo "$1" && return 1; }
}
skip() { # NAME REASON
	skipped=$((skipped + 1))
	echo "skipped: $1: $2"
}
# How many tests the log says have passed: one command has several results.
tests_passed() {
	awk '/^test result/ { for (i = 2; i <= NF; i++) if ($i ~ /^passed/) n += $(i - 1) } END { print n + 0 " tests" }' "$place/log"
}
# What the log says of its trial: the tests that passed, or else its last line.
summary() {
	if grep -q '^test result' "$place/log"; then tests_passed; else tail -n 1 "$place/log" | cut -c 1-80; fi
}
# A trial, which must succeed, in the seconds that end a hang. Code 3 is that of our scripts where
# something needed is missing.
trial() { # NAME SECONDS COMMAND...
	local name=$1 seconds=$2 since=$SECONDS code=0
	shift 2
	wanted "$name" || return 0
	timeout "$seconds" "$@" >"$place/log" 2>&1 || code=$?
	if [ $code = 0 ]; then
		passed=$((passed + 1))
		printf 'passed   %-56s %4d s  %s\n' "$name" $((SECONDS - since)) "$(summary)"
	elif [ $code = 3 ]; then
		skip "$name" "$(tail -n 1 "$place/log")"
	else
		failed=$((failed + 1))
		printf 'FAILED   %-56s %4d s\n' "$name" $((SECONDS - since))
		tail -n 30 "$place/log"
	fi
}
# A control, which must fail by a test, not by a compiler: the words are of the test that finds the
# fault.
control() { # NAME SECONDS WORDS COMMAND...
	local name="$1: control" seconds=$2 words=$3 since code=0
	shift 3
	wanted "$name" || return 0
	prepare
	since=$SECONDS
	timeout "$seconds" "$@" >"$place/log" 2>&1 || code=$?
	if [ $code = 3 ]; then
		skip "$name" "$(tail -n 1 "$place/log")"
	elif [ $code != 0 ] && [ $code != 124 ] && grep -qE "$words" "$place/log"; then
		passed=$((passed + 1))
		printf 'found    %-56s %4d s  %s\n' "$name" $((SECONDS - since)) "$(grep -m1 -oE "$words" "$place/log")"
	else
		failed=$((failed + 1))
		printf 'MISSED   %-56s %4d s  (exit code %d)\n' "$name" $((SECONDS - since)) $code
		tail -n 30 "$place/log"
	fi
}

# A copy of the tree, for a fault.
copy() { # NAME
	rm -rf "${place:?}/$1"
	mkdir -p "$place/$1"
	packaging/files.sh | xargs -0 cp --parents -t "$place/$1" || exit 3
}
# Puts a fault in. A change of the lines that it replaces is an error, so that no control tests a
# sound copy.
fault() { # COPY FILE FROM TO
	python3 - "$place/$1/$2" "$3" "$4" <<-'PYTHON' || exit 3
		import sys
		name, before, after = sys.argv[1:]
		text = open(name).read()
		if text.count(before) != 1:
		    sys.exit(f"trust: {name}: {text.count(before)} times instead of once: {before}")
		open(name, "w").write(text.replace(before, after))
	PYTHON
}
# Builds the preloaded library of a copy, as COPY/libforkless_preload.so.
library_of() { # COPY
	(cd "$place/$1" && cargo build --quiet --locked --profile preload -p forkless-preload --target-dir "$place/build") &&
		cp "$place/build/preload/libforkless_preload.so" "$place/$1/" ||
		{ echo "trust: the copy $1 does not build" >&2; exit 3; }
}
prepared=''
prepare() {
	[ -z "$prepared" ] || return 0
	prepared=1
	local since=$SECONDS
	copy broken
	# A speculating child may use inherited descriptors.
	fault broken crates/forkless-speculate/src/descriptors.rs 'self.usable.has(number(fd))' 'fd < usize::MAX'
	# A backslash in a shell line quotes the next byte, and stays.
	fault broken crates/forkless-shell/src/word.rs 'self.check_byte(escaped, cursor)?;' \
		'self.check_byte(escaped, cursor)?; out.push(0x5c)?;'
	# The child of a start that failed is never waited for.
	fault broken crates/forkless/src/start/attempt.rs 'by_pidfd::wait_for_end(pid, pidfd.as_ref());' ''
	# A child keeps low descriptors that another thread of its parent has open.
	fault broken crates/forkless/src/start/moves.rs \
		'gaps(targets, first - 1, |first, last| actions.push(close(first, last, options)));' 'let _ = first;'
	library_of broken
	copy forgetful
	# A refusal leaves a mark on memory: the next children lack it.
	fault forgetful crates/forkless-preload/src/fork/exclusions.rs \
		'retry(|| unsafe { mm::madvise(start as *mut _, end - start, mm::MADV_DOFORK) });' \
		'retry(|| unsafe { mm::madvise(start as *mut _, end - start, mm::MADV_DOFORK).or(Ok(())) });'
	# After a hundred forks of a process, each leaves a descriptor in it.
	fault forgetful crates/forkless-preload/src/fork/memory_source.rs 'let _ = fd::close(descriptor);' \
		'static CLOSED: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
                if CLOSED.fetch_add(1, core::sync::atomic::Ordering::Relaxed) < 100 {
                    let _ = fd::close(descriptor);
                }'
	# Each look at a plan ends the validity of the pointers into it.
	fault forgetful crates/forkless/src/plan/fixed.rs 'unsafe { self.0.as_ref() }' 'unsafe { &mut *self.0.as_ptr() }'
	library_of forgetful
	echo "two copies with faults: $((SECONDS - since)) s"
}
in_broken=(env -C "$place/broken" "CARGO_TARGET_DIR=$place/build")
in_forgetful=(env -C "$place/forgetful" "CARGO_TARGET_DIR=$place/build")
with_broken=(env "FORKLESS_TEST_LIBRARY=$place/broken/libforkless_preload.so")
with_forgetful=(env "FORKLESS_TEST_LIBRARY=$place/forgetful/libforkless_preload.so")

# Cases of other programs' own suites, plainly and under run; then under a broken copy's library.
foreign() { # NAME SUITE "CASE..."
	local name=$1 suite=$2 cases=$3
	trial "$name" 1800 tests/suites/run.sh --cases "$cases" "$suite"
	[ -n "$list" ] || ! wanted "$name: control" || { prepare && cp "$target/release/forkless" "$place/broken/forkless"; }
	control "$name" 1800 '[1-9][0-9]* differ;' tests/suites/run.sh --forkless "$place/broken/forkless" --cases "${cases%% *}" "$suite"
}

run=(cargo test --quiet --locked -p forkless-cli --test run --)
library=(cargo test --quiet --locked -p forkless --test behaviour --)

trial "decisions of a speculation" 900 cargo test --quiet --locked -p forkless-speculate
control "decisions of a speculation" 900 '^---- [^ ]+ stdout' "${in_broken[@]}" cargo test --quiet --locked -p forkless-speculate
# Its own control is among its tests: a plain fork that does not wait is found.
trial "2,000 schedules of threads" 900 env FORKLESS_SCHEDULES=2000 cargo test --quiet --locked -p forkless-speculate --test window
trial "shell lines beside dash, bash and busybox" 900 cargo test --quiet --locked -p forkless-shell
control "shell lines beside dash, bash and busybox" 900 '^---- [^ ]+ stdout' "${in_broken[@]}" cargo test --quiet --locked -p forkless-shell

if [ "$(uname -m)" = x86_64 ]; then
	trial "52 random children" 900 "${run[@]}" random_children
	control "52 random children" 900 'seed [0-9]+' "${with_broken[@]}" "${run[@]}" random_children
	trial "20 random threads" 900 "${run[@]}" random_threads
	control "20 random threads" 900 'seed [0-9]+' "${with_broken[@]}" "${run[@]}" random_threads
	trial "snapshots beside threads" 900 "${run[@]}" no_child_sees_a_state_that_never_was
	# With late reads a child sees such a state: the test passes if one does.
	trial "snapshots beside threads: control" 900 "${run[@]}" late_reads_show_a_state_that_never_was
	trial "every third call of the library refused" 900 "${run[@]}" a_refused_call
	control "every third call of the library refused" 900 'Call\([0-9]+\)[^:]*' "${with_forgetful[@]}" "${run[@]}" a_refused_call
	trial "forks of a process that allocates" 900 "${run[@]}" forks_leave_nothing_in_the_parent
	control "forks of a process that allocates" 900 'left == right' "${with_forgetful[@]}" "${run[@]}" forks_leave_nothing_in_the_parent
	foreign "four groups of cases of dash's and busybox's suites" dash "ash-psubst ash-redir ash-heredoc ash-vars"
	foreign "the Linux Test Project: fork, vfork, execve" ltp "fork0 vfork0 execve0"
else
	skip "speculation" "this architecture has none"
fi
trial "random lines without a shell" 900 "${run[@]}" random_lines
control "random lines without a shell" 900 'FORKLESS_FIRST_SEED=[0-9]+' "${with_broken[@]}" "${run[@]}" random_lines
trial "torture of the library" 900 env FORKLESS_TORTURE=2000 "${library[@]}" torture
control "torture of the library" 900 'a child has what it was not given' \
	"${in_broken[@]}" FORKLESS_TORTURE=200 "${library[@]}" torture
trial "the library with bad input and without resources" 900 "${library[@]}" faults
control "the library with bad input and without resources" 900 'a child is left' "${in_broken[@]}" "${library[@]}" faults

# Each target first finds a planted fault: the controls are in the script. All targets would take
# too long to build.
trial "fuzzing by coverage: shell lines and maps" 1800 tests/fuzz/run.sh --seconds 20 shell_line maps

miri=(cargo +nightly miri test --quiet --locked -p forkless --lib -- env layout plan strings)
if cargo +nightly miri --version >/dev/null 2>&1; then
	trial "Miri: pointers of a plan" 900 "${miri[@]}"
	control "Miri: pointers of a plan" 900 'error: Undefined Behavior' "${in_forgetful[@]}" "${miri[@]}"
else
	wanted "Miri: pointers of a plan" &&
		skip "Miri: pointers of a plan" "no Miri here: rustup toolchain install nightly --component miri,rust-src"
fi
wanted "other kernels" && skip "other kernels" "tests/kernels/run.sh takes from minutes to an hour, in an emulator"
[ -z "$list" ] || exit 0
rm -rf "$place/broken" "$place/forgetful" "$place/log"
echo "all of it: $((SECONDS - begun)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
