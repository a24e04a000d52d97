#!/bin/bash
# Runs `forkless run` and its preloaded library on Debian's other kernels in an emulator. 5.10 is
# the oldest supported: forks are left alone there. On 6.1 mappings are read from /proc/self/maps,
# on 6.12 a call asks for them. `testing` is the newest kernel of Debian testing. The fifth system is
# 6.12 for arm64. A command of its own, not for every push: it downloads kernels and programs (apt),
# and takes from some minutes to an hour a system.
#
#   tests/kernels/run.sh [--tests "WORD..."] [5.10] [6.1] [6.12] [testing] [arm64]       default: all
#
# With --tests, only the tests run whose names hold one of the words, and nothing else. That is for
# x86-64.
#
# On x86-64 all tests of `forkless run` (crates/forkless-cli/tests/run) run that every `cargo test`
# runs. They run first on this kernel, which compiles their programs and tells the number of tests.
# Then the same files run in each system. Their random children are FORKLESS_SEEDS (20) and all that
# ever failed. A test that cannot run in a system is counted as skipped, with the reason. On arm64:
# run-arm64.sh.
#
# Exit 1 if something does not behave as it should, 2 for a wrong argument, 3 if something needed is
# missing. A system that cannot be had is named and counted. If $FORKLESS_KERNEL_LOGS is set, it
# keeps the guests' whole output.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
work=$(mktemp -d)
[ -z "${FORKLESS_KERNEL_LOGS-}" ] || mkdir -p "$FORKLESS_KERNEL_LOGS"
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/kernels/guest.sh
. "$(dirname "$0")/guest.sh"
# shellcheck source=tests/kernels/run-arm64.sh
. "$(dirname "$0")/run-arm64.sh"
words=()
if [ "${1-}" = --tests ]; then
	read -ra words <<<"${2:?kernels: --tests needs words}"
	shift 2
fi
[ $# -gt 0 ] || set -- 5.10 6.1 6.12 testing arm64
check_systems qemu-system-x86_64 busybox cpio cc strip dpkg apt-get xz cargo -- "$@"

# The programs that the tests start beside their fixtures, and strace for arm64.
programs() { # ARCHITECTURE APT-OPTION...
	local architecture=$1
	shift
	unpacked "run-$architecture-2" "libc6 libgcc-s1 libasan8 coreutils dash grep sed util-linux strace tzdata base-files busybox-static \
		libunwind8 liblzma5 libpcre2-8-0 libselinux1 libgmp10 libacl1 libattr1" "$@"
}

# Reports the tests of a system from its log, and sets $total to their number.
tests() { # MARK: before each of their lines
	local all=$work/tests result skipped
	sed -n "s/^$1//p" "$log" >"$all"
	result=$(sed -n 's/^test result: //p' "$all")
	skipped=$(awk '/^---- .* stdout ----$/ { name = $2 } /^skipped: / { print name ": " $0 }' "$all")
	total=$(grep -c '^test .* \.\.\. ' "$all" || true)
	if [ "${result%%.*}" = ok ]; then passed "$total tests: $result"; else fail "the tests: ${result:-no result}"; fi
	sed -n 's/^test \(.*\) \.\.\. FAILED$/        FAILED \1/p' "$all"
	[ -z "$skipped" ] || sed 's/^/        /' <<<"$skipped"
	echo "        skipped: $(grep -c . <<<"$skipped" || true)"
}

# Builds the tests, and runs them here.
here() {
	local built
	echo "== this kernel"
	(cd "$top" && cargo build --quiet --locked --package forkless-cli)
	built=$(cd "$top" && cargo test --no-run --locked --package forkless-cli --test run 2>&1) || { echo "$built" >&2; exit 1; }
	binary=$(cd "$top" && realpath "$(sed -n 's/^ *Executable.*(\(.*\))$/\1/p' <<<"$built")")
	log=$work/here.log
	"$binary" --show-output "${words[@]}" >"$log" 2>&1 || true
	tests ''
	tests_here=$total
}

# Makes $root a system with Debian's programs. The tests, the command and the fixtures are at the
# places that the tests expect.
x86_root() { # USERLAND
	local file brought=$root/brought
	furnish_with "$1" umount
	mkdir -p "$brought$target"/{debug,tmp/preload/preload}
	strip --strip-debug -o "$root/bin/run-tests" "$binary"
	strip --strip-debug -o "$brought$target/debug/forkless" "$target/debug/forkless"
	cp "$target/tmp/preload/preload/libforkless_preload.so" "$brought$target/tmp/preload/preload/"
	find "$target/tmp" -maxdepth 1 -type f -executable -exec cp {} "$brought$target/tmp/" \;
	ln -s "$target/debug/forkless" "$root/bin/forkless"
	for file in fork_cases inject under_faults; do ln -s "$target/tmp/$file" "$root/bin/$file"; done
	ln -sf ../usr/share/zoneinfo/Europe/Berlin "$root/etc/localtime"
	echo "export FORKLESS_SEEDS=${FORKLESS_SEEDS:-20} FORKLESS_LIBRARY=$target/tmp/preload/preload/libforkless_preload.so words='${words[*]}'" >"$root/settings"
}

x86_init() {
	first_process <<-'INIT'
		# Only now, since a file system may have been mounted above these places.
		cp -a /brought/. / && rm -rf /brought
		. /settings
		echo +memory >/sys/fs/cgroup/cgroup.subtree_control
		echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
		if [ -z "$words" ]; then
			try doctor forkless doctor
			try speculates forkless run --fork-minimum=1M --fork-limit=5000 --json --report=/tmp/report -- fork_cases redirect_and_exec
			sleep 2
			try report cat /tmp/report
			# The library's own calls by their numbers: 0 is read, 16 ioctl, 56 clone.
			case $(uname -r) in 5.10.*) ;; *)
				try calls inject 0 1 /tmp/calls forkless run --quiet --fork-minimum=1M --fork-always --fork-limit=10000 -- under_faults ;;
			esac
			for number in 0 16 56; do echo "@calls $number $(grep -c "^parent $number\$" /tmp/calls 2>/dev/null)"; done
		fi
		# An empty directory, since a shell line lists it.
		mkdir /empty && cd /empty
		(unset FORKLESS_LIBRARY; run-tests --show-output $words 2>&1) | sed 's/^/tests| /'
	INIT
}

