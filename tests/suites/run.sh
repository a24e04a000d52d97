#!/bin/bash
# Runs the test suites of programs that fork, with and without `forkless run`. With it every fork is
# speculated: once as by default (exact), and once with late reads allowed (speculate). Each test
# must print the same and end the same. Every case runs one of the two with --report and the
# other without, in turns. The library does more with a report, and hides less without. A command of
# its own, not for every push: it fetches the sources of Debian's packages, and takes from minutes
# to hours a suite.
#
#   tests/suites/run.sh [--cases "WORD..."] [--list] [--forkless COMMAND] [SUITE...]
#
# Without a SUITE all suites run: every file here is one. With --cases only the cases run whose
# names hold one of the words. --list prints the cases instead. --forkless names a built command,
# with its library beside it. Otherwise both are built here.
#
# A case whose outcome differs runs three more times in each way. It counts as different, unless its
# outcome also varies without forkless. The difference is printed, with the directory that keeps
# both outputs. A suite of which no case passes without forkless fails: it shows nothing.
#
# A suite is a file SUITE.sh, which defines
#   prepare      puts the suite's needs into $source, which is kept between runs
#                ($FORKLESS_SUITES, else ~/.cache/forkless-suites);
#                returns 1 after a line about what is missing
#   cases        prints the cases' names, one a line, without spaces
#   one CASE     runs a case, in an empty current directory, with $RUN (a list of words, often
#                empty) before the program
#   said         copies standard input without the parts that differ from run to run: times,
#                process ids. Optional
#   deviates CASE
#                succeeds, and prints the reason, for a case that is known to differ. Optional
#
# Exit 1 if a case differs or a suite shows nothing, 2 for a wrong argument, 3 if something is
# missing.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
suites=$(cd "$(dirname "$0")" && ls -- *.sh | sed 's/\.sh$//' | grep -vxE 'run|std-process')
store=${FORKLESS_SUITES:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-suites}
words=() wanted=() list='' forkless=''
while [ $# -gt 0 ]; do
	case $1 in
	--cases) read -ra words <<<"${2:?suites: --cases needs words}" && shift ;;
	--list) list=1 ;;
	--forkless) forkless=$(realpath -- "${2:?suites: --forkless needs a command}") && shift ;;
	*)
		grep -qx -- "$1" <<<"$suites" || { echo "suites: no suite is called $1; there are: ${suites//$'\n'/ }" >&2; exit 2; }
		wanted+=("$1")
		;;
	esac
	shift
