# Sourced by library.sh and run.sh beside it: systems in an emulator, with Debian's programs in
# their initial file system. The first process of a system runs commands, prints marked lines, and
# powers off. Functions here then look for these lines. Needs everything that fetch.sh needs, and
# qemu, busybox and cpio.
#
# The caller sets $work, a scratch directory, and prints `failed` and `absent` at its end.

root=$work/root
failed=0 absent=()
# shellcheck source=tests/kernels/fetch.sh
. "$(dirname "${BASH_SOURCE[0]}")/fetch.sh"

# Prints the directory of packages that are unpacked together, once. A changed list needs a new
# NAME.
unpacked() { # NAME "PACKAGE..." APT-OPTION...
	local name=$1 packages=$2 tree=$cache/$1.d
	shift 2
	if [ ! -e "$tree" ]; then
		rm -rf "$tree.part" "$work/debs"
		mkdir -p "$tree.part" "$work/debs"
		# shellcheck disable=SC2086 # several
		(cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root "$@" download $packages >&2) || return 1
		for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$tree.part"; done
		rm -rf "$work/debs" "$tree.part"/usr/share/{doc,man,locale,info}
		mv "$tree.part" "$tree"
	fi
	echo "$tree"
}

# Makes $root an initial file system with these programs, the few files that base-files lacks, and
# busybox's applets for missing programs.
furnish_with() { # USERLAND APPLET...
	local userland=$1 applet
	shift
	furnish "$userland/bin/busybox"
	cp -a "$userland"/* "$root/"
	mkdir -p "$root"/{root,home,usr/share,etc}
	printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n' >"$root/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
	for file in hosts hostname shells profile; do echo guest >"$root/etc/$file"; done
	for applet in mount poweroff dmesg ip "$@"; do ln -sf busybox "$root/bin/$applet"; done
}

# The beginning of the first process of every system. The caller's part follows, on standard input.
first_process() {
	cat - >"$root/init.rest"
	cat >"$root/init" <<-'INIT'
		#!/bin/sh
		export PATH=/bin:/usr/bin:/usr/sbin HOME=/root FORKLESS_TEST_EMULATED=1
		mount -t proc none /proc
		mount -t sysfs none /sys
		mount -t devtmpfs none /dev
		mount -t tmpfs none /tmp
		mkdir -p /dev/pts /dev/shm
		mount -t devpts none /dev/pts
		mount -t tmpfs none /dev/shm
		mount -t cgroup2 none /sys/fs/cgroup
		ln -sf /proc/self/fd /dev/fd
		ip link set lo up
		dmesg -n 1
		# Runs something: each of its lines with NAME before it, and its status.
		try() { # NAME COMMAND...
			local name=$1
			shift
			"$@" >/tmp/said 2>&1
			echo "@exit $name $?"
			sed "s/^/$name| /" /tmp/said
		}
		cd /tmp
		echo "@kernel $(uname -r) $(uname -m)"
	INIT
	cat "$root/init.rest" - >>"$root/init" <<-'INIT'
		echo "@end"
		poweroff -f
	INIT
	rm "$root/init.rest"
}

# Boots a kernel with $root. Its output goes to $log, and to $FORKLESS_KERNEL_LOGS.
start() { # NAME KERNEL-TREE MIB SECONDS QEMU...
	local name=$1 tree=$2 memory=$3 limit=$4 console=ttyS0
	shift 4
	[ "$1" != qemu-system-aarch64 ] || console=ttyAMA0
	pack
	log=$work/$name.log
	timeout "$limit" "$@" -m "$memory" -smp 2 -display none -monitor none -no-reboot -kernel "$tree/vmlinuz" -initrd "$work/initrd.gz" \
		-append "console=$console quiet panic=-1" -serial "file:$log.raw" </dev/null >"$work/qemu.log" 2>&1 ||
		echo "        qemu: $(tail -n1 "$work/qemu.log")"
	tr -d '\r' <"$log.raw" >"$log"
	[ -z "${FORKLESS_KERNEL_LOGS-}" ] || cp "$log" "$FORKLESS_KERNEL_LOGS/"
	grep -a '^@kernel' "$log" | sed 's/^@kernel/        Linux/'
}
qemu_x86=(qemu-system-x86_64 -accel tcg -cpu max)
# Pointers signed by the processor's own function would take most of an emulator's time.
qemu_arm64=(qemu-system-aarch64 -M virt -accel tcg -cpu "max,pauth-impdef=on")

expect() { # DESCRIPTION PATTERN: some line of the log matches
	if grep -aqE "$2" "$log"; then passed "$1"; else fail "$1"; fi
}
passed() { echo "ok      $*"; }
fail() {
	echo "FAILED  $*"
	failed=1
}

lacks() { # WHAT WHY
	echo "skipped: $1: $2"
	absent+=("$1: $2")
}

# Prints the directory of the newest kernel of a series, of 5.10, or of Debian testing.
x86_kernel() { # SERIES
	local package
	case $1 in
	5.10) oldest ;;
	testing) testing ;;
	*) package=$(newest "${1/./[.]}[.]" amd64) && kernel "$package" ;;
	esac
}

# The needs of arm64 on this machine: sets `apt` to its apt and `tree` to its kernel. Says what is
# missing.
arm64_tools() {
	local need package
	for need in aarch64-linux-gnu-gcc qemu-system-aarch64; do
		command -v $need >/dev/null || { lacks arm64 "$need is missing"; return 1; }
	done
	rustup target add aarch64-unknown-linux-gnu >/dev/null 2>&1 || { lacks arm64 "rustup has no standard library for it"; return 1; }
	if ! apart arm64 arm64 || ! package=$(newest '6[.]12[.]' arm64 "${apt[@]}") || ! tree=$(kernel "$package" "${apt[@]}"); then
		lacks arm64 "Debian's kernel for it could not be fetched"
		return 1
	fi
	export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
}

# Ends the script if an argument is no system, or if this machine lacks something that every system
# needs.
check_systems() { # NEED... -- SYSTEM...
	local known=yes
	while [ "$1" != -- ]; do
		command -v "$1" >/dev/null || { echo "kernels: $1 is missing" >&2; exit 3; }
		shift
	done
	shift
	for system; do
		case $system in 5.10 | 6.1 | 6.12 | testing | arm64) ;; *) echo "kernels: $system: known are 5.10, 6.1, 6.12, testing and arm64" >&2; known= ;; esac
	done
	[ -n "$known" ] || exit 2
}
