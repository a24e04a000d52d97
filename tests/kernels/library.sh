#!/bin/bash
# Runs the library's tests, `forkless doctor`, `bench` and `run` on Debian's other kernels in an emulator: 5.10, the oldest that is
# supported, 6.1, 6.12, and 6.12 for arm64. A command of its own, not for every push: it downloads kernels and programs (apt), builds
# for arm64 where rustup and Debian's cross compiler are at hand, and takes a quarter of an hour a system on an idle machine.
#
#   tests/kernels/library.sh [--tests "WORD..."] [5.10] [6.1] [6.12] [arm64]      default: all of them
#
# With --tests only the library's tests whose names hold one of the words are run, and nothing else.
#
# The guests have Debian's own dash, bash and coreutils. TCG's times mean nothing: the few tests that are about time are skipped, and
# counted. Exit 1 if a system behaves otherwise than it should, 3 if something needed is missing; what cannot be had is named.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
for need in qemu-system-x86_64 busybox cpio cc dpkg apt-get xz; do
	command -v $need >/dev/null || { echo "kernels: $need is missing" >&2; exit 3; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
# shellcheck source=tests/kernels/fetch.sh
. "$(dirname "$0")/fetch.sh"
only=
if [ "${1-}" = --tests ]; then
	only=${2:?kernels: --tests needs words}
	shift 2
fi
[ $# -gt 0 ] || set -- 5.10 6.1 6.12 arm64
failed=0 absent=()
target=${CARGO_TARGET_DIR:-$top/target}

# What a program expects of a system: Debian's C library, shells and small programs, unpacked once. Prints where.
userland() { # ARCHITECTURE APT-OPTION...
	local tree=$cache/userland-$1.d
	shift
	if [ ! -e "$tree" ]; then
		rm -rf "$tree.part"
		mkdir -p "$tree.part" "$work/debs"
		(cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root "$@" download libc6 libgcc-s1 coreutils dash bash libtinfo6 \
			libselinux1 libpcre2-8-0 libgmp10 libacl1 libattr1 busybox-static base-files >&2) || return 1
		for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$tree.part"; done
		rm -rf "$work/debs" "$tree.part"/usr/share/{doc,man,locale,info}
		mv "$tree.part" "$tree"
	fi
	echo "$tree"
}

# Builds the command, the preloaded library, the victim and the tests: into $work/bin.
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
	"$compiler" -O1 -g -fomit-frame-pointer -o "$work/bin/victim" "$top/fixtures/victims/victim.c"
}

# Boots a kernel with all of it, and keeps what is said in $log.
boot() { # NAME KERNEL-TREE USERLAND CONSOLE QEMU...
	local name=$1 tree=$2 userland=$3 console=$4
	shift 4
	furnish "$userland/bin/busybox"
	cp -a "$userland"/* "$root/"
	# base-files has none of these, and an initial file system no /usr/share/zoneinfo.
	mkdir -p "$root"/{root,home,usr/share,etc}
	printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
	for file in hosts hostname shells profile; do echo "$name" >"$root/etc/$file"; done
	for applet in mount poweroff dmesg ip ps sed grep; do ln -sf busybox "$root/bin/$applet"; done
	cp "$work/bin/"* "$root/bin/"
	[ -z "$only" ] || echo "$only" >"$root/only"
	cat >"$root/init" <<-'INIT'
		#!/bin/sh
		export PATH=/bin:/usr/bin HOME=/root FORKLESS_TEST_EMULATED=1
		mount -t proc none /proc
		mount -t sysfs none /sys
		mount -t devtmpfs none /dev
		mount -t tmpfs none /tmp
		mkdir -p /dev/pts /dev/shm
		mount -t devpts none /dev/pts
		mount -t cgroup2 none /sys/fs/cgroup
		ln -sf /proc/self/fd /dev/fd
		ip link set lo up
		dmesg -n 1
		try() {
			local name=$1
			shift
			"$@" >/tmp/said 2>&1
			echo "@exit $name $?"
			sed "s/^/$name| /" /tmp/said
		}
		cd /tmp
		echo "@kernel $(uname -r) $(uname -m)"
		if [ -e /only ]; then
			try library behaviour $(cat /only)
			echo "@end"
			poweroff -f
		fi
		try doctor forkless doctor
		try library behaviour
		try lines shell_lines
		try spawn forkless bench spawn --quick --time 5 --no-save --csv -
		try syscalls forkless bench syscalls --quick --time 5 --no-save --csv -
		try context forkless bench context --quick --time 5 --no-save --csv -
		try run forkless run --report=/tmp/report --json -- victim forkexec 5 64
		sleep 1
		try report cat /tmp/report
		try shell forkless run -- sh -c 'echo "$0 runs"'
		try fast forkless run --context=fast -- victim swapcontext 1000
		try tiers forkless diagnose -d 0.1 -p 1
		echo "@end"
		poweroff -f
	INIT
	pack
	log=$work/$name.log
	timeout 3600 "$@" -m 2048 -smp 2 -display none -monitor none -no-reboot -kernel "$tree/vmlinuz" -initrd "$work/initrd.gz" \
		-append "console=$console quiet panic=-1" -serial "file:$log.raw" </dev/null >"$work/qemu.log" 2>&1 ||
		echo "        qemu: $(tail -n1 "$work/qemu.log")"
	tr -d '\r' <"$log.raw" >"$log"
	[ -z "${FORKLESS_KERNEL_LOGS-}" ] || cp "$log" "$FORKLESS_KERNEL_LOGS/"
}

expect() { # DESCRIPTION PATTERN: some line of the log matches
	if grep -aqE "$2" "$log"; then
		echo "ok      $1"
	else
		echo "FAILED  $1"
		failed=1
	fi
}

# What holds on every system.
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
	if grep -aqE '^report\| .*"committed": ?[1-9]' "$log"; then echo "FAILED  a fork was speculated"; failed=1; fi
}

lacks() { # WHAT WHY
	echo "skipped: $1: $2"
	absent+=("$1: $2")
}

x86() { # NAME KERNEL-TREE
	local userland
	userland=$(userland amd64) || { lacks "Linux $1" "its programs could not be fetched"; return 1; }
	[ -e "$work/bin/behaviour" ] || build cc
	boot "$1" "$2" "$userland" ttyS0 qemu-system-x86_64 -accel tcg -cpu max
	judge
}

arm64() {
	local package tree userland
	rustup target add aarch64-unknown-linux-gnu >/dev/null 2>&1 || { lacks arm64 "rustup has no standard library for it"; return; }
	for need in aarch64-linux-gnu-gcc qemu-system-aarch64; do
		command -v $need >/dev/null || { lacks arm64 "$need is missing"; return; }
	done
	if ! apart arm64 arm64 || ! package=$(newest '6[.]12[.]' arm64 "${apt[@]}") || ! tree=$(kernel "$package" "${apt[@]}") ||
		! userland=$(userland arm64 "${apt[@]}"); then
		lacks arm64 "Debian's packages for it could not be fetched"
		return
	fi
	export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
	build aarch64-linux-gnu-gcc --target aarch64-unknown-linux-gnu
	boot arm64 "$tree" "$userland" ttyAMA0 qemu-system-aarch64 -M virt -accel tcg -cpu max,pauth-impdef=on
	judge
	not_speculated 'exists on x86-64 only'
	rm -rf "$work/bin"
}

for system; do
	echo "== $system"
	begun=$SECONDS
	case $system in
	5.10)
		if tree=$(oldest); then x86 5.10 "$tree" && not_speculated 'lacks syscall user dispatch'; else lacks "Linux 5.10" "Debian's package could not be fetched"; fi
		;;
	6.*)
		if package=$(newest "${system/./[.]}[.]" amd64) && tree=$(kernel "$package"); then
			x86 "$system" "$tree" && speculated
		else
			lacks "Linux $system" "Debian's package could not be fetched"
		fi
		;;
	arm64) arm64 ;;
	*) echo "kernels: $system: known are 5.10, 6.1, 6.12 and arm64" >&2; exit 2 ;;
	esac
	echo "        $((SECONDS - begun)) s"
done
echo "not here: ${#absent[@]}${absent:+ (${absent[*]})}; $SECONDS s"
exit $failed