done
[ ${#wanted[@]} -gt 0 ] || mapfile -t wanted <<<"$suites"

work=$(mktemp -d) || exit 3
kept=
trap '[ -n "$kept" ] || rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if [ -z "$forkless" ]; then
	(cd "$top" && cargo build --quiet --locked --release --package forkless-cli &&
		cargo build --quiet --locked --profile preload --package forkless-preload) || exit 3
	target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
	forkless=$target/release/forkless
	# A copy of the library that was just built: no build replaces it while programs run with
	# it.
	cp "$target/preload/libforkless_preload.so" "$work/libforkless_preload.so"
	export FORKLESS_LIBRARY=$work/libforkless_preload.so
fi

# Unpacks the source of a Debian package, as its authors released it, into $source. apt gets lists
# of its own: the system's lists do not change. The newest version that can be had is taken: a
# mirror may lack the newest version that it lists.
fetch_source() { # PACKAGE [RELEASE OF DEBIAN]
	local apt=$store/apt file version release=${2:-}
	[ -e "$source/.fetched" ] && return
	[ -n "$release" ] || release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mkdir -p "$apt/lists/partial" "$source/archives"
	printf 'deb-src http://deb.debian.org/%s main\n' "debian $release" "debian $release-updates" \
		"debian-security $release-security" >"$apt/sources.list"
	local own=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists" -o APT::Sandbox::User=root)
	apt-get "${own[@]}" update
	for version in $(apt-cache "${own[@]}" showsrc --only-source "$1" | sed -n 's/^Version: //p' | sort -rVu); do
		(cd "$source/archives" && apt-get "${own[@]}" source --download-only "$1=$version") && break
	done
	file=$(ls "$source"/archives/*.orig.tar.* 2>/dev/null | grep -v '\.asc$' | head -1)
	[ -n "$file" ] || { echo "suites: no source of $1 can be had by apt-get"; return 1; }
	tar -xf "$file" -C "$source" --strip-components=1 && rm -r "$source/archives" && touch "$source/.fetched"
}

# Runs one case in one mode, and writes its output, then its status, into a file. A mode is plain,
# exact or speculate; the latter two with +report or without.
once() { # MODE CASE FILE
	local here=$work/here RUN=() status
	rm -rf "$here" && mkdir "$here"
	if [ "$1" != plain ]; then
		RUN=("$forkless" run "--fork=${1%+report}" --fork-minimum=0 --fork-always --quiet)
		[ "$1" = "${1%+report}" ] || RUN+=(--json "--report=$work/report")
		RUN+=(--)
	fi
	(cd "$here" && one "$2") </dev/null >"$work/output" 2>&1
	status=$?
	# Without room, all outcomes would be the same empty file.
	{ said <"$work/output"; echo "status $status"; } >"$3" ||
		{ echo "suites: the outcome of $2 cannot be written to $3" >&2; exit 3; }
	if [ "$1" != "${1%+report}" ]; then
		# The report comes a moment after the program's end.
		for _ in $(seq 50); do [ -s "$work/report" ] && break; sleep 0.1; done
		[ ! -s "$work/report" ] || { cat "$work/report"; echo; } >>"$work/reports"
		rm -f "$work/report"
	fi
}

# Counts how often a case ended in each way: plainly, and in one mode.
again() { # MODE CASE DIRECTORY
	local i
	for i in 2 3 4; do
		once plain "$2" "$3/plain.$i"
		once "$1" "$2" "$3/$1.$i"
	done
	[ "$(cd "$3" && sha256sum plain.? | cut -d' ' -f1 | sort -u | wc -l)" = 1 ]
}

counter() { # NAME: summed over the reports of a suite
	grep -oh "\"$1\":[0-9]*" "$work/reports" 2>/dev/null | awk -F: '{ sum += $2 } END { print sum + 0 }'
}

suite() { # NAME
	local case mode modes all same=0 vary=0 differ=0 known=0 passed=0 dir number=0 why
	source=$store/$1
	mkdir -p "$source"
	: >"$work/reports"
	prepare || { missing=$((missing + 1)); return; }
	all=$(cases)
	[ ${#words[@]} -eq 0 ] || all=$(grep -F -- "$(printf '%s\n' "${words[@]}")" <<<"$all")
	if [ -n "$list" ]; then echo "$all"; return; fi
	for case in $all; do
		dir=$work/$1/${case//\//_}
		mkdir -p "$dir"
		once plain "$case" "$dir/plain.1"
		number=$((number + 1))
		[ "$(tail -1 "$dir/plain.1")" != 'status 0' ] || passed=$((passed + 1))
		if [ $((number % 2)) = 1 ]; then modes='exact+report speculate'; else modes='exact speculate+report'; fi
		for mode in $modes; do
			once "$mode" "$case" "$dir/$mode.1"
			if cmp -s "$dir/plain.1" "$dir/$mode.1"; then
				same=$((same + 1))
			elif why=$(deviates "$case"); then
				known=$((known + 1))
				echo "differs, as it is known to: $1 $case with --fork=${mode/+/ and --}: $why"
			elif again "$mode" "$case" "$dir"; then
				differ=$((differ + 1)) kept=1
				echo "differs: $1 $case with --fork=${mode/+/ and --}, $(for i in 1 2 3 4; do cmp -s "$dir/plain.1" "$dir/$mode.$i" || echo; done | wc -l) times of 4: $dir"
			else
				vary=$((vary + 1))
				echo "varies without forkless, too: $1 $case"
			fi
		done
	done
	echo "$1: $(wc -w <<<"$all") cases ($passed pass without forkless), each with exact and speculate:" \
		"$same the same, $vary vary without forkless too," \
		"$known differ as they are known to, $differ differ;" \
		"$(counter speculated) forks speculated, $(counter committed) committed"
	[ "$differ" = 0 ] || failed=1
	# Cases that cannot even begin end the same in each mode.
	if [ "$passed" = 0 ]; then
		failed=1 kept=1
		echo "$1: no case passes without forkless, so nothing is shown: see the outputs in $work/$1"
	fi
}

failed=0 missing=0
for name in "${wanted[@]}"; do
	said() { cat; }
	deviates() { false; }
	# shellcheck disable=SC1090
	. "$(dirname "$0")/$name.sh"
	suite "$name"
done
[ "$failed" = 0 ] || exit 1
[ "$missing" = 0 ] || exit 3
