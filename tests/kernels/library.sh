#!/bin/bash
# Runs the library's tests, `forkless doctor`, `bench` and `run` on Debian's other kernels in an
# emulator: 5.10, the oldest supported, 6.1, 6.12, Debian testing's newest, and 6.12 for arm64. A
# command of its own, not for every push. It downloads kernels and programs (apt), and builds for
# arm64 if rustup and Debian's cross compiler are there. A system takes a quarter of an hour on an
# idle machine.
#
#   tests/kernels/library.sh [--tests "WORD..."] [5.10] [6.1] [6.12] [testing] [arm64]  default: all
#
# With --tests, only the library's tests run whose names hold one of the words, and nothing else.
#
# The guests have Debian's own dash, bash and coreutils. TCG's times mean nothing: the few tests
# about time are skipped, and counted. Exit 1 if a system does not behave as it should, 3 if
# something needed is missing. A system that cannot be had is named.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$top/target}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/kernels/guest.sh
. "$(dirname "$0")/guest.sh"
only=
if [ "${1-}" = --tests ]; then
	only=${2:?kernels: --tests needs words}
	shift 2
fi
[ $# -gt 0 ] || set -- 5.10 6.1 6.12 testing arm64
check_systems qemu-system-x86_64 busybox cpio cc dpkg apt-get xz -- "$@"

# Prints the directory of the programs that every system has: Debian's C library, shells and small
# programs.
userland() { # ARCHITECTURE APT-OPTION...
	local architecture=$1
	shift
	unpacked "userland-$architecture" "libc6 libgcc-s1 coreutils dash bash libtinfo6 libselinux1 libpcre2-8-0 libgmp10 libacl1 libattr1 \
		busybox-static base-files" "$@"
}

# Builds the command, the preloaded library, fixtures/diagnose/known_problem.c and the tests into
# $work/bin.
build() { # COMPILER CARGO-OPTION...
	local compiler=$1 path
	shift
	rm -rf "$work/bin"
	mkdir -p "$work/bin"
	(
		cd "$top"
		export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0
		if [ -z "$only" ]; then
			cargo build --quiet --locked --package forkless-cli "$@"
			cargo build --quiet --locked --profile preload --package forkless-preload "$@" 2>/dev/null
		fi
		cargo test --no-run --locked --package forkless --test behaviour --test shell_lines "$@" 2>"$work/built" ||
			{ cat "$work/built" >&2; exit 1; }
	)
	[ $# -gt 0 ] && path=$target/$2 || path=$target
	[ -n "$only" ] || cp "$path/debug/forkless" "$path/preload/libforkless_preload.so" "$work/bin/"
	sed -n 's/^ *Executable.*(\(.*\))$/\1/p' "$work/built" | while read -r path; do
		(cd "$top" && cp "$path" "$work/bin/$(basename "${path%-*}")")
	done
	"$compiler" -O1 -g -fomit-frame-pointer -o "$work/bin/known_problem" "$top/fixtures/diagnose/known_problem.c"
}

# Boots a kernel with all of these. Its output goes to $log.
boot() { # NAME KERNEL-TREE USERLAND QEMU...
	local name=$1 tree=$2 userland=$3
	shift 3
	furnish_with "$userland" ps sed grep
	cp "$work/bin/"* "$root/bin/"
	[ -z "$only" ] || echo "$only" >"$root/only"
	first_process <<-'INIT'
		if [ -e /only ]; then
			try library behaviour $(cat /only)
			echo "@end"
			poweroff -f
		fi
		try doctor forkless doctor --verbose
		try library behaviour
		try lines shell_lines
		try spawn forkless bench spawn --quick --time 5 --no-save --csv -
		try syscalls forkless bench syscalls --quick --time 5 --no-save --csv -
		try context forkless bench context --quick --time 5 --no-save --csv -
		try run forkless run --report=/tmp/report --json -- known_problem forkexec 5 64
		sleep 1
		try report cat /tmp/report
		try shell forkless run -- sh -c 'echo "$0 runs"'
		try fast forkless run --context=fast -- known_problem swapcontext 1000
		try tiers forkless diagnose -d 0.1 -p 1
	INIT
	start "$name" "$tree" 2048 3600 "$@"
}

# Checks the behaviour that every system must have.
judge() {
	expect "the library's tests" '^@exit library 0$'
	echo "        $(sed -n 's/^library| test result: //p' "$log")"
	grep -a '^library|.*\.\.\. \(skipped\|FAILED\)' "$log" | sed 's/^library| test/       /' || true
	expect "the system came to its end" '^@end'
	[ -z "$only" ] || return 0
	expect "doctor" '^@exit doctor 0$'
	expect "the tests of shell lines" '^@exit lines 0$'
	expect "bench spawn" '^spawn\| spawn,forkless,.*,wall,'
	expect "bench syscalls" '^syscalls\| syscalls,vfork\+execve,.*,real,'
	expect "swapcontext makes a system call" '^context\| context,swapcontext,[^,]*,syscalls,[^,]*,[^,]*,[^,]*,[12](\.0*)?,'
	expect "a mask-free switch makes none" '^context\| context,mask_free,[^,]*,syscalls,[^,]*,[^,]*,[^,]*,0(\.0*)?,'
	expect "run runs a program" '^run\| \{.*"mode": ?"forkexec"'
	expect "run runs a shell" '^shell\| sh runs'
}

speculated() {
	[ -z "$only" ] || return 0
	expect "run speculates: 5 of 5 forks committed" '^report\| .*"committed": ?5'
}
not_speculated() { # WHY, a pattern
	[ -z "$only" ] || return 0
	expect "run says once why forks are left as they are" "^doctor\| run: .*$1"
	if grep -aqE '^report\| .*"committed": ?[1-9]' "$log"; then fail "a fork was speculated"; fi
}

x86() { # NAME
	local tree userland
	tree=$(x86_kernel "$1") || { lacks "Linux $1" "Debian's package could not be fetched"; return; }
	userland=$(userland amd64) || { lacks "Linux $1" "its programs could not be fetched"; return; }
	[ -e "$work/bin/behaviour" ] || build cc
	boot "$1" "$tree" "$userland" "${qemu_x86[@]}"
	judge
	if [ "$1" = 5.10 ]; then not_speculated 'lacks syscall user dispatch'; else speculated; fi
}

arm64() {
	local tree userland
	arm64_tools || return 0
	userland=$(userland arm64 "${apt[@]}") || { lacks arm64 "its programs could not be fetched"; return; }
	build aarch64-linux-gnu-gcc --target aarch64-unknown-linux-gnu
	boot arm64 "$tree" "$userland" "${qemu_arm64[@]}"
	judge
	not_speculated 'exists on x86-64 only'
	rm -rf "$work/bin"
}

for system; do
	echo "== $system"
	begun=$SECONDS
	if [ "$system" = arm64 ]; then arm64; else x86 "$system"; fi
	echo "        $((SECONDS - begun)) s"
done
echo "not here: ${#absent[@]}${absent:+ (${absent[*]})}; $SECONDS s"
exit $failed
