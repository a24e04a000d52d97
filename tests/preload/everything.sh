#!/bin/bash
# Whole systems under /etc/ld.so.preload: no message, the same result, and the time of both. A
# command of its own, not for every push: it needs root, debootstrap and a mirror of Debian.
#
#   tests/preload/everything.sh [--library FILE] [--rounds N] [--files N] [--with NAME=VALUE] [WORKLOAD...]
#
# Workloads, all without an argument:
#   apt    apt-get install of 100 packages and more, downloaded before, in a tree of Debian
#   make   make -j2 of --files (2,000) generated C files, with that tree's compiler
#   cargo  cargo test -p forkless-shell of this repository, as a CI job does it, on this system
#
# Each round runs a workload plainly and preloaded, in turns of changing order, each in a mount
# namespace of its own above the same tree: no file of this system is touched. Compared are the exit
# status, the output, and the files that were made (kind, mode, owner, content), without those that
# hold times. A workload ends with the median of its rounds' ratios, by the clock and by processor
# time. The latter varies less where other programs run.
# --with sets a variable in the preloaded runs, such as FORKLESS=off, or FORKLESS_OPTIONS=record=FILE
# with a file in /tmp: apt and make leave it in --records, if that names a folder.
# FORKLESS_PRELOAD_STORE (~/.cache/forkless-preload) keeps the tree.
#
# Exit 1 if an outcome differs or the loader or the library says something, 2 for a wrong argument,
# 3 if something needed is missing.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
store=${FORKLESS_PRELOAD_STORE:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-preload}
library='' rounds=5 files=2000 extra='' records='' wanted=()
while [ $# -gt 0 ]; do
	case $1 in
	--library) library=$(realpath -- "${2:?--library needs a file}") && shift ;;
	--rounds) rounds=${2:?--rounds needs a number} && shift ;;
	--files) files=${2:?--files needs a number} && shift ;;
	--with) extra=${2:?--with needs NAME=VALUE} && shift ;;
	--records) records=$(realpath -- "${2:?--records needs a folder}") && shift ;;
	apt | make | cargo) wanted+=("$1") ;;
	*) echo "everything: no workload is called $1; there are: apt make cargo" >&2 && exit 2 ;;
	esac
	shift
