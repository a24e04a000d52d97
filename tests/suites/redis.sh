# redis's own tests of operations that fork: snapshots, rewrites of the append-only file,
# replication, debug commands.
# shellcheck shell=bash

prepare() {
	local program
	for program in tclsh redis-server redis-cli redis-benchmark redis-check-aof redis-check-rdb; do
		command -v $program >/dev/null || { echo "suites: $program is not installed"; return 1; }
	done
	fetch_source redis || return 1
	for program in server cli benchmark check-aof check-rdb; do
		ln -sf "$(command -v redis-$program)" "$source/src/redis-$program"
	done
}

cases() {
	(cd "$source/tests" && ls integration/*.tcl unit/*.tcl unit/type/*.tcl | sed 's/\.tcl$//' |
		grep -E '^integration/(aof|aof-multi-part|rdb|block-repl|replication|replication-[234]|replication-buffer|shutdown|logging|failover|redis-cli|redis-benchmark|dismiss-mem|convert-.*|psync2|psync2-reg)$|^unit/(aofrw|dump|other|info|introspection|lazyfree|wait|maxmemory|oom-score-adj|shutdown|latency-monitor|functions)$')
}

# The tests find each other by their directory.
one() {
	mkdir src && cp -r "$source/tests" . && cp -P "$source"/src/redis-{server,cli,benchmark,check-aof,check-rdb} src || return
	TERM=dumb timeout -k 5 400 "${RUN[@]}" tclsh tests/test_helper.tcl --clients 1 --single "$1" --dump-logs
}

# On a busy machine the tests say that they found a slow computer.
said() {
	sed -E -e '/SLOW COMPUTER/d' -e 's/\([0-9]+ (ms|s|seconds)\)//; s/^ +[0-9]+ seconds - //; s/\[ready\]: [0-9]+/[ready]/; s/[pP]id:? ?[0-9]+/pid N/g; s/0x[0-9a-f]{6,}/ADDRESS/g' \
		-e 's/port [0-9]+|:[0-9]{5}\b/port N/g'
}
