#!/bin/bash
# The units of systemd in the guide, started by systemd. Each drop-in or service is taken from its
# page, and merged with Debian's own unit where there is one. systemd reads it strictly, and starts
# it as process 1 of a PID namespace, on an overlay of this machine's files: nothing of /etc is
# changed. Then a program is started under the settings that units have for their sandboxes, by
# `forkless run` and by LD_PRELOAD. Each must end as without the library, and its report says what
# was speculated.
#
#   tests/units.sh [--forkless COMMAND --library FILE]
#
# A command of its own: it needs root, systemd, overlayfs, a C compiler, apache2 and redis-server
# (their packages' units), and cgroup2 somewhere below /sys/fs/cgroup. systemd cannot limit tasks
# there where version 1 has the controllers: TasksMax= is left out.
# Exit codes: 0 fine, 1 a check failed, 2 usage, 3 something needed is missing.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
built=${CARGO_TARGET_DIR:-$top/target}/release
forkless=$built/forkless library=$built/libforkless_preload.so
missing() { echo "units: $1" >&2 && exit 3; }
case ${1-} in
--forkless)
	forkless=$(realpath -- "${2:?units: --forkless needs a command}")
	[ "${3-}" = --library ] || { echo "units: --forkless needs --library, too" >&2 && exit 2; }
	library=$(realpath -- "${4:?units: --library needs a file}")
	;;
"") ;;
*) echo "units: no argument '$1'" >&2 && exit 2 ;;
esac
for program in systemd-analyze unshare cc apache2 redis-server redis-cli curl; do
	command -v "$program" >/dev/null || missing "$program is not installed: apt-get install systemd util-linux gcc apache2 redis-server curl"
done
[ "$(id -u)" = 0 ] || missing "only root can make namespaces and mounts"
[ -x "$forkless" ] && [ -f "$library" ] || missing "$forkless or $library is missing: ./x build"
cgroups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[ -n "$cgroups" ] || missing "no cgroup2 is mounted"

work=$(mktemp -d) || exit 3
cgroup=$cgroups/forkless-units-$$
mkdir "$cgroup" || exit 3
ended() {
	for _ in $(seq 50); do
		find "$cgroup" -depth -type d -exec rmdir {} \; 2>/dev/null
		[ -d "$cgroup" ] || break
		sleep 0.1
	done
	rm -rf "$work"
}
trap ended EXIT
mkdir -p "$work"/{units,shared,layers,root,bin}
cc -O1 -o "$work/bin/cases" "$top/fixtures/run/preloaded_cases.c" -lpthread || exit 3
cp "$forkless" "$work/bin/forkless" && cp "$library" "$work/bin/library" || exit 3

failed=0
check() { # WHAT EXPECTED GOT
	if [ "$2" = "$3" ]; then echo "units: $1: $3"; else failed=1 && echo "units: FAILED: $1: '$3', not '$2'"; fi
}

