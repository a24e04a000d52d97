# The Linux Test Project's tests of system calls. Debian has no package of them. LTP_DIR names a
# tree of their sources, which is copied and built once (a quarter of an hour). The suite needs
# autoconf, automake, m4, unshare, root, and hours for all cases: choose with --cases.
#
# Each case runs in namespaces of its own, with a temporary directory in memory. It is a child of
# the namespaces' first process, which ignores signals, and is ended after two minutes.
# shellcheck shell=bash

# Left out: tests that set the clock, the host's swap, modules, accounting or quotas, restart the
# machine, or fill its memory.
ltp_left_out='adjtime|clock_settime|settimeofday|^stime|leapsec|swapo|_module|reboot|kexec|^acct|quotactl|oom|kmsg|sysinfo|ioperm|iopl'

prepare() {
	[ "$(id -u)" = 0 ] || { echo "suites: ltp needs root, for its namespaces"; return 1; }
	ltp=$source/installed
	[ -e "$ltp/.built" ] && return
	if [ ! -e "${LTP_DIR:-/nonexistent}/runtest/syscalls" ]; then
		echo "suites: ltp needs LTP_DIR=DIRECTORY with the sources of github.com/linux-test-project/ltp, which Debian has no package of"
		return 1
	fi
	local program
	for program in autoconf automake m4 make unshare; do
		type "$program" >/dev/null || { echo "suites: ltp needs $program"; return 1; }
	done
	rm -rf "$source/tree" "$ltp" && cp -r "$LTP_DIR" "$source/tree" || return 1
	(
		cd "$source/tree" && make autotools && ./configure "--prefix=$ltp" &&
			make -j "$(nproc)" -C testcases/kernel/syscalls && make -C testcases/lib &&
			for part in testcases/kernel/syscalls testcases/lib runtest; do make -C "$part" install || exit; done
	) >"$source/log" 2>&1 && touch "$ltp/.built" || { echo "suites: ltp is not built: $source/log says why"; return 1; }
}

ltp_list() { grep -vE '^ *(#|$)' "$ltp/runtest/syscalls"; }

cases() { ltp_list | awk '{ print $1 }' | grep -vE "$ltp_left_out"; }

one() {
	local command
	command=$(ltp_list | awk -v name="$1" '$1 == name { $1 = ""; print; exit }')
	# shellcheck disable=SC2016
	env LTPROOT="$ltp" PATH="$ltp/testcases/bin:$PATH" LTP_COLORIZE_OUTPUT=n KCONFIG_PATH="${KCONFIG_PATH:-/boot/config-$(uname -r)}" \
		timeout -k 5 120 unshare --pid --fork --kill-child --mount --mount-proc --ipc --uts --net sh -c '
			mount -t tmpfs -o size=1g none "$0" && cd "$0" && export TMPDIR="$0"
			"$@"
			status=$?
			ipcs -a | grep -c "^0x"
			exit $status' "$PWD" "${RUN[@]}" sh -c "exec $command"
}

# The results, in any order, since several processes print them. Numbers and names of temporary
# files differ from run to run.
said() {
	grep -aE 'T(PASS|FAIL|BROK|CONF)|^[0-9]+$' |
		sed -E 's/0x[0-9a-f]+/N/g; s/LTP_[A-Za-z0-9]+/LTP_/g; s/[0-9]+/N/g' | sort
}

deviates() {
	case $1 in
	pidfd_send_signal03) echo "it sets the number of the next process (ns_last_pid), which a child gets that is undone" ;;
	fanotify21) echo "a listener is told what an undone child reads, with a number that has ended" ;;
	*) return 1 ;;
	esac
}
