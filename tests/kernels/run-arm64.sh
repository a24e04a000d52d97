# Sourced by run.sh beside it: `forkless run` on arm64, where forks are left alone. Each program of
# fixtures/run runs with and without it, and the results are compared. strace and the report show
# how the remedies worked.

hold() { # DESCRIPTION CONDITION...
	local what=$1
	shift
	if [ "$@" ]; then passed "$what"; else fail "$what"; fi
}

# Builds for arm64, and makes $root a system with Debian's programs, ours, and the fixtures.
arm64_root() { # USERLAND
	local triple=aarch64-unknown-linux-gnu cc=aarch64-linux-gnu-gcc fixtures=$top/fixtures/run
	local library limits size reserve wanted expected program musl at libc
	(
		cd "$top"
		export CARGO_PROFILE_DEV_DEBUG=0
		cargo build --quiet --locked --package forkless-cli --target $triple
		cargo build --quiet --locked --profile preload --package forkless-preload --target $triple
	)
	library=$target/$triple/preload/libforkless_preload.so
	limits=$top/crates/forkless-preload/limits.txt
	wanted=$(aarch64-linux-gnu-nm -D "$library" | awk '$1 ~ /^[Uw]$/ { sub("@.*", "", $2); print $2 }' | LC_ALL=C sort | xargs)
	expected=$(sed -n 's/^wants-aarch64 //p' "$limits")
	# The zeros of the reserve lie in the file (reserve.rs).
	reserve=$(aarch64-linux-gnu-readelf -SW "$library" | sed -n 's/.* \.reserve  *[A-Z]*  *[^ ]*  *[^ ]* \([^ ]*\) .*/\1/p')
	size=$(($(stat -c %s "$library") - 16#${reserve:-0}))
	if [ "$wanted" = "$expected" ] && [ "$size" -le "$(sed -n 's/^bytes //p' "$limits")" ]; then
		passed "the library: $size bytes, wants $wanted"
	else
		fail "the library: $size bytes, wants $wanted"
	fi

	furnish_with "$1" awk cmp
	ln -sf ../usr/share/zoneinfo/Europe/Berlin "$root/etc/localtime"
	cp "$target/$triple/debug/forkless" "$library" "$root/bin/"
	for program in context_cases shell_cases localtime huge_pages; do
		$cc -O1 -o "$root/bin/$program" "$fixtures/$program.c" -lm -pthread
	done
	$cc -O1 -static -o "$root/bin/static" "$fixtures/static.c"
	$cc -O1 -shared -fPIC -o "$root/lib/plugin.so" "$fixtures/plugin.c" -lpthread
	$cc -O1 -DPROGRAM -o "$root/bin/loads_plugin" "$fixtures/plugin.c"
	# Code in which the processor enforces landing pads. It is in a shared object, since libc's
	# own start code has no landing pads here.
	cat >"$work/guarded.c" <<-'C'
		int cases(int argc, char **argv);
		int main(int argc, char **argv) { return cases(argc, argv); }
	C
	echo 'void *__dso_handle __attribute__((visibility("hidden")));' >"$work/handle.c"
	$cc -O1 -fPIC -shared -nostartfiles -Dmain=cases -mbranch-protection=standard -Wl,-z,force-bti,-soname,libcases.so -o "$root/lib/libcases.so" \
		"$fixtures/context_cases.c" "$work/handle.c" -lm 2>/dev/null
	$cc -O1 -o "$root/bin/context_guarded" "$work/guarded.c" "$root/lib/libcases.so" -lm
	$cc -O1 -o "$root/bin/known_problem" "$top/fixtures/diagnose/known_problem.c"

	# The same object in a program of another C library. This machine's compiler builds it with
	# that library's headers and start files.
	if musl=$(unpacked musl-arm64 "musl musl-dev" "${apt[@]}"); then
		at=$musl/usr/lib/aarch64-linux-musl libc=$musl/lib/aarch64-linux-musl/libc.so
		$cc -O1 -nostdinc -isystem "$musl/usr/include/aarch64-linux-musl" -nostdlib -no-pie -fno-stack-protector \
			-Wl,--dynamic-linker=/lib/ld-musl-aarch64.so.1 -o "$root/bin/shell_cases_musl" "$at/crt1.o" "$at/crti.o" \
			"$fixtures/shell_cases.c" -L "$(dirname "$libc")" -l:libc.so "$at/crtn.o"
		cp "$libc" "$root/lib/ld-musl-aarch64.so.1"
	else
		lacks "musl on arm64" "Debian's packages could not be fetched"
	fi
}

arm64_init() {
	first_process <<-'INIT'

		# Compares standard output and status with and without, except measured times. Keeps
		# standard error.
		same() { # NAME OPTIONS PROGRAM ARGS...
			name=$1 options=$2
			shift 2
			: >with >errors # a line lists the directory
			timeout 300 "$@" >plain 2>/dev/null
			echo "status $?" >>plain
			timeout 300 forkless run $options -- "$@" >with 2>errors
			echo "status $?" >>with
			sed -i '/ ns a call$/d' plain with
			if cmp -s plain with; then
				echo "@same $name $(tail -n1 with)"
			else
				echo "@differs $name"
				sed "s/^/$name plain| /" plain
				sed "s/^/$name with| /" with
			fi
			sed "s/^/$name errors| /" errors
		}
		report() { # NAME: that of the last program
			sleep 1
			sed "s/^/$1 report| /" /dev/shm/report
			rm -f /dev/shm/report
		}
		calls() { # NAME CALL PROGRAM ARGS...: how often it is made
			name=$1 call=$2
			shift 2
			strace -f --seccomp-bpf -o trace -e trace=$call "$@" >/dev/null 2>&1
			echo "@calls $name $(grep -c "$call(" trace)"
		}
		# Not in the working directory, since a shell line lists it.
		counted="--json --report=/dev/shm/report"
		lines() {
			same $1 "$counted" $2 '/bin/echo hello' 'sleep 0.01 > /dev/null' 'LC_ALL=C ls -d /' 'cat < /etc/hostname' \
				'grep SigIgn /proc/self/status' 'grep SigBlk /proc/self/status' 'ls /proc/self/fd' "sh -c 'kill -TERM \$\$'" 'exit 3' 'echo *' \
				'no-such-program-here'
			report $1
		}

		forkless doctor 2>&1 | sed 's/^/doctor| /'

		same context "--context=fast $counted" context_cases
		report context
		cp plain reference
		{ timeout 60 context_guarded 2>/dev/null; echo "status $?"; } >guarded
		cmp -s guarded reference && echo "@guarded plain the same" || echo "@guarded plain $(tail -n1 guarded)"
		{ timeout 60 forkless run --context=fast -- context_guarded 2>/dev/null; echo "status $?"; } >guarded
		cmp -s guarded reference && echo "@guarded fast the same" || echo "@guarded fast $(tail -n1 guarded)"
		calls context-plain rt_sigprocmask context_cases
		calls context-off rt_sigprocmask forkless run -- context_cases
		calls context-fast rt_sigprocmask forkless run --context=fast -- context_cases

		lines lines shell_cases
		same lines-off "--shell=off $counted" shell_cases '/bin/echo hello'
		report lines-off
		[ ! -e /bin/shell_cases_musl ] || lines musl shell_cases_musl

		same tz --tz localtime 200
		calls tz-plain newfstatat localtime 200
		calls tz-with newfstatat forkless run --tz -- localtime 200

		same forks "$counted" dash -c '(exit 1); (exit 2); (exit 3); exit 4'
		report forks
		same speculate --fork=speculate dash -c '/bin/true; exit 5'
		same quiet '--fork=speculate --quiet' dash -c '/bin/true; exit 5'
		echo "follow| $(forkless run -- dash -c 'dash -c "echo ${LD_PRELOAD:-none}"')"
		echo "no| $(forkless run --children=no -- dash -c 'dash -c "echo ${LD_PRELOAD:-none}"')"
		same static '' static
		same plugin --context=fast loads_plugin /lib/plugin.so
		same off "$counted" env FORKLESS=off dash -c '/bin/true; exit 6'

		echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
		same thp '--fork=off --huge-pages=thp' huge_pages pieces 48
		strace -f --seccomp-bpf -o trace -e trace=madvise forkless run --fork=off --huge-pages=thp -- huge_pages pieces 48 >/dev/null 2>&1
		echo "@merged $(grep -c 'COLLAPSE) = 0' trace)"
		pool=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
		for pages in 100 32; do
			echo $pages >$pool
			echo "@pool $pages $(cat $pool)"
			for way in malloc pieces; do
				same hugetlb-$way-$pages '--fork=off --huge-pages=hugetlb' huge_pages $way 48
			done
		done
	INIT
}

arm64_judge() {
	local plain off fast with way
	expect "doctor says that forks are left as they are" '^doctor\| run: .*exists on x86-64 only'
	expect "doctor finds the library" '^doctor\|.*preloaded library.*libforkless_preload.so'
	expect "contexts switch as libc's do" '^@same context status 0'
	expect "their switches are in the report" '^context report\| .*"context_switches":2[0-9]{3}'
	expect "contexts switch in code with landing pads (without: $(sed -n 's/^@guarded plain //p' "$log"))" '^@guarded fast the same'
	plain=$(number context-plain) off=$(number context-off) fast=$(number context-fast)
	hold "rt_sigprocmask: $plain plain, $off without the option, $fast with --context=fast" "$plain" -gt 4000 -a "$off" -ge "$plain" -a "$fast" -lt 20
	expect "lines do without a shell what they do with it" '^@same lines status 0'
	expect "shells are skipped" '^lines report\| .*"shells_kept":6,"shells_skipped":27'
	expect "--shell=off leaves every line to libc" '^lines-off report\| .*"shells_kept":0,"shells_skipped":0'
	if [ -e "$root/bin/shell_cases_musl" ]; then
		expect "the same in a program of musl" '^@same musl status 0'
		expect "where shells are skipped, too" '^musl report\| .*"shells_kept":6,"shells_skipped":27'
	fi
	expect "localtime says the same with --tz" '^@same tz status 0'
	plain=$(number tz-plain) with=$(number tz-with)
	hold "looks at files: $plain plain, $with with --tz" "$plain" -gt 200 -a "$with" -ge 0 -a "$with" -lt 100
	expect "forks go on as before" '^@same forks status 4'
	expect "and are counted" '^forks report\| .*"aborted":0,.*"committed":0,.*"forks":3,.*"plain":3,.*"speculated":0'
	expect "with their call site and the reason" '^forks report\| .*"reason":"NoDispatch".*"site":"[^"]*\+0x'
	expect "--fork=speculate goes on as before" '^@same speculate status 5'
	expect "and says why nothing is speculated" '^speculate errors\| forkless: .*x86-64'
	if grep -aq '^quiet errors|' "$log"; then fail "--quiet is quiet"; else passed "--quiet is quiet"; fi
	expect "children follow" '^follow\| .*libforkless_preload.so'
	expect "--children=no keeps them out" '^no\| none'
	expect "a static program runs plainly, and one line says so" '^static errors\| forkless: .*statically linked'
	expect "the loader's lock is not asked for" '^@same plugin status 0'
	expect "with transparent huge pages a server goes on as before" '^@same thp status 0'
	expect "memory in pieces is merged" '^@merged [1-9]'
	for way in malloc pieces; do
		expect "hugetlb, $way: as before" "^@same hugetlb-$way-100 status 0"
		expect "hugetlb, $way: from the pool" "^hugetlb-$way-100 errors\| pool (4[5-9][0-9]{3}|[5-9][0-9]{4})\$"
		expect "hugetlb, $way, pool too small: as before" "^@same hugetlb-$way-32 status 0"
		expect "hugetlb, $way, pool too small: one line says so" "^hugetlb-$way-32 errors\| forkless: .*going on with smaller pages"
	done
	if grep -aq '^@differs' "$log"; then fail "$(grep -a '^@differs' "$log" | xargs)"; fi
	expect "the system came to its end" '^@end'
}

arm64() {
	local tree userland
	arm64_tools || return 0
	userland=$(programs arm64 "${apt[@]}") || { lacks arm64 "its programs could not be fetched"; return; }
	arm64_root "$userland"
	arm64_init
	start run-arm64 "$tree" 2048 3000 "${qemu_arm64[@]}"
	arm64_judge
}
