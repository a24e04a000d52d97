#!/bin/bash
# Runs the portable suites of `forkless bench` with one static binary under this kernel, Debian's 6.1 and 6.12 kernels in an
# emulator, and gVisor, and compares them in one report. `./x kernels` builds the binary and starts this.
#
#   tests/kernels/bench.sh BINARY OUTPUT-DIRECTORY [PACKAGE...]   default: the newest 6.1 and 6.12 cloud kernels apt offers
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

# One root for all kernels but their modules: the binary, busybox, and an init that writes the results to the second serial
# line, whose bytes arrive as they are.
root=$work/root
mkdir -p "$root"/{bin,proc,sys,tmp,dev,etc,modules}
cp "$binary" "$root/bin/forkless"
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh cat echo mount poweroff uname insmod stty; do ln -s busybox "$root/bin/$applet"; done
[ ! -e /etc/localtime ] || cp -L /etc/localtime "$root/etc/localtime"
cat >"$root/init" <<INIT
#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
for module in /modules/*; do insmod \$module; done
echo "@kernel \$(uname -r)"
forkless ${bench[*]} --json /tmp/all.json
echo "@exit \$?"
forkless bench blockwrite --targets loop,mapper --bs 512,4096,6144 --filter buffered --quick --no-save --json /tmp/block.json
echo "@exit \$?"
stty -F /dev/ttyS1 raw
cat /tmp/all.json >/dev/ttyS1
stty -F /dev/ttyS2 raw
cat /tmp/block.json >/dev/ttyS2
echo "@end"
poweroff -f
INIT
chmod +x "$root/init"

for package; do
	echo "== $package, in qemu (TCG: its absolute times are meaningless)"
	tree=$cache/$package.d
	if [ ! -e "$tree/vmlinuz" ]; then
		rm -rf "$work/unpacked" "$tree.part"
		mkdir -p "$tree.part"
		(cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package" && dpkg -x "$package"_*.deb unpacked)
		cp "$work"/unpacked/boot/vmlinuz-* "$tree.part/vmlinuz"
		find "$work/unpacked" \( -name 'dm-mod.ko*' -o -name 'loop.ko*' \) -exec cp {} "$tree.part/" \;
		# busybox reads no compressed modules.
		find "$tree.part" -name '*.xz' -exec xz -d {} +
		rm -rf "$work"/*.deb "$tree"
		mv "$tree.part" "$tree"
	fi
	rm -f "$root"/modules/*
	cp "$tree"/*.ko "$root/modules/" 2>/dev/null || true
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd.gz"
	name=${package#linux-image-}
	name=${name%-cloud-amd64-unsigned}
	timeout 900 qemu-system-x86_64 -accel tcg -cpu max -m 2048 -smp 2 -display none -no-reboot -kernel "$tree/vmlinuz" \
		-initrd "$work/initrd.gz" -append 'console=ttyS0 quiet panic=-1 transparent_hugepage=madvise' \
		-serial "file:$output/$name.log" -serial "file:$output/$name.json" -serial "file:$output/$name-block.json" \
		</dev/null >"$work/qemu.log" 2>&1 || { echo "FAILED  $name: qemu: $(tail -n1 "$work/qemu.log")"; failed=1; }
	delivered "$name"
	shapes "$name"
	before=${#results[@]}
	delivered "$name-block"
	results=("${results[@]:0:before}")
	for target in loop mapper; do
		expect "$name-block" "$target: one read per 4 KiB at bs 512" "\$3 == \"bs=512 target=$target\" && \$4 == \"reads\" && \$8 > 0.97 && \$8 < 1.1"
		expect "$name-block" "$target: none at bs 4096" "\$3 == \"bs=4096 target=$target\" && \$4 == \"reads\" && \$8 < 0.03"
	done
done

cd "$output"
"$binary" compare "${results[@]}" --markdown --metric wall,blocked,real,first,after,faults,syscalls >report.md || failed=1
echo
echo "the report: $output/report.md, $(grep -c '^|' report.md) lines; $(grep -c 'in qemu TCG' report.md) systems marked as emulated"
exit $failed
