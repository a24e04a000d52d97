#!/bin/bash
# Runs the portable suites of `forkless bench` with one static binary under this kernel, Debian's 6.1 and 6.12 kernels in an
# emulator, and gVisor, and compares them in one report. `./x kernels` builds the binary and starts this.
#
#   tests/kernels/bench.sh BINARY OUTPUT-DIRECTORY [PACKAGE...]   default: the newest 6.1 and 6.12 cloud kernels apt offers
#
# With FORKLESS_ARM64 in the environment, a static binary for arm64, a fifth system is Debian's 6.12 for arm64, emulated too.
#
# The emulator's absolute times mean nothing, and the report says so: what is compared are ratios within each system. On the
# emulated kernels the block-device suite runs too, for they have a device mapper. Exit 1 if a system gives no result or
# shows another behaviour than all kernels should, 3 if something needed is missing; what cannot be had is named.
set -euo pipefail
binary=$(realpath "$1")
output=$(realpath -m "$2")
shift 2
for need in qemu-system-x86_64 busybox cpio dpkg apt-get; do
	command -v $need >/dev/null || { echo "kernels: $need is missing" >&2; exit 3; }
done
cache=${FORKLESS_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-kernels}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache" "$output"
rm -f "$output"/*.json "$output"/*.log
bench=(bench all --suites spawn,cow,syscalls,context --quick --time 10 --no-save)

newest() { apt-cache search --names-only "^linux-image-$1.*-cloud-amd64-unsigned\$" | cut -d' ' -f1 | sort -V | tail -1; }
[ $# -gt 0 ] || set -- "$(newest '6[.]1[.]')" "$(newest '6[.]12[.]')"

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
# Every field before the median is without a comma: suite, method, params, metric, unit, estimate, n, median.
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

echo "== this kernel"
"$binary" "${bench[@]}" --json "$output/this.json" >"$output/this.log"
delivered this
shapes this

echo "== gVisor"
if command -v runsc >/dev/null; then
	timeout 600 runsc --root "$work/runsc" --platform=ptrace --network=none --ignore-cgroups do "$binary" "${bench[@]}" --json - \
		>"$output/gvisor.json" 2>"$output/gvisor.log" || true
	delivered gvisor
else
	echo "skipped: runsc is not installed"
fi

# Boots KERNEL-TREE (vmlinuz, modules) in an emulator with BINARY and BUSYBOX of its architecture. The results come out by the
# console, compressed and in printable characters, between two lines that nothing else prints.
emulate() { # NAME KERNEL-TREE BINARY BUSYBOX CONSOLE QEMU...
	local name=$1 tree=$2 program=$3 busybox=$4 console=$5 root=$work/root part before target
	shift 5
	rm -rf "$root"
	mkdir -p "$root"/{bin,proc,sys,tmp,dev,etc,modules}
	cp "$program" "$root/bin/forkless"
	cp "$busybox" "$root/bin/busybox"
	for applet in sh cat echo mount poweroff uname insmod dmesg gzip base64; do ln -s busybox "$root/bin/$applet"; done
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
	chmod +x "$root/init"
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd.gz"
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

# Fetches and unpacks a kernel package once; prints where.
kernel() { # PACKAGE APT-OPTION...
	local package=$1 tree=$cache/$1.d
	shift
	if [ ! -e "$tree/vmlinuz" ]; then
		rm -rf "$work/unpacked" "$tree.part" "$tree"
		mkdir -p "$tree.part"
		(cd "$work" && apt-get -qq -o APT::Sandbox::User=root "$@" download "$package" && dpkg -x "$package"_*.deb unpacked) >&2
		cp "$work"/unpacked/boot/vmlinuz-* "$tree.part/vmlinuz"
		find "$work/unpacked" \( -name 'dm-mod.ko*' -o -name 'loop.ko*' \) -exec cp {} "$tree.part/" \;
		# busybox reads no compressed modules.
		find "$tree.part" -name '*.xz' -exec xz -d {} +
		rm -rf "$work"/*.deb
		mv "$tree.part" "$tree"
	fi
	echo "$tree"
}

for package; do
	echo "== $package, in qemu (TCG: its absolute times are meaningless)"
	name=${package#linux-image-}
	name=${name%-cloud-amd64-unsigned}
	emulate "$name" "$(kernel "$package")" "$binary" "$(command -v busybox)" ttyS0 qemu-system-x86_64 -accel tcg -cpu max
	shapes "$name"
done

# The same on arm64, if the caller built for it.
if [ -n "${FORKLESS_ARM64-}" ]; then
	echo "== arm64, in qemu (TCG: its absolute times are meaningless)"
	mkdir -p "$work"/apt/{lists,archives}/partial
	# Lists and status of this architecture alone: the machine's own apt does not learn of it.
	arm64=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::lists=$work/apt/lists" -o Dir::State::status=/dev/null
		-o "Dir::Cache::archives=$work/apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
	apt-get -qq -o APT::Sandbox::User=root "${arm64[@]}" update
	package=$(apt-cache "${arm64[@]}" search --names-only '^linux-image-6[.]12[.].*-cloud-arm64-unsigned$' | cut -d' ' -f1 | sort -V | tail -1)
	(cd "$work" && apt-get -qq -o APT::Sandbox::User=root "${arm64[@]}" download busybox-static && dpkg -x busybox-static_*.deb busybox && rm ./*.deb)
	name=${package#linux-image-}
	name=${name%-cloud-arm64-unsigned}-arm64
	emulate "$name" "$(kernel "$package" "${arm64[@]}")" "$FORKLESS_ARM64" "$work/busybox/bin/busybox" ttyAMA0 \
		qemu-system-aarch64 -M virt -accel tcg -cpu max
	expect "$name" "every page faults after a fork" '$1 == "cow" && $2 == "fork" && $3 ~ /dead pages=base/ && $4 == "faults" && $8 >= 25000'
	expect "$name" "none after ours" '$1 == "cow" && $2 == "forkless" && $3 ~ /pages=base/ && $4 == "faults" && $8 < 1000'
else
	echo "skipped: arm64: no binary was built for it"
fi

cd "$output"
"$binary" compare "${results[@]}" --markdown --metric wall,blocked,real,first,after,faults,syscalls >report.md || failed=1
echo
echo "the report: $output/report.md, $(grep -c '^|' report.md) lines; $(grep -c 'in qemu TCG' report.md) systems marked as emulated"
exit $failed
