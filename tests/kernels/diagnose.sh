#!/bin/bash
# Runs `forkless diagnose` on Debian's other kernels in an emulator: 5.10, 6.1, 6.12, and 6.12 for
# arm64. Commands of their own, not for every push. They download kernels (apt), build for arm64 if
# rustup and Debian's cross compiler are there, and take minutes.
#
#   tests/kernels/diagnose.sh [SYSTEM ...]
#       each tier that works there gives the same findings, doctor names these tiers, and under
#       lockdown the tool says what is refused and falls back
#   tests/kernels/diagnose.sh --idle SECONDS [SYSTEM ...]
#       a machine that does nothing: nothing found, nothing lost, no growth
#   tests/kernels/diagnose.sh --spawn SECONDS [SYSTEM ...]
#       the same on a machine that is busy with posix_spawn and vfork alone
#
# SYSTEM is 5.10, 6.1, 6.12 or arm64. The default is all of them; with --idle and --spawn 6.1 and
# 6.12. Needs qemu-system-x86_64, busybox (static), cpio, cc, dpkg and apt. TCG's times mean nothing
# and are not looked at. Exit 1 if a kernel gives another answer. Exit 4, with a message, if
# something is missing that all systems or one of them need.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
part=tiers seconds=0
case ${1-} in
--idle | --spawn)
	part=${1#--} seconds=${2-}
	case $seconds in
	'' | *[!0-9]*) echo "usage: ${0##*/} $1 SECONDS [SYSTEM ...]" >&2; exit 2 ;;
	esac
	shift 2
	;;
-*) sed -n '6,12s/^#   //p' "$0" >&2; exit 2 ;;
esac
for system; do
	case $system in 5.10 | 6.1 | 6.12 | arm64) ;; *) echo "${0##*/}: $system: known are 5.10, 6.1, 6.12 and arm64" >&2; exit 2 ;; esac
