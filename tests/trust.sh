#!/bin/bash
# A short form of each kind of trial that docs/trust.md lists, in a quarter of an hour on an idle
# machine. Beside most of them runs a negative control: the same trial of a copy of this tree with a
# fault put in, which must fail. A trial that finds nothing in the broken copy shows nothing.
#
#   tests/trust.sh [--only WORD] [--list]     ./x trust calls it
#
# The faults: a speculating child may use inherited descriptors; a `*` in a shell line is taken as it
# stands. Their copy and its builds lie in target/trust.
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
	--only) only=${2:?trust: --only needs a word} && shift ;;
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
# A trial, which must succeed, in the seconds that end a hang.
trial() { # NAME SECONDS COMMAND...
	local name=$1 seconds=$2 since=$SECONDS
	shift 2
	wanted "$name" || return 0
	if timeout "$seconds" "$@" >"$place/log" 2>&1; then
		passed=$((passed + 1))
		printf 'passed   %-44s %4d s  %s\n' "$name" $((SECONDS - since)) "$(grep -E '^test result' "$place/log" | tail -n1)"
	else
		failed=$((failed + 1))
		printf 'FAILED   %-44s %4d s\n' "$name" $((SECONDS - since))
		tail -n 30 "$place/log"
	fi
}
# A control, which must fail by a test, not by a compiler: the words are of the test that finds the fault.
control() { # NAME SECONDS WORDS COMMAND...
	local name="$1: control" seconds=$2 words=$3 since=$SECONDS code=0
	shift 3
	wanted "$name" || return 0
	timeout "$seconds" "$@" >"$place/log" 2>&1 || code=$?
	if [ $code != 0 ] && [ $code != 124 ] && grep -qE "$words" "$place/log"; then
		passed=$((passed + 1))
		printf 'found    %-44s %4d s  %s\n' "$name" $((SECONDS - since)) "$(grep -m1 -oE "$words" "$place/log")"
	else
		failed=$((failed + 1))
		printf 'MISSED   %-44s %4d s  (exit code %d)\n' "$name" $((SECONDS - since)) $code
		tail -n 30 "$place/log"
	fi
}

# The copy with the faults. A change of the lines that they replace is an error, so that no control
# tests a sound copy.
fault() { # FILE FROM TO
	local file=$place/broken/$1
	grep -qF "$2" "$file" || { echo "trust: $1 has no longer: $2" >&2; exit 3; }
	python3 - "$file" "$2" "$3" <<-'PYTHON' || exit 3
		import sys
		name, before, after = sys.argv[1:]
		text = open(name).read()
		open(name, "w").write(text.replace(before, after, 1))
	PYTHON
}
broken() {
	rm -rf "$place/broken"
	mkdir -p "$place/broken"
	git ls-files -z | xargs -0 cp --parents -t "$place/broken" || exit 3
	fault crates/forkless-speculate/src/descriptors.rs 'self.usable.has(number(fd))' 'fd < usize::MAX'
	fault crates/forkless-shell/src/word.rs "b'*' | b'?' | b'[' => return Err(cursor.reject(Reason::Glob, 1))," ''
	(cd "$place/broken" && cargo build --quiet --locked --profile preload -p forkless-preload --target-dir "$place/build") ||
		{ echo "trust: the broken copy does not build" >&2; exit 3; }
}
[ -n "$list" ] || broken
in_broken=(env -C "$place/broken" "CARGO_TARGET_DIR=$place/build")
with_broken=(env "FORKLESS_TEST_LIBRARY=$place/build/preload/libforkless_preload.so")

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
	trial "snapshots beside threads" 900 "${run[@]}" no_child_sees_a_state_that_never_was
	# With late reads a child sees such a state: the test passes if one does.
	trial "snapshots beside threads: control" 900 "${run[@]}" late_reads_show_a_state_that_never_was
	trial "every third call of the library refused" 900 "${run[@]}" a_refused_call
else
	skip "speculation" "this architecture has none"
fi
trial "random lines without a shell" 900 "${run[@]}" random_lines
trial "torture of the library" 900 env FORKLESS_TORTURE=2000 "${library[@]}" torture
trial "the library killed and refused at each step" 900 "${library[@]}" faults

if cargo +nightly miri --version >/dev/null 2>&1; then
	trial "Miri: pointers of a plan" 900 cargo +nightly miri test --quiet --locked -p forkless --lib -- env layout plan strings
else
	wanted "Miri" && skip "Miri: pointers of a plan" "no nightly cargo with miri: rustup component add --toolchain nightly miri"
fi
for long in "foreign suites (tests/suites/run.sh, minutes to hours)" "other kernels (tests/kernels/run.sh, an emulator)" \
	"a million snapshots (run -- --ignored in_a_million, an hour)"; do
	wanted "$long" && skip "$long" "too long for this"
done
[ -z "$list" ] || exit 0
rm -rf "$place/broken" "$place/log"
echo "all of it: $((SECONDS - begun)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