done
[ ${#wanted[@]} -gt 0 ] || wanted=(apt make cargo)
missing() { echo "everything: $1" >&2 && exit 3; }
[ "$(id -u)" = 0 ] || missing "only root can make mount namespaces"
unshare --mount true || missing "no mount namespace may be made here"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
if [ -z "$library" ]; then
	(cd "$top" && cargo build --quiet --locked --profile preload --package forkless-preload) || exit 3
	library=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/preload/libforkless_preload.so
fi
# A copy: no build replaces it while programs run with it.
cp "$library" "$work/libforkless-run.so"

# Packages whose installation pulls in more than a hundred, with many scripts.
packages="build-essential git python3 perl vim-tiny ruby"

# The tree, with the packages downloaded. Made once.
tree() {
	[ -e "$store/tree/.downloaded" ] && return
	command -v debootstrap >/dev/null || missing "debootstrap is not installed: apt-get install debootstrap"
	local release
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	rm -rf "$store/tree" && mkdir -p "$store"
	echo "everything: making a tree of Debian $release in $store" >&2
	debootstrap --variant=minbase "$release" "$store/tree" http://deb.debian.org/debian >"$store/log" 2>&1 ||
		missing "debootstrap failed: $store/log"
	# shellcheck disable=SC2086
	chroot "$store/tree" apt-get install -qq -y --no-install-recommends --download-only $packages >>"$store/log" 2>&1 ||
		missing "the packages cannot be downloaded: $store/log"
	touch "$store/tree/.downloaded"
}

# For make: the same tree with the packages installed, and the sources. Made once.
built_tree() {
	tree
	if [ ! -e "$store/built/.installed" ]; then
		rm -rf "$store/built" && cp -a "$store/tree" "$store/built"
		# shellcheck disable=SC2086
		chroot "$store/built" env DEBIAN_FRONTEND=noninteractive \
			apt-get install -qq -y --no-install-recommends $packages >>"$store/log" 2>&1 || missing "apt-get failed: $store/log"
		touch "$store/built/.installed"
	fi
	rm -rf "$store/built/source" && mkdir "$store/built/source"
	local i
	for i in $(seq "$files"); do
		printf '#include <stdio.h>\n#include <string.h>\nint f%d(const char *s) { return printf("%%s %%zu", s, strlen(s)) + %d; }\n' \
			"$i" "$i" >"$store/built/source/f$i.c"
	done
	cat >"$store/built/source/Makefile" <<'END'
objects := $(patsubst %.c,%.o,$(wildcard *.c))
all: all.a
	@echo "$(words $(objects)) objects in $$(ar t all.a | wc -l) members"
%.o: %.c
	@$(CC) -O1 -c -o $@ $< && test -s $@
all.a: $(objects)
	@ar rcD $@ $(sort $(objects))
END
}

# Above a tree, with files of its own: DIRECTORY has the tree as it was, what is written stays in
# memory. Runs in a mount namespace.
above='
set -e
mount --make-rprivate /
mount -t tmpfs -o size=6G none "$upper"
mkdir "$upper/files" "$upper/work" "$upper/tree"
mount -t overlay -o "lowerdir=$lower,upperdir=$upper/files,workdir=$upper/work" none "$upper/tree"
cp "$library" "$upper/tree/usr/lib/libforkless-run.so"
mount --rbind /dev "$upper/tree/dev"
mount -t proc none "$upper/tree/proc"
[ "$mode" = plain ] || echo /usr/lib/libforkless-run.so >"$upper/tree/etc/ld.so.preload"
set +e
start=$(date +%s%N)
chroot "$upper/tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
	${extra:+"$extra"} sh -c "$line" </dev/null >"$out.output" 2>&1
echo "status $?" >>"$out.output"
echo $(($(date +%s%N) - start)) >"$out.time"
times >"$out.cpu"
rm -f "$upper/tree/etc/ld.so.preload"
[ "$mode" = plain ] || [ -z "$records" ] || cp "$upper"/tree/tmp/*record* "$records"
cd "$upper/files"
find . -xdev ! -type d ! -path "./var/log/*" ! -path "./var/cache/*" ! -path "./tmp/*" ! -path "./run/*" \
	! -name "*.pyc" ! -path "./var/lib/dpkg/*-old" ! -path "./var/lib/apt/extended_states" -printf "%p %y %m %u %l\n" | sort >"$out.files"
find . -xdev -type f ! -path "./var/log/*" ! -path "./var/cache/*" ! -path "./tmp/*" ! -path "./run/*" ! -name "*.pyc" \
	-print0 | sort -z | xargs -0 sha256sum >>"$out.files"
'

# Runs a line in the tree.
in_tree() { # MODE OUT TREE LINE
	local with=
	mkdir -p "$work/upper"
	[ "$1" = plain ] || with=$extra
	mode=$1 out=$2 lower=$3 line=$4 extra=$with records=$records upper=$work/upper library=$work/libforkless-run.so \
		unshare --mount --pid --fork bash -c "$above"
}

once_apt() { # MODE OUT
	in_tree "$1" "$2" "$store/tree" "apt-get install -y --no-install-recommends --no-download $packages"
	# dpkg says how much of its database it has read, and apt how much is free.
	sed -i -E 's/[0-9]+ (files and directories)/N \1/; /disk space will be used/d; /^update-alternatives: /!s/[0-9.]+ ?[kM]?B//g' "$2.output"
}

once_make() { # MODE OUT
	in_tree "$1" "$2" "$store/built" 'cd /source && make -j2 2>&1'
}

once_cargo() { # MODE OUT
	mkdir -p "$work/etc" "$work/cargo"
	rm -rf "$work/cargo/target"
	mode=$1 out=$2 etc=$work/etc library=$work/libforkless-run.so top=$top \
		CARGO_TARGET_DIR=$work/cargo/target unshare --mount --pid --fork --mount-proc bash -c '
		set -e
		mount --make-rprivate /
		mount -t tmpfs none "$etc" && cp -a /etc/. "$etc"
		rm -f "$etc/ld.so.preload"
		[ "$mode" = plain ] || echo "$library" >"$etc/ld.so.preload"
		mount --bind "$etc" /etc
		cd "$top"
		set +e
		start=$(date +%s%N)
		cargo test --locked --offline -p forkless-shell </dev/null >"$out.output" 2>&1
		echo "status $?" >>"$out.output"
		echo $(($(date +%s%N) - start)) >"$out.time"
		times >"$out.cpu"'
	# Order and duration vary.
	sed -i -E '/^ *(Compiling|Blocking|Fresh|Finished|Running|Doc-tests|Downloaded)/d; s/finished in [0-9.]+s//; s/[0-9.]+ ?[mn]?s\b//g' "$2.output"
	sort -o "$2.output" "$2.output"
	: >"$2.files"
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }

median() { printf '%s\n' "$@" | sort -n | awk '{ a[NR] = $1 } END { print NR % 2 ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2 }'; }

# Seconds of processor time that children took, from bash's `times`.
cpu() { awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, /[ms]/); all += part[1] * 60 + part[2] } print all }' "$1"; }

failed=0
for workload in "${wanted[@]}"; do
	case $workload in apt) tree ;; make) built_tree ;; esac
	ratios=() cpus=()
	for round in $(seq "$rounds"); do
		modes='plain preloaded'
		[ $((round % 2)) = 1 ] || modes='preloaded plain'
		for mode in $modes; do "once_$workload" "$mode" "$work/$workload.$mode"; done
		for kind in output files; do
			if ! cmp -s "$work/$workload.plain.$kind" "$work/$workload.preloaded.$kind"; then
				failed=1
				echo "$workload, round $round: the $kind differ:"
				diff "$work/$workload.plain.$kind" "$work/$workload.preloaded.$kind" | head -20
			fi
		done
		if grep -E 'ld\.so|forkless:|libforkless' "$work/$workload.preloaded.output"; then
			failed=1
			echo "$workload, round $round: something was said"
		fi
		grep -q '^status 0$' "$work/$workload.plain.output" || { failed=1 && tail -5 "$work/$workload.plain.output"; }
		ratios+=("$(ratio "$(cat "$work/$workload.preloaded.time")" "$(cat "$work/$workload.plain.time")")")
		cpus+=("$(ratio "$(cpu "$work/$workload.preloaded.cpu")" "$(cpu "$work/$workload.plain.cpu")")")
	done
	[ "$workload" != apt ] || echo "apt: $(grep -c '^Setting up ' "$work/apt.plain.output") packages"
	echo "$workload: preloaded / plain, by time: $(median "${ratios[@]}"), of ${ratios[*]}"
	echo "$workload: preloaded / plain, by processor time: $(median "${cpus[@]}"), of ${cpus[*]}"
done
exit "$failed"
