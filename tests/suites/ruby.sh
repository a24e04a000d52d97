# Ruby's own tests about processes, of the release of Debian's Ruby. A case is a method of a test
# class.
# shellcheck shell=bash

prepare() {
	fetch_source ruby3.1 && { command -v ruby >/dev/null || { echo "suites: ruby is not installed"; return 1; }; }
}

cases() {
	local file files=(
		ruby/test_{process,system,signal,io,thread,thread_queue,thread_cv,fiber,beginendblock,rand,autoload,rubyoptions,argf,sleep}
		fiber/test_{process,scheduler,io} test_{open3,pty,syslog,securerandom,pstore,tempfile,timeout,weakref} etc/test_etc
		logger/test_logdevice socket/test_{socket,unix,tcp,basicsocket} rinda/test_rinda drb/test_drb{,unix} io/{wait/test_io_wait,console/test_io_console,nonblock/test_flush}
	)
	for file in "${files[@]}"; do
		[ ! -e "$source/test/$file.rb" ] || sed -nE "s|^ +def (test_[a-zA-Z0-9_]+[?!]?).*|$file:\1|p" "$source/test/$file.rb"
	done | awk '!seen[$0]++'
}

one() {
	local file=$source/test/${1%%:*}.rb
	env TMPDIR="$PWD" RUBYOPT= timeout -k 5 60 "${RUN[@]}" ruby -W0 "$source/test/runner.rb" --color=never --tty=no --seed=1 -v "$file" -n "${1#*:}"
}

said() {
	sed -E -e 's/[0-9]+\.[0-9]+( s\b|s,)/N\1/g' -e 's|[0-9.]+ tests/s, [0-9.]+ assertions/s|N|' -e 's/0x[0-9a-f]{6,}/ADDRESS/g' \
		-e 's/\b(pid|PID)([ :=]+)[0-9]+/\1\2N/g' -e 's/[0-9]{8}-[0-9]+-[0-9a-z]+/TEMP/g'
}
