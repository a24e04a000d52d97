#!/bin/bash
# Runs `forkless diagnose` on Debian's other kernels in an emulator. Commands of their own, not for every push: they download
# kernels (apt) and take minutes.
#
#   tests/kernels/diagnose.sh [PACKAGE ...]                  each tier that works there gives the same findings, and under
#                                                            lockdown it says what is refused and falls back
#   tests/kernels/diagnose.sh --idle SECONDS [PACKAGE ...]   a machine that does nothing: nothing found, nothing lost, no growth
#   tests/kernels/diagnose.sh --spawn SECONDS [PACKAGE ...]  the same of a machine busy with posix_spawn and vfork alone
#
# The kernels are the newest 6.1 and 6.12 cloud kernels apt offers. Needs qemu-system-x86_64, busybox (static), cpio, cc, dpkg
# and apt; exits 4 and says so without them. TCG's times mean nothing and are not looked at. Exit 1 if a kernel gives another
# answer.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
part=tiers seconds=0
case ${1-} in
--idle | --spawn)
	part=${1#--} seconds=${2-}
	case $seconds in
	'' | *[!0-9]*) echo "usage: ${0##*/} $1 SECONDS [PACKAGE ...]" >&2; exit 2 ;;
	esac
	shift 2
	;;
-*) sed -n '5,8s/^# *//p' "$0" >&2; exit 2 ;;
esac
for need in qemu-system-x86_64 busybox cpio cc dpkg apt-get xz; do
	command -v $need >/dev/null || { echo "SKIPPED: no $need"; exit 4; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
# shellcheck source=tests/kernels/fetch.sh
. "$(dirname "$0")/fetch.sh"
if [ $# = 0 ]; then
	old=$(newest '6[.]1[.]' amd64) && new=$(newest '6[.]12[.]' amd64) || exit 4
	set -- "$old" "$new"
fi

cargo build --release -q -p forkless-cli --manifest-path "$top/Cargo.toml"
furnish "$(command -v busybox)" sh true sleep cat echo mount poweroff uname
cp "$top/target/release/forkless" "$root/bin/forkless"
cc -O1 -g -static -fomit-frame-pointer -o "$root/bin/victim" "$top/fixtures/victims/victim.c"
# The tool is linked dynamically: take its libraries to where they are looked for.
ldd "$root/bin/forkless" | grep -o '/[^ ]*' | while read -r library; do
	mkdir -p "$root$(dirname "$library")"
	cp -L "$library" "$root$library"
done

begin_init() { # what each guest begins with
	cat <<-'INIT'
		#!/bin/sh
		mount -t proc none /proc
		mount -t sysfs none /sys
		mount -t devtmpfs none /dev
		echo "@kernel $(uname -r)"
	INIT
}

tiers_init() {
	cat <<-'INIT'
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
	INIT
}

# Two watches at once, with and without system calls; what they use of memory, each minute. The shell's own `sleep` is all
# that an idle machine starts.
healthy_init() { # SECONDS LOAD
	cat <<-INIT
		forkless diagnose --json --all -d $1 --system-calls no >/tmp/plain 2>&1 & plain=\$!
		forkless diagnose --json --all -d $1 --system-calls yes >/tmp/calls 2>&1 & calls=\$!
		$2
		memory() {
			while read -r key value unit; do
				[ "\$key" != VmRSS: ] || echo "@memory \$1 \$value"
			done <"/proc/\$2/status"
		}
		elapsed=10
		sleep 10
		while [ \$elapsed -lt $(($1 - 5)) ]; do
			memory plain \$plain
			memory calls \$calls
			sleep $(($1 < 120 ? 5 : 60))
			elapsed=\$((elapsed + $(($1 < 120 ? 5 : 60))))
		done
		wait \$plain; echo "@exit plain \$?"
		wait \$calls; echo "@exit calls \$?"
		echo "@report plain \$(cat /tmp/plain)"
		echo "@report calls \$(cat /tmp/calls)"
	INIT
}

# Under lockdown: what the tool says of BPF, and what it finds without. securityfs and tracefs are where systemd mounts them.
lockdown_init() {
	cat <<-'INIT'
		mount -t securityfs none /sys/kernel/security
		mount -t tracefs none /sys/kernel/tracing
		echo "@lockdown $(cat /sys/kernel/security/lockdown)"
		forkless doctor --json 2>&1
		echo "@exit doctor $?"
		forkless diagnose --json -- victim forkexec 5 256 2>&1
		echo "@exit findings $?"
		forkless diagnose --log --all -d 1 2>&1
		echo "@exit log $?"
	INIT
}

boot() { # BODY PARAMETERS: a guest that runs it, with these parameters of its kernel besides; what it says, into $log
	{
		begin_init
		echo "$1"
		echo 'echo "@end"; poweroff -f'
	} >"$root/init"
	pack
	timeout $((seconds + 900)) qemu-system-x86_64 -accel tcg -cpu max -m 1536 -smp 2 -nographic -no-reboot -kernel "$image" \
		-initrd "$work/initrd.gz" -append "console=ttyS0 quiet panic=-1 $2" 2>&1 </dev/null | tr -d '\r' >"$log" || true
}

failed=0 failures=
expect() { # DESCRIPTION PATTERN
	if grep -aqE "$2" "$log"; then echo "   ok      $1"; else fail "$1"; fi
}
fail() {
	echo "   FAILED  $1"
	failed=1 failures=yes
}
finish() { # shows the end of a guest's log if something failed in it
	expect "the system came to its end" '^@end'
	[ -z "$failures" ] || cut -c1-4000 "$log" | tail -60
	failures=
}

check_tiers() {
	expect "a BPF tier works" '^tier: BPF .*works'
	expect "full forks that exec, 5 of 5" '"full_fork_then_exec":5.*"kind":"full_fork_then_exec".*"count":5,'
	expect "their call site" '"function":"fork_for_exec"'
	expect "forks that do not exec" '"full_fork_alone":3'
	expect "needless mask calls" '"kind":"needless_signal_mask"'
	expect "a missing program, 10 of 10" '"kind":"missing_program".*"count":10,'
	expect "three vforks in the log" '"call":"vfork","flags":16640,"kind":"vfork_like"'
	expect "the tracepoint tier, 6 of 6" '"tier":"bpf_tracepoints".*"full_fork_then_exec":6.*"kind":"full_fork_then_exec".*"count":6,'
	expect "the tracepoint tier logs posix_spawn" '^4 process creations, 0 lost'
}

check_healthy() {
	for watch in plain calls; do
		expect "$watch: exit code 0" "^@exit $watch 0"
		expect "$watch: nothing found" "^@report $watch .*\"findings\":\[\]"
		expect "$watch: nothing lost" "^@report $watch .*\"lost_ring\":0,\"lost_live\":0,\"lost_calls\":0"
		# From a quarter on, when the calibration's memory has gone; what grows for ever shows in 2 MiB, if it is given an hour.
		if awk -v watch=$watch '
			$1 == "@memory" && $2 == watch { looks[n++] = $3 }
			END {
				first = looks[int(n / 4)]; last = looks[n - 1]
				printf "           %s: %d KiB after a quarter, %d KiB at last, %d looks\n", watch, first, last, n
				exit !(n > 4 && last <= first + 2048)
			}' "$log"; then
			echo "   ok      $watch: its memory does not grow"
		else
			fail "$watch: its memory does not grow"
		fi
	done
	sed -nE 's/^@report (plain|calls) .*("totals":\{[^}]*\}).*/           \1: \2/p' "$log"
}

check_integrity() {
	expect "the kernel is locked down" '^@lockdown .*\[integrity\]'
	expect "BPF works as without" '"tier":"bpf_.*"full_fork_then_exec":5.*"kind":"full_fork_then_exec".*"count":5,'
	expect "and the log" '^@exit log 0'
}

check_confidentiality() {
	expect "the kernel is locked down" '^@lockdown .*\[confidentiality\]'
	expect "doctor says so" 'lockdown=confidentiality'
	expect "the report says so, too, and is made through perf events" '"tier":"perf","limits":\["no BPF: .*lockdown=confidentiality'
	expect "with all the forks" '"kind":"full_fork_then_exec".*"count":5,'
	expect "the log ends with exit code 3" '^@exit log 3'
	expect "and one line" '^forkless: .*lockdown=confidentiality'
}

case $part in
tiers) body=$(tiers_init) ;;
idle) body=$(healthy_init "$seconds" '') ;;
spawn) body=$(healthy_init "$seconds" '(while :; do victim spawn 2000 64; victim vfork 2000 64; done) >/dev/null &') ;;
esac

for package; do
	image=$(kernel "$package")/vmlinuz || exit 4
	log=$work/$package.log
	boot "$body" ''
	echo "== $package: $(grep -a '^tier: ' "$log" | sort -u | tr '\n' ';')"
	case $part in
	tiers) check_tiers ;;
	*) check_healthy ;;
	esac
	finish
	[ "$part" = tiers ] || continue
	for level in integrity confidentiality; do
		boot "$(lockdown_init)" "lsm=lockdown lockdown=$level"
		echo "== $package, lockdown=$level"
		check_$level
		finish
	done
done
exit $failed