done
for need in qemu-system-x86_64 busybox cpio cc dpkg apt-get xz; do
	command -v $need >/dev/null || { echo "SKIPPED: no $need"; exit 4; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
target=${CARGO_TARGET_DIR:-$top/target}
# shellcheck source=tests/kernels/fetch.sh
. "$(dirname "$0")/fetch.sh"
[ $# -gt 0 ] || if [ $part = tiers ]; then set -- 5.10 6.1 6.12 arm64; else set -- 6.1 6.12; fi

# The initial file system: the tool, and fixtures/diagnose/known_problem.c, which needs nothing
# else.
fill() { # BUSYBOX TOOL COMPILER
	furnish "$1" sh true sleep cat echo mount poweroff uname
	cp "$2" "$root/bin/forkless"
	"$3" -O1 -g -static -fomit-frame-pointer -o "$root/bin/known_problem" "$top/fixtures/diagnose/known_problem.c"
}

# The tool is linked dynamically. Its libraries go where the loader looks for them.
x86() {
	qemu=(qemu-system-x86_64 -accel tcg -cpu max) console=ttyS0
	[ "$filled" = x86 ] && return
	cargo build --release -q -p forkless-cli --manifest-path "$top/Cargo.toml"
	fill "$(command -v busybox)" "$target/release/forkless" cc
	ldd "$root/bin/forkless" | grep -o '/[^ ]*' | while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -L "$library" "$root$library"
	done
	filled=x86
}

# Fails, with the reason, if this machine cannot build for arm64.
arm64() { # APT-OPTION...
	local triple=aarch64-unknown-linux-gnu libraries=/usr/aarch64-linux-gnu/lib
	qemu=(qemu-system-aarch64 -M virt -accel tcg -cpu max,pauth-impdef=on) console=ttyAMA0
	[ "$filled" = arm64 ] && return
	rustup target add $triple >/dev/null 2>&1 || { echo "rustup has no standard library for it"; return 1; }
	for need in aarch64-linux-gnu-gcc qemu-system-aarch64; do
		command -v $need >/dev/null || { echo "$need is missing"; return 1; }
	done
	[ -e "$cache/busybox-arm64" ] || (cd "$work" && apt-get -qq -o APT::Sandbox::User=root "$@" download busybox-static &&
		dpkg -x busybox-static_*.deb busybox && cp busybox/bin/busybox "$cache/busybox-arm64") >&2 || { echo "no busybox for it"; return 1; }
	# Its times mean nothing, so it is not optimised.
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_PROFILE_DEV_DEBUG=0 \
		cargo build -q -p forkless-cli --manifest-path "$top/Cargo.toml" --target $triple >&2
	fill "$cache/busybox-arm64" "$target/$triple/debug/forkless" aarch64-linux-gnu-gcc
	mkdir -p "$root/lib"
	cp -L $libraries/{ld-linux-aarch64.so.1,libc.so.6,libm.so.6,libgcc_s.so.1} "$root/lib/"
	filled=arm64
}

begin_init() { # the beginning of each guest's first process
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
		forkless diagnose --verbose -d 0.1 -p 1 2>&1
		forkless doctor --json 2>&1
		try -- known_problem forkexec 5 256
		try -- known_problem snapshot 3 64
		try -- known_problem swapcontext 20000
		try -- known_problem missing 10
		try --log -- known_problem vfork 3
		echo "@tracepoints"
		try --tier tracepoints -- known_problem forkexec 6 256
		try --tier tracepoints --log -- known_problem spawn 4
		echo "@perf"
		try --tier perf -- known_problem forkexec 7 256
		echo "@procfs"
		try --tier procfs -- known_problem snapshot 8 64
		try --tier procfs -- sh -c '( sleep 3; : ); :'
	INIT
}

# Two watches at once, with and without system calls. The guest prints their memory each minute. An
# idle machine starts nothing but the shell's own `sleep`.
healthy_init() { # SECONDS LOAD
	cat <<-INIT
		forkless diagnose --json --all -d $1 --system-calls no >/tmp/plain & plain=\$!
		forkless diagnose --json --all -d $1 --system-calls yes >/tmp/calls & calls=\$!
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

# Under lockdown: the tool's message about BPF, and its findings without BPF. securityfs and tracefs
# are where systemd mounts them.
lockdown_init() {
	cat <<-'INIT'
		mount -t securityfs none /sys/kernel/security
		mount -t tracefs none /sys/kernel/tracing
		echo "@lockdown $(cat /sys/kernel/security/lockdown)"
		forkless doctor --json 2>&1
		echo "@exit doctor $?"
		forkless diagnose --json -- known_problem forkexec 5 256 2>&1
		echo "@exit findings $?"
		forkless diagnose --log --all -d 1 2>&1
		echo "@exit log $?"
	INIT
}

# Boots a guest that runs BODY, with PARAMETERS added to its kernel's. Its output goes to $log. On a
# busy machine the emulated timer fails the kernel's check.
boot() { # BODY PARAMETERS
	{
		begin_init
		echo "$1"
		echo 'echo "@end"; poweroff -f'
	} >"$root/init"
	pack
	timeout $((seconds + 900)) "${qemu[@]}" -m 1536 -smp 2 -nographic -no-reboot -kernel "$image" \
		-initrd "$work/initrd.gz" -append "console=$console quiet panic=-1 no_timer_check $2" 2>&1 </dev/null | tr -d '\r' >"$log" || true
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
	expect "full forks that exec, 5 of 5" '"tier":"bpf_.*"full_fork_then_exec":5.*"kind":"full_fork_then_exec".*"count":5,'
	expect "their call site" '"tier":"bpf_.*"function":"fork_for_exec"'
	expect "forks that do not exec" '"full_fork_alone":3'
	expect "needless mask calls" '"kind":"needless_signal_mask"'
	expect "a missing program, 10 of 10" '"kind":"missing_program".*"count":10,'
	# arm64 has no such system call: there, vfork() is a clone.
	expect "three vforks in the log" '"call":"(vfork|clone)","flags":16640,"kind":"vfork_like"'
	expect "the tracepoint tier, 6 of 6" '"tier":"bpf_tracepoints".*"full_fork_then_exec":6.*"kind":"full_fork_then_exec".*"count":6,'
	expect "the tracepoint tier logs posix_spawn" '^4 process creations, 0 lost'
	check_others
}

# The tiers without BPF.
check_others() {
	expect "perf events, 7 of 7" '"tier":"perf".*"full_fork_then_exec":7.*"kind":"full_fork_then_exec".*"count":7,'
	expect "and the call site" '"tier":"perf".*"function":"fork_for_exec"'
	# The children live 20 ms. That is too short to know that no exec was missed.
	expect "/proc sees children, and accuses none that it may have missed an exec of" '"tier":"procfs".*"creations":[1-8],.*"shared_memory":[1-8],'
	# busybox is the shell, the subshell and the sleep. The file is the same, but only the sleep
	# is an exec.
	expect "/proc sees the fork that lives on, and tells the exec of the same file" '"tier":"procfs".*"creations":2,.*"full_fork_alone":1,"shared_memory":1,'
}

# Before 5.15 the BPF programs cannot run. The tool says so, and uses perf events.
check_5_10() {
	expect "no BPF tier is said to work" '^tier: BPF with tracepoints.*: not here: .*need Linux 5\.15'
	expect "nor by doctor" '^ *"detail": ".*they need Linux 5\.15'
	if grep -aqE '^tier: BPF .*works' "$log"; then fail "a BPF tier is said to work"; fi
	expect "full forks that exec, 5 of 5, through perf events" '"tier":"perf","refused":\[\{"tier":"bpf_tracepoints","why":"[^"]*need Linux 5\.15.*"full_fork_then_exec":5.*"count":5,'
	check_others
}

check_healthy() {
	for watch in plain calls; do
		expect "$watch: exit code 0" "^@exit $watch 0"
		expect "$watch: nothing found" "^@report $watch .*\"findings\":\[\]"
		expect "$watch: nothing lost" "^@report $watch .*\"lost_ring\":0,\"lost_live\":0(,\"lost_calls\":0)?,\"stacks"
		# Counted from the first quarter on, when the calibration's memory has been
		# released. In an hour, endless growth shows in 2 MiB.
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
	expect "the report says so, too, and is made through perf events" '"tier":"perf","refused":\[.*lockdown=confidentiality'
	expect "with all the forks" '"kind":"full_fork_then_exec".*"count":5,'
	expect "the log ends with exit code 3" '^@exit log 3'
	expect "and one line" '^forkless: .*lockdown=confidentiality'
}

case $part in
tiers) body=$(tiers_init) ;;
idle) body=$(healthy_init "$seconds" '') ;;
spawn) body=$(healthy_init "$seconds" '(while :; do known_problem spawn 2000 64; known_problem vfork 2000 64; done) >/dev/null &') ;;
esac

