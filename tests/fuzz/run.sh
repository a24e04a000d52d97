#!/bin/bash
# Fuzzes the readers of foreign bytes, guided by coverage, with the address sanitizer. A command of
# its own, not for every push: it needs a nightly Rust and cargo-fuzz.
#
#   tests/fuzz/run.sh [--seconds N] [--list] [TARGET...]
#
# Without a TARGET all run, each N seconds (60). Before that each is built with a claim that is
# false for a few inputs ("planted"), and must find one: a fuzzer that finds nothing must be able to
# find something. What is found is kept in fuzz/artifacts/TARGET, and fuzz/corpus/TARGET keeps the
# inputs that reached new code.
#
# Lines of the shell are also compared with dash, bash and busybox, by another command:
#   FORKLESS_SHELL_FUZZ_SECONDS=600 cargo test --release -p forkless-shell --test differential
#
# Exit 1 if an input fails or a planted claim is not refuted, 2 for a wrong argument, 3 if a tool is missing.
set -uo pipefail
cd "$(dirname "$0")/../../fuzz" || exit 3
targets=$(sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | tail -n +2)
seconds=60 wanted=()
while [ $# -gt 0 ]; do
	case $1 in
	--seconds)
		seconds=${2:-}
		[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "fuzz: --seconds needs a number" >&2; exit 2; }
		shift
		;;
	--list) echo "$targets"; exit ;;
	*)
		grep -qx -- "$1" <<<"$targets" || { echo "fuzz: no target is called $1; there are: ${targets//$'\n'/ }" >&2; exit 2; }
		wanted+=("$1")
		;;
	esac
	shift
done
[ ${#wanted[@]} -gt 0 ] || mapfile -t wanted <<<"$targets"
cargo +nightly fuzz --version >/dev/null 2>&1 ||
	{ echo "fuzz: needs a nightly Rust and cargo-fuzz: rustup toolchain install nightly && cargo install cargo-fuzz --locked" >&2; exit 3; }
log=$(mktemp) || exit 3
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT TERM

# Inputs to begin with. Without them a fuzzer needs hours to find the shape of a result.
seed() { # TARGET
	local corpus=corpus/$1
	mkdir -p "$corpus"
	case $1 in
	shell_line)
		local n=0 line
		while IFS= read -r line; do
			n=$((n + 1))
			printf '\377%s' "$line" >"$corpus/seed-$n"
		done <<-'LINES'
			make -j8 2>&1 | tee log; exit 3
			A="$B" /bin/x <in >>out && cd /tmp || ! false
			'a b' "c d" e\ f | g | h; exec i 3>&-
			echo $(date) `id` ${X:-y} *.c # a comment
		LINES
		;;
	maps)
		{ printf '\100'; cat /proc/self/maps; } >"$corpus/seed-maps"
		printf '\1001000-3000 rw-s 00000000 00:0f 77 /[aix] (deleted)\n' >"$corpus/seed-ring"
		;;
	options) printf 'fork=exact,min=8388608,limit=50,sh=7:8:9,filters=0,rood=7,record=/tmp/r' >"$corpus/seed-1" ;;
	noshell_split) printf "ls 'a b'  c\"d e\"f" >"$corpus/seed-1" ;;
	results) cp seeds/result.json "$corpus"; find ../docs ../crates -name '*.json' -size -300k ! -name '*.schema.json' -exec cp -t "$corpus" {} + ;;
	events)
		head -c 64 /dev/zero >"$corpus/seed-1"
		printf '\011\001%0500d' 0 >"$corpus/seed-2"
		;;
	esac
}

status=0
for target in "${wanted[@]}"; do
	seed "$target"
	# The control's inputs stay out of the corpus and of the artifacts.
	scratch=$(mktemp -d) || exit 3
	cargo +nightly fuzz build --features planted "$target" >"$log" 2>&1 || { cat "$log"; exit 1; }
	cp "corpus/$target"/* "$scratch/" 2>/dev/null
	# No end by the clock decides: a planted claim counts as refuted only by its own words.
	cargo +nightly fuzz run --features planted "$target" "$scratch" -- -max_total_time=300 -max_len=65536 \
		-artifact_prefix="$scratch/" >"$log" 2>&1
	rm -rf "$scratch"
	control='planted claim refuted'
	grep -q 'planted: ' "$log" || { control='the planted claim was not refuted in 300 s'; status=1; }
	if cargo +nightly fuzz run "$target" -- "-max_total_time=$seconds" -max_len=65536 -timeout=60 >"$log" 2>&1; then
		echo "$target: $(grep -o '^Done [0-9]* runs in [0-9]* second(s)' "$log"), coverage $(grep -o 'cov: [0-9]*' "$log" | tail -n 1), $control"
	else
		echo "$target: failed, $control"
		tail -n 40 "$log"
		status=1
	fi
done
exit $status
