#!/bin/bash
# Runs the portable suites of `forkless bench` with one static binary, and compares the systems in
# one report. The systems are this kernel, Debian's 6.1 and 6.12 kernels in an emulator, and gVisor.
# build-and-bench.sh (`./x kernels`) builds the binary and starts this script.
#
#   tests/kernels/bench.sh BINARY OUTPUT-DIRECTORY [PACKAGE...]
#
# The default packages are the newest 6.1 and 6.12 cloud kernels that apt offers. If FORKLESS_ARM64
# names a static binary for arm64, a fifth system is Debian's 6.12 for arm64, emulated too.
#
# The emulator's absolute times mean nothing, and the report says so. Only ratios within each system
# are compared. The block-device suite also runs on the emulated kernels, since they have a device
# mapper. Exit 1 if a system gives no result, or shows another behaviour than all kernels should.
# Exit 3 if something needed is missing. A system that cannot be had is named, here and in the
# report, and is no failure.
set -euo pipefail
binary=$(realpath "$1")
output=$(realpath -m "$2")
shift 2
for need in qemu-system-x86_64 busybox cpio dpkg apt-get xz; do
	command -v $need >/dev/null || { echo "kernels: $need is missing" >&2; exit 3; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$output"
# shellcheck source=tests/kernels/fetch.sh
. "$(dirname "$0")/fetch.sh"
rm -f "$output"/*.json "$output"/*.log
bench=(bench all --suites spawn,cow,syscalls,context --quick --time 10 --no-save)

absent=()
if [ $# = 0 ]; then
	for series in 6.1 6.12; do
		if package=$(newest "${series/./[.]}[.]" amd64); then set -- "$@" "$package"; else absent+=("Linux $series: apt has no such kernel"); fi
	done
fi

failed=0
results=()
delivered() { # NAME: is there a whole result?
	if "$binary" history "$output/$1.json" --format csv >"$work/$1.csv" 2>"$work/error"; then
		results+=("$1.json")
		echo "ok      $1: $(cut -d, -f1 "$work/$1.csv" | sed 1d | sort | uniq -c | awk '{printf "%s%s %s rows", s, $2, $1; s=", "}')"
	else
		echo "FAILED  $1: $(cat "$work/error")"
		failed=1
	fi
}
# The fields up to the median contain no comma: suite, method, params, metric, unit, estimate, n,
# median.
expect() { # NAME DESCRIPTION AWK-CONDITION...: some row meets it
	if awk -F, "$3 { found = 1 } END { exit !found }" "$work/$1.csv" 2>/dev/null; then
		echo "ok      $1: $2"
	else
		echo "FAILED  $1: $2"
		failed=1
	fi
}
shapes() {
	expect "$1" "every page faults after a fork" '$1 == "cow" && $2 == "fork" && $3 ~ /dead pages=base/ && $4 == "faults" && $8 >= 25000'
	expect "$1" "none after ours" '$1 == "cow" && $2 == "forkless" && $3 ~ /pages=base/ && $4 == "faults" && $8 < 1000'
	expect "$1" "swapcontext makes a system call" '$1 == "context" && $2 == "swapcontext" && $4 == "syscalls" && $8 >= 1'
	expect "$1" "a mask-free switch makes none" '$1 == "context" && $2 == "mask_free" && $4 == "syscalls" && $8 == 0'
}

# Begins the output about one system, and ends the previous system's with the time it took.
system= begun=0
begin() { # WHAT
	[ -z "$system" ] || echo "        $((SECONDS - begun)) s"
	system=$1 begun=$SECONDS
	[ -z "$system" ] || echo "== $system"
}
lacks() { # WHAT WHY: a system that cannot be had
	echo "skipped: $1: $2"
	absent+=("$1: $2")
}

begin "this kernel"
"$binary" "${bench[@]}" --json "$output/this.json" >"$output/this.log"
delivered this
shapes this

begin "gVisor"
if command -v runsc >/dev/null; then
	timeout 600 runsc --root "$work/runsc" --platform=ptrace --network=none --ignore-cgroups do "$binary" "${bench[@]}" --json - \
		>"$output/gvisor.json" 2>"$output/gvisor.log" || true
	delivered gvisor
	# gVisor lacks close_range. A child that closed every possible number, instead of those in
	# /proc/self/fd, would take half a second.
	expect gvisor "a start takes milliseconds" '$1 == "spawn" && $2 == "forkless" && $4 == "wall" && $8 < 100000'
else
	lacks gVisor "runsc is not installed"
fi

# Boots KERNEL-TREE (vmlinuz, modules) in an emulator with BINARY and BUSYBOX of its architecture.
# The results come over the console, compressed and in printable characters. They stand between two
# lines that nothing else prints.
emulate() { # NAME KERNEL-TREE BINARY BUSYBOX CONSOLE QEMU...
	local name=$1 tree=$2 program=$3 busybox=$4 console=$5 part before target
	shift 5
	furnish "$busybox" sh cat echo mount poweroff uname insmod dmesg gzip base64
	cp "$program" "$root/bin/forkless"
	[ ! -e /etc/localtime ] || cp -L /etc/localtime "$root/etc/localtime"
	cp "$tree"/*.ko "$root/modules/" 2>/dev/null || true
	cat >"$root/init" <<-INIT
		#!/bin/sh
		mount -t proc none /proc
		mount -t sysfs none /sys
		mount -t devtmpfs none /dev
		mount -t tmpfs none /tmp
		for module in /modules/*; do insmod \$module; done
		dmesg -n 1
		echo "@kernel \$(uname -r)"
		forkless ${bench[*]} --json /tmp/all.json
		echo "@exit \$?"
		forkless bench blockwrite --targets loop,mapper --bs 512,4096,6144 --filter buffered --quick --no-save --json /tmp/block.json
		echo "@exit \$?"
		for part in all block; do
			echo "@begin \$part"
			gzip -c /tmp/\$part.json | base64
			echo "@end \$part"
		done
		poweroff -f
	INIT
	pack
	timeout 900 "$@" -m 2048 -smp 2 -display none -monitor none -no-reboot -kernel "$tree/vmlinuz" -initrd "$work/initrd.gz" \
		-append "console=$console quiet panic=-1 transparent_hugepage=madvise" -serial "file:$output/$name.log" \
		</dev/null >"$work/qemu.log" 2>&1 || { echo "FAILED  $name: qemu: $(tail -n1 "$work/qemu.log")"; failed=1; }
	for part in all block; do
		tr -d '\r' <"$output/$name.log" | sed -n "/^@begin $part\$/,/^@end $part\$/p" | sed '1d;$d' | base64 -d 2>/dev/null |
			gunzip >"$output/$name-$part.json" 2>/dev/null || true
	done
	mv "$output/$name-all.json" "$output/$name.json"
	delivered "$name"
	before=${#results[@]}
	delivered "$name-block"
	results=("${results[@]:0:before}")
	for target in loop mapper; do
		expect "$name-block" "$target: one read per 4 KiB at bs 512" "\$3 == \"bs=512 target=$target\" && \$4 == \"reads\" && \$8 > 0.97 && \$8 < 1.1"
		expect "$name-block" "$target: none at bs 4096" "\$3 == \"bs=4096 target=$target\" && \$4 == \"reads\" && \$8 < 0.03"
	done
}

for package; do
	name=${package#linux-image-}
	name=${name%-cloud-amd64-unsigned}
	begin "Linux $name, in qemu (TCG: its absolute times are meaningless)"
	if tree=$(kernel "$package"); then
		emulate "$name" "$tree" "$binary" "$(command -v busybox)" ttyS0 qemu-system-x86_64 -accel tcg -cpu max
		shapes "$name"
	else
		lacks "Linux $name" "its package could not be fetched"
	fi
done

# The same on arm64, if the caller built a binary for it.
arm64() {
	local options package name tree
	mkdir -p "$work"/apt/{lists,archives}/partial
	# Lists and status of this architecture alone, so that the machine's own apt does not learn
	# of it.
	options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::lists=$work/apt/lists" -o Dir::State::status=/dev/null
		-o "Dir::Cache::archives=$work/apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
	if ! apt-get -qq -o APT::Sandbox::User=root "${options[@]}" update ||
		! package=$(newest '6[.]12[.]' arm64 "${options[@]}") || ! tree=$(kernel "$package" "${options[@]}") ||
		! (cd "$work" && apt-get -qq -o APT::Sandbox::User=root "${options[@]}" download busybox-static && dpkg -x busybox-static_*.deb busybox); then
		lacks arm64 "Debian's packages for it could not be fetched"
		return
	fi
	name=${package#linux-image-}
	name=${name%-cloud-arm64-unsigned}-arm64
	emulate "$name" "$tree" "$FORKLESS_ARM64" "$work/busybox/bin/busybox" ttyAMA0 qemu-system-aarch64 -M virt -accel tcg -cpu max,pauth-impdef=on
	expect "$name" "every page faults after a fork" '$1 == "cow" && $2 == "fork" && $3 ~ /dead pages=base/ && $4 == "faults" && $8 >= 25000'
	expect "$name" "none after ours" '$1 == "cow" && $2 == "forkless" && $3 ~ /pages=base/ && $4 == "faults" && $8 < 1000'
}
if [ -n "${FORKLESS_ARM64-}" ]; then
	begin "Linux for arm64, in qemu (TCG: its absolute times are meaningless)"
	arm64
else
	lacks arm64 "no binary was built for it"
fi
begin ""

cd "$output"
"$binary" compare "${results[@]}" --markdown --metric wall,blocked,real,first,after,faults,syscalls >report.md || failed=1
for one in "${absent[@]}"; do printf '%s\n' "- not here: $one" >>report.md; done
echo
echo "the report: $output/report.md, $(grep -c '^|' report.md) lines; $(grep -c 'in qemu TCG' report.md) systems marked as emulated"
echo "not here: ${#absent[@]}${absent:+ (${absent[*]})}; $SECONDS s"
exit $failed