begun=0 filled= absent=()
lacks() { # WHY
	echo "SKIPPED: $system: $1"
	absent+=("$system: $1")
}
for system; do
	case $system in
	5.10)
		image=$(oldest)/vmlinuz || { lacks "Debian's package could not be fetched"; continue; }
		x86
		;;
	6.*)
		image=$(kernel "$(newest "${system/./[.]}[.]" amd64)")/vmlinuz || { lacks "Debian's package could not be fetched"; continue; }
		x86
		;;
	arm64)
		if ! apart arm64 arm64 || ! package=$(newest '6[.]12[.]' arm64 "${apt[@]}") || ! image=$(kernel "$package" "${apt[@]}")/vmlinuz; then
			lacks "Debian's packages for it could not be fetched"
			continue
		fi
		arm64 "${apt[@]}" >"$work/why" || { lacks "$(cat "$work/why")"; continue; }
		;;
	esac
	begun=$SECONDS log=$work/$system.log
	boot "$body" ''
	echo "== $system ($(sed -n 's/.*@kernel //p' "$log")): $(grep -a '^tier: ' "$log" | sort -u | tr '\n' ';')"
	case $part,$system in
	tiers,5.10) check_5_10 ;;
	tiers,*) check_tiers ;;
	*) check_healthy ;;
	esac
	finish
	case $part,$system in
	tiers,6.*)
		for level in integrity confidentiality; do
			boot "$(lockdown_init)" "lsm=lockdown lockdown=$level"
			echo "== $system, lockdown=$level"
			check_$level
			finish
		done
		;;
	esac
	echo "   $((SECONDS - begun)) s"
done
[ ${#absent[@]} = 0 ] || echo "not here: ${#absent[@]} (${absent[*]})"
[ $failed = 0 ] || exit 1
[ ${#absent[@]} = 0 ] || exit 4
