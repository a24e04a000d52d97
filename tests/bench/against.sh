#!/bin/bash
# How often `forkless bench spawn --against` finds a build that is 10 % slower, and how often it
# says so of the same build. The slowdown is real: a preloaded library (slower.c) spends a tenth of
# each timed interval.
#
#   tests/bench/against.sh [--slower N] [--same N] [--percent P] [ARGUMENTS OF bench spawn...]
#
# By default 20 runs are slower and 100 are the same, which takes two hours; with `--quick`, which
# is an argument of bench spawn, eight minutes. It needs a C compiler and a quiet machine: a run
# that was too noisy to tell says so, and is counted as one that found nothing.
#
# Exit 1 if a slowdown was found in fewer than 19 of 20 runs, or if more than 1 run in 100 of the
# same build was a false alarm; 2 for usage, 3 if something needed is missing.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
forkless=${CARGO_TARGET_DIR:-$top/target}/release/forkless
slower=20 same=100 percent=10

die() { # CODE MESSAGE
	echo "against: $2" >&2
	exit "$1"
}

while [ $# -gt 0 ]; do
	case $1 in
	-h | --help)
		sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'
		exit 0
		;;
	--slower | --same | --percent)
		[[ ${2-} =~ ^[0-9]+$ ]] || die 2 "$1 needs a number"
		printf -v "${1#--}" %s "$2"
		shift 2
		;;
	*) break ;;
	esac
done
[ -x "$forkless" ] || die 3 "$forkless is missing: ./x build"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
${CC:-cc} -O2 -shared -fPIC -DPERCENT="$percent" -o "$scratch/slower.so" "$top/tests/bench/slower.c" ||
	die 3 "no C compiler: apt-get install gcc"
# The other build: the same, without the library.
printf '#!/bin/sh\nunset LD_PRELOAD\nexec "%s" "$@"\n' "$forkless" >"$scratch/before"
chmod +x "$scratch/before"

# Prints how many of so many runs ended with a regression. Any other end than 0 or 1 ends the check.
count() { # RUNS LABEL ARGUMENTS...
	local runs=$1 label=$2 found=0 run status
	shift 2
	for ((run = 1; run <= runs; run++)); do
		status=0
		"$forkless" bench spawn --against "$scratch/before" --fail-on-regression "$percent" \
			--seed $((1000 * run)) "$@" >"$scratch/table" 2>"$scratch/errors" || status=$?
		case $status in
		0) ;;
		1) found=$((found + 1)) ;;
		*) die "$status" "$label, run $run: $(tail -n1 "$scratch/errors")" ;;
		esac
		grep -q 'interval' "$scratch/table" || die 1 "$label, run $run: $(tail -n1 "$scratch/errors")"
		echo "$label, run $run of $runs: exit $status; $(tr '\n' ' ' <"$scratch/errors")" >&2
	done
	echo "$found"
}

found=$(LD_PRELOAD=$scratch/slower.so count "$slower" "slower by $percent %" "$@")
alarms=$(count "$same" "the same build" "$@")
echo "slower by $percent %: found in $found of $slower runs"
echo "the same build: $alarms false alarms in $same runs"
((found * 20 >= slower * 19 && alarms * 100 <= same))