number() { # NAME: of calls counted, -1 for none
	sed -nE "s/^@calls $1 ([0-9]+)\$/\1/p" "$log" | grep . || echo -1
}

x86() { # NAME
	local tree userland
	tree=$(x86_kernel "$1") || { lacks "Linux $1" "Debian's package could not be fetched"; return; }
	userland=$(programs amd64) || { lacks "Linux $1" "its programs could not be fetched"; return; }
	x86_root "$userland"
	x86_init
	start "run-$1" "$tree" 3072 3600 "${qemu_x86[@]}"
	[ ${#words[@]} -gt 0 ] || x86_judge "$1"
	tests 'tests| '
	[ "$total" = "$tests_here" ] || fail "$total tests of $tests_here"
	expect "the system came to its end" '^@end'
}

x86_judge() { # NAME
	local reads queries forks
	expect "doctor" '^@exit doctor 0$'
	expect "doctor finds the library" '^doctor\|.*yes +preloaded library'
	expect "a program ends as it should" '^@exit speculates 0$'
	if [ "$1" = 5.10 ]; then
		expect "doctor says that forks are left as they are" '^doctor\| run: .*lacks syscall user dispatch'
		expect "the report says why" '^report\| .*"committed": ?0,.*"reason": ?"NoDispatch"'
	else
		expect "its fork is speculated, and the child commits" '^report\| .*"committed": ?1,'
		reads=$(number 0) queries=$(number 16) forks=$(number 56)
		if [ "$1" = 6.1 ]; then
			if [ "$queries" -gt 0 ] && [ "$queries" -le "$forks" ] && [ "$reads" -gt "$queries" ]; then passed "mappings are read as text"; else fail "mappings are read as text"; fi
		elif [ "$queries" -gt $((4 * forks)) ]; then passed "mappings are asked for"; else fail "mappings are asked for"; fi
		echo "        $forks clones, $queries ioctls, $reads reads of the library in the parent"
	fi
}

[ "$*" = arm64 ] || here
for system; do
	echo "== $system"
	begun=$SECONDS
	if [ "$system" = arm64 ]; then arm64; else x86 "$system"; fi
	echo "        $((SECONDS - begun)) s"
done
echo "not here: ${#absent[@]}${absent:+ (${absent[*]})}; $SECONDS s"
exit $failed
