#!/bin/sh
# Runs `forkless diagnose` on Debian's other kernels in an emulator and checks that each tier that works there gives the
# same findings. A command of its own, not for every push: it downloads kernels (apt) and takes minutes.
#
#   tests/kernels/diagnose.sh [PACKAGE-PATTERN ...]      default: the newest 6.1 and 6.12 cloud kernels apt offers
#
# Needs qemu-system-x86_64, busybox (static), cpio, cc, dpkg and apt; exits 4 and says so without them. TCG's times mean
# nothing and are not looked at. Exit 1 if a kernel gives another answer.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
for need in qemu-system-x86_64 busybox cpio cc dpkg apt-get; do
	command -v $need >/dev/null || { echo "SKIPPED: no $need"; exit 4; }
done
cache=${FORKLESS_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-kernels}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"

newest() { apt-cache search --names-only "^linux-image-$1.*-cloud-amd64-unsigned\$" | cut -d' ' -f1 | sort -V | tail -1; }
[ $# -gt 0 ] || set -- "$(newest '6[.]1[.]')" "$(newest '6[.]12[.]')"

cargo build --release -q -p forkless-cli --manifest-path "$top/Cargo.toml"
root=$work/root
mkdir -p "$root/bin" "$root/lib64" "$root/proc" "$root/sys" "$root/tmp" "$root/dev" "$root/etc" "$root/usr/bin"
cp "$top/target/release/forkless" "$root/bin/forkless"
cc -O1 -g -static -fomit-frame-pointer -o "$root/bin/victim" "$top/fixtures/victims/victim.c"
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in sh true sleep cat echo mount poweroff uname; do ln -s busybox "$root/bin/$applet"; done
# The tool is linked dynamically: take its libraries to where they are looked for.
ldd "$root/bin/forkless" | grep -o '/[^ ]*' | while read -r library; do
	mkdir -p "$root$(dirname "$library")"
	cp -L "$library" "$root$library"
done
cat >"$root/init" <<'INIT'
#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
echo "@kernel $(uname -r)"
try() {
	echo "@run $*"
	forkless diagnose --json "$@" 2>&1
	echo "@exit $?"
}
forkless diagnose -d 0.1 -p 1 2>&1
try -- victim forkexec 5 256
try -- victim snapshot 3 64
try -- victim swapcontext 20000
try -- victim missing 10
try --log -- victim vfork 3
echo "@tracepoints"
try --tier tracepoints -- victim forkexec 6 256
try --tier tracepoints --log -- victim spawn 4
echo "@end"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd.gz"

failed=0
for package; do
	image=$cache/$package
	if [ ! -e "$image" ]; then
		(cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package" && dpkg -x "$package"_*.deb unpacked && mv unpacked/boot/vmlinuz-* "$image.part")
		mv "$image.part" "$image"
		rm -rf "$work/unpacked" "$work"/*.deb
	fi
	log=$work/$package.log
	timeout 900 qemu-system-x86_64 -accel tcg -cpu max -m 1536 -smp 2 -nographic -no-reboot -kernel "$image" \
		-initrd "$work/initrd.gz" -append 'console=ttyS0 quiet panic=-1' >"$log" 2>&1 </dev/null || true
	echo "== $package: $(grep -a '^tier: ' "$log" | tr -d '\r' | tr '\n' ';')"
	expect() {
		if grep -aqE "$2" "$log"; then echo "   ok      $1"; else echo "   FAILED  $1"; failed=1; fi
	}
	expect "a BPF tier works" '^tier: BPF .*works'
	expect "full forks that exec, 5 of 5" '"full_fork_then_exec":5.*"kind":"full_fork_then_exec".*"count":5,'
	expect "their call site" '"function":"fork_for_exec"'
	expect "forks that do not exec" '"full_fork_alone":3'
	expect "needless mask calls" '"kind":"needless_signal_mask"'
	expect "a missing program, 10 of 10" '"kind":"missing_program".*"count":10,'
	expect "three vforks in the log" '"call":"vfork","flags":16640,"kind":"vfork_like"'
	expect "the tracepoint tier, 6 of 6" '"tier":"bpf_tracepoints".*"full_fork_then_exec":6.*"kind":"full_fork_then_exec".*"count":6,'
	expect "the tracepoint tier logs posix_spawn" '^4 process creations, 0 lost'
	expect "the system came to its end" '^@end'
	if [ "$failed" = 1 ]; then tr -d '\r' <"$log" | cut -c1-400 | tail -40; fi
done
exit $failed