# A page's blocks of unit files. Each is written to the file that its first line names; without a
# name nothing is written.
units_of() { # PAGE
	awk -v to="$work/units" '/^```ini$/ { inside = 1; file = ""; next }
		/^```$/ { inside = 0 }
		inside && /^# \/etc\/systemd\/system\// { file = to "/" substr($2, 21); folder = file
			sub("/[^/]*$", "", folder); system("mkdir -p " folder); printf "" >file; next }
		inside && file != "" { print >file }' "$top/docs/guide/$1"
}
# deploy.md's is of the same unit as operate.md's: it is tested as the drop-in of a name of its own.
units_of deploy.md
mkdir "$work/units/preloaded.service.d" && mv "$work/units/apache2.service.d/forkless.conf" "$work/units/preloaded.service.d/" || exit 1
for page in operate.md snapshots.md fleet.md; do units_of $page; done
of_the_guide="apache2.service.d/forkless.conf redis-server.service.d/forkless.conf preloaded.service.d/forkless.conf forkless-diagnose.service"
for unit in $of_the_guide; do [ -s "$work/units/$unit" ] || { check "$unit of the guide" "there" "not there"; exit 1; }; done
# Every unit file of the tree must be in one of these pages.
others=$(grep -rlE '^\[Service\]' "$top/docs" "$top/examples" "$top/packaging" "$top/README.md" | grep -vE '/guide/(deploy|operate|snapshots|fleet)\.md$')
check "unit files elsewhere" "" "$others"
cat >"$work/units/preloaded.service" <<'UNIT'
[Service]
Type=oneshot
ExecStart=/usr/local/bin/cases alone
StandardOutput=file:/run/shared/preloaded
UNIT
sed -i 's|^Environment=.*|& FORKLESS_OPTIONS=record=/run/records/preloaded,fork-minimum=1M,fork-limit=60000|' "$work/units/preloaded.service.d/forkless.conf"

cat >"$work/units/boot.target" <<'UNIT'
[Unit]
DefaultDependencies=no
Wants=tests.service
UNIT
cat >"$work/units/tests.service" <<'UNIT'
[Unit]
DefaultDependencies=no
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
StandardOutput=file:/run/shared/said
StandardError=file:/run/shared/errors
ExecStart=/bin/bash /run/units/tests
UNIT

# What runs there. A line of three fields for each check: WHAT, EXPECTED, GOT.
cat >"$work/units/tests" <<'SCRIPT'
export SYSTEMD_UNIT_PATH=/run/units:
say() { printf '%s\037%s\037%s\n' "$1" "$2" "$3"; }
start() { timeout -s KILL 60 systemctl start "$1"; }
show() { systemctl show -P "$2" "$1"; }
mkdir -m 1777 /run/records
for unit in apache2 redis-server preloaded forkless-diagnose; do
	say "$unit, systemd-analyze verify" "" "$(systemd-analyze verify --man=no --recursive-errors=no $unit.service 2>&1)"
done

# Apache on Debian: Type=forking. Its main process is the daemon, and has the library.
start apache2.service
pid=$(show apache2.service MainPID)
say "apache2, started" "active apache2" "$(show apache2.service ActiveState) $(cat "/proc/$pid/comm")"
say "apache2, library" 1 "$(tr '\0' '\n' <"/proc/$pid/environ" | grep -c '^LD_PRELOAD=.*libforkless')"
say "apache2, mapped" 0 "$(grep -q 'r-xp.*/libforkless' "/proc/$pid/maps"; echo $?)"
say "apache2, a page" 200 "$(curl -s -o /run/page -w '%{http_code}' http://127.0.0.1/)"
systemctl reload apache2.service
say "apache2, reloaded" "0 active $pid" "$? $(show apache2.service ActiveState) $(show apache2.service MainPID)"
systemctl stop apache2.service
say "apache2, stopped" "inactive success" "$(show apache2.service ActiveState) $(show apache2.service Result)"

# redis on Debian: Type=notify, NoExecPaths=/, a filter that kills, PrivateUsers=. Its child saves,
# which is no speculation: merged huge pages show that the library works.
sed -i.whole '/^ExecPaths=/d' /run/units/redis-server.service.d/forkless.conf
systemctl daemon-reload
start redis-server.service 2>/dev/null
say "control: redis without ExecPaths=" "failed 203" "$(show redis-server.service ActiveState) $(show redis-server.service ExecMainStatus)"
mv /run/units/redis-server.service.d/forkless.conf{.whole,}
systemctl daemon-reload
systemctl reset-failed redis-server.service
start redis-server.service
pid=$(show redis-server.service MainPID)
say "redis, started" "active redis-server" "$(show redis-server.service ActiveState) $(cat "/proc/$pid/comm")"
say "redis, notified" "Ready to accept connections" "$(show redis-server.service StatusText)"
say "redis, mapped" 0 "$(grep -q 'r-xp.*/libforkless' "/proc/$pid/maps"; echo $?)"
say "redis, filled" 0 "$(redis-cli eval 'for i=1,200000 do redis.call("set",i,string.rep("x",500)) end' 0 >/dev/null; echo $?)"
huge() { awk '/^AnonHugePages/ { print $2 }' "/proc/$pid/smaps_rollup"; }
saved() {
	redis-cli bgsave >/dev/null
	# Writes split the huge pages that the child shares.
	redis-cli eval 'for i=1,200000,7 do redis.call("setrange",i,0,"y") end' 0 >/dev/null
	for _ in $(seq 300); do
		redis-cli info persistence | grep -q rdb_bgsave_in_progress:0 && break
		sleep 0.1
	done
}
saved
after=$(huge)
merged=no
for _ in $(seq 600); do
	redis-cli ping >/dev/null
	[ "$(huge)" -gt $((after + 20480)) ] && merged=yes && break
	sleep 0.1
done
echo "after a snapshot $after kB in huge pages, then $(huge) kB" >&2
say "redis, merged after a snapshot" yes $merged
saved
say "redis, saved" "rdb_last_bgsave_status:ok" "$(redis-cli info persistence | tr -d '\r' | grep rdb_last_bgsave_status)"
say "redis, alive" "active $pid" "$(show redis-server.service ActiveState) $(show redis-server.service MainPID)"
systemctl stop redis-server.service
say "redis, stopped" "inactive success" "$(show redis-server.service ActiveState) $(show redis-server.service Result)"

start preloaded.service
say "deploy.md's drop-in" "3 of 3 children, 1" "$(cat /run/shared/preloaded)"

# The exporter: it is stopped while it has a finding.
sed -i 's|^ExecStart=.*|& --min-share 0|' /run/units/forkless-diagnose.service
systemctl daemon-reload
start forkless-diagnose.service
for _ in $(seq 300); do
	curl -sf http://127.0.0.1:9469/metrics | grep -q forkless_events_lost && break
	sleep 0.1
done
for _ in $(seq 300); do
	/usr/local/bin/cases alone >/dev/null
	curl -sf http://127.0.0.1:9469/metrics | grep -q '^forkless_findings{.*full_fork' && break
	sleep 0.1
done
say "exporter, a finding" 1 "$(curl -sf http://127.0.0.1:9469/metrics | grep -c '^forkless_findings{.*full_fork_then_exec')"
systemctl stop forkless-diagnose.service
say "exporter, stopped" "inactive success 0" "$(show forkless-diagnose.service ActiveState) $(show forkless-diagnose.service Result) $(show forkless-diagnose.service ExecMainStatus)"

# A program under a unit's settings: as it is, by `forkless run`, and preloaded. The last counts are
# those that committed, or the shells that were left out.
n=0
one() { # CASE RUN PRELOADED FLAGS SETTING...
	local case=$1 by_run=$2 by_preload=$3 flags=$4 counted way ends
	shift 4
	counted=committed && [ "$case" = lines ] && counted=shells_skipped
	for way in plain run preload; do
		n=$((n + 1))
		{
			printf '[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nRemainAfterExit=yes\n'
			printf 'StandardOutput=file:/run/shared/case%s\n' $n
			printf '%s\n' "ReadWritePaths=/run/records" "$@"
			case $way in
			plain) echo "ExecStart=/usr/local/bin/cases $case" ;;
			run) echo "ExecStart=/usr/bin/forkless run --quiet --json --report=/run/records/$n --fork-minimum=1M --fork-limit=60000 $flags -- /usr/local/bin/cases $case" ;;
			preload)
				echo "Environment=LD_PRELOAD=/usr/lib/libforkless-run.so FORKLESS_OPTIONS=record=/run/records/$n,fork-minimum=1M,fork-limit=60000"
				echo "ExecStart=/usr/local/bin/cases $case"
				;;
			esac
		} >/run/units/case$n.service
		start case$n.service
		ends="$(show case$n.service Result) $(show case$n.service ExecMainStatus) $(cat /run/shared/case$n)"
		case $way in
		plain) plain=$ends && continue ;;
		run) expected=$by_run && report=$(cat /run/records/$n) ;;
		preload) expected=$by_preload && report=$(/usr/bin/forkless report --json /run/records/$n) ;;
		esac
		got=$(printf %s "$report" | grep -o "\"$counted\":[0-9]*" | head -n 1 | cut -d : -f 2)
		say "$case, $way, $flags $*" "$plain: $expected" "$ends: $got"
	done
}
service=SystemCallFilter=@system-service
# A system service of process 1 has more filters than process 1 has. By LD_PRELOAD alone it is left
# alone.
one alone 3 3 ""
one alone 3 3 "" User=redis
one alone 3 0 "" User=redis NoNewPrivileges=yes $service SystemCallFilter=mincore
one alone 3 3 "" PrivateUsers=yes
one alone 3 3 "" User=redis ProtectSystem=strict ProtectHome=yes PrivateTmp=yes ProtectProc=invisible ProcSubset=pid
one alone 3 0 "" MemoryDenyWriteExecute=yes
one alone 3 0 "" RestrictNamespaces=yes
one alone 3 0 "" LockPersonality=yes RestrictRealtime=yes SystemCallArchitectures=native
one alone 3 3 "" User=redis LimitNPROC=3
one alone 3 3 "" "NoExecPaths=/" "ExecPaths=/usr/bin/forkless /usr/local/bin/cases /usr/bin /usr/lib"
one alone 0 0 "" RestrictSUIDSGID=yes
one alone 0 0 "" DynamicUser=yes
for case in alone beside_a_thread; do
	one $case 0 0 "" $service
	one $case 0 0 --huge-pages=thp $service
	one $case 3 0 "" $service SystemCallErrorNumber=EPERM
	one $case 3 0 --huge-pages=thp $service SystemCallFilter=mincore
	one $case 3 0 "" $service "SystemCallFilter=~@privileged @resources" SystemCallFilter=mincore
done
one lines 12 8 ""
one lines 0 0 "" $service
one lines 12 0 "" $service SystemCallFilter=mincore
one lines 0 0 "" $service "SystemCallFilter=~@privileged @resources" SystemCallFilter=mincore
one lines 0 0 "" $service "SystemCallFilter=~@privileged @resources" SystemCallErrorNumber=EPERM
say end 1 1
SCRIPT

cat >"$work/boot.sh" <<'SCRIPT'
work=$1 root=$1/root
mount --make-rprivate / && mount -t tmpfs tmpfs "$work/layers" && mkdir "$work/layers"/{upper,work} &&
	mount -t overlay overlay -o "lowerdir=/,upperdir=$work/layers/upper,workdir=$work/layers/work" "$root" || exit 1
mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" || exit 1
umount -l "$root/sys/fs/cgroup" 2>/dev/null
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" || exit 1
for folder in dev run tmp; do mount -t tmpfs tmpfs "$root/$folder" || exit 1; done
cp -a /dev/{null,zero,full,random,urandom,tty} "$root/dev" && mkdir -p "$root/dev"/{pts,shm} && ln -s /proc/self/fd "$root/dev/fd"
mount -t devpts devpts "$root/dev/pts" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" && : >"$root/dev/console"
chmod 755 "$root/run" "$root/dev" && chmod 1777 "$root/tmp"
mkdir "$root/run/shared" && mount --bind "$work/shared" "$root/run/shared" && cp -r "$work/units" "$root/run/units" || exit 1
install -m 755 "$work/bin/forkless" "$root/usr/bin/forkless" && install -m 644 "$work/bin/library" "$root/usr/lib/libforkless-run.so" || exit 1
install -m 755 "$work/bin/cases" "$root/usr/local/bin/cases"
rm -f "$root/etc/ld.so.preload" "$root/etc/forkless/off"
# systemd cannot make the devices of PrivateDevices= on an overlay of this kind, and Restart= would
# hide an end.
printf '[Service]\nPrivateDevices=no\nRestart=no\n' >"$root/run/units/redis-server.service.d/test.conf"
cd "$root" && pivot_root . mnt && exec chroot . /bin/bash -c 'umount -l /mnt; ip link set lo up
	exec env -i container=forkless PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/run/units:/lib/systemd/system \
		/lib/systemd/systemd --system --unit=boot.target --log-target=null --show-status=0'
SCRIPT
(
	echo $BASHPID >"$cgroup/cgroup.procs"
	exec timeout -s KILL 500 unshare --pid --fork --kill-child --mount --uts --ipc --cgroup --net bash "$work/boot.sh" "$work"
) >"$work/log" 2>&1
while IFS=$'\037' read -r what expected got; do check "$what" "$expected" "$got"; done < <(cat "$work/shared/said" 2>/dev/null)
grep -q '^end' "$work/shared/said" 2>/dev/null || { check "the whole test" "ran" "ended early" && tail -n 5 "$work/log"; }
[ $failed = 0 ] || cat "$work/shared/errors"
exit $failed
