#!/bin/bash
# `forkless diagnose` on programs that people run, and each remedy applied: is the program named, is
# the line the user's, is the finding the right one, and does the remedy save what was predicted? A
# command of its own, not for every push: it needs root, a gigabyte of memory and five minutes.
#
#   tests/diagnose/real.sh [--forkless COMMAND] [--install] [--rounds N] [--count N] [PROGRAM...]
#
# Without a PROGRAM all run:
#   gunicorn   a Flask application that starts a program with a preexec_fn, and one by a shell
#   node       a server that starts a program, and one for which its event loop waits
#   puma       a Sinatra application that starts programs as root
#   php        a page under php-fpm that makes a thumbnail
#   lighttpd   a CGI program of Perl
#   configure  the ./configure of GNU hello, as Debian's source package has it
#   make       the make of GNU hello
#   recipes    a makefile with recipes of several lines
#   bash       a report of a shell script
# --forkless names a built command, with its library beside it; otherwise target/release/forkless.
# --install installs the Debian packages of programs that are not here, and names them before.
# Without it these programs are skipped. A table of what was predicted and measured ends the run:
# --rounds (5) is the number of watches of each finding, --count (40) that of requests in each.
#
# The programs are in fixtures/diagnose/real. All runs under the real-time scheduler (chrt -f 1):
# then a time is that of the processor, whatever else runs. Servers are watched, and asked for
# their times unwatched, each remedy beside the plain server, request by request. Commands are
# compared by processor time.
#
# A check fails if a name, a place, a remedy or a count is not the expected one, or if a prediction
# is more than 25 % away from what was measured, in the middle of the rounds. real.py lists checks
# that fail by a fault of the tool, with the reason. They are printed, and do not fail the run.
#
# Exit 1 if a check failed, 2 for a wrong argument, 3 if something needed is missing, or if all
# programs were skipped.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
forkless=${CARGO_TARGET_DIR:-$top/target}/release/forkless
install='' rounds=5 count=40 wanted=()
all=(gunicorn node puma php lighttpd configure make recipes bash)
number() { [[ $2 =~ ^[1-9][0-9]*$ ]] || { echo "real: $1 needs a number" >&2; exit 2; }; }
while [ $# -gt 0 ]; do
	case $1 in
	--forkless) forkless=$(realpath -- "${2:?real: --forkless needs a command}") && shift ;;
	--install) install=1 ;;
	--rounds) number "$1" "${2-}" && rounds=$2 && shift ;;
	--count) number "$1" "${2-}" && count=$2 && shift ;;
	*)
		[[ " ${all[*]} " == *" $1 "* ]] ||
			{ echo "real: no program is called $1; there are: ${all[*]}" >&2; exit 2; }
		wanted+=("$1")
		;;
	esac
	shift
done
[ ${#wanted[@]} -gt 0 ] || wanted=("${all[@]}")
missing() { echo "real: $1" >&2 && exit 3; }
[ "$(id -u)" = 0 ] || missing "only root can watch by BPF and use the real-time scheduler"
[ -x "$forkless" ] || missing "$forkless is not there: ./x build makes it"
[ -x /usr/bin/python3 ] || missing "/usr/bin/python3 is not there: apt-get install python3"
chrt -f 1 true 2>/dev/null || missing "chrt -f 1 does not work here (util-linux; CAP_SYS_NICE)"

work=$(mktemp -d) || exit 3
child=''
ended() {
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null
	wait
	rm -rf "$work"
}
trap ended EXIT
trap 'exit 130' INT TERM
# Other users read the programs: www-data, and the one that Ruby's remedy names.
chmod 755 "$work" && cp -r "$top/fixtures/diagnose/real" "$work/real" && chmod -R a+rX "$work/real"

# What a program needs: a command that shows that it is there, and the packages that bring it.
needs() { # PROGRAM
	case $1 in
	gunicorn)
		echo "command -v gunicorn && /usr/bin/python3 -c 'import flask'|gunicorn python3-flask"
		;;
	node) echo "command -v node|nodejs" ;;
	puma) echo "command -v puma setpriv && ruby -e 'require \"sinatra/base\"'|puma ruby-sinatra" ;;
	php) echo "ls /usr/sbin/php-fpm*|php-fpm" ;;
	lighttpd) echo "command -v lighttpd perl|lighttpd perl" ;;
	configure | make) echo "command -v gcc make dpkg-source|gcc libc6-dev make dpkg-dev" ;;
	recipes) echo "command -v make|make" ;;
	bash) echo "command -v bash|bash" ;;
	esac
}

# Whether all of a program's needs are here. `command -v` of many names is content with one.
here() { # PROGRAM
	local test
	test=$(needs "$1") && test=${test%%|*}
	(
		command() { for name in "${@:2}"; do type -P "$name" >/dev/null || return; done; }
		eval "$test"
	) >/dev/null 2>&1
}

# The source of GNU hello, by apt-get with lists of its own: the system's do not change.
hello() {
	local apt=$work/apt release file
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mkdir -p "$apt/lists/partial" "$apt/archives" "$work/hello"
	echo "deb-src http://deb.debian.org/debian $release main" >"$apt/sources.list"
	local own=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=-
		-o "Dir::State::lists=$apt/lists" -o APT::Sandbox::User=root)
	apt-get "${own[@]}" update || return
	(cd "$apt/archives" && apt-get "${own[@]}" source --download-only hello) || return
	file=$(ls "$apt"/archives/*.orig.tar.* | grep -v '\.asc$' | head -1) || return
	tar -xf "$file" -C "$work/hello" --strip-components=1
} >"$work/log" 2>&1

run=() skipped=()
for program in "${wanted[@]}"; do
	packages=$(needs "$program") && packages=${packages#*|}
	if ! here "$program" && [ -n "$install" ]; then
		echo "real: apt-get install $packages"
		# RUNLEVEL: no server of these packages is started.
		# shellcheck disable=SC2086
		RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
			$packages >"$work/log" 2>&1 || tail -n3 "$work/log" >&2
	fi
	if ! here "$program"; then
		skipped+=("$program: not installed: apt-get install $packages, or --install")
	elif [[ $program =~ ^(configure|make)$ ]] && [ ! -e "$work/hello/configure" ] && ! hello; then
		skipped+=("$program: no source of hello can be had by apt-get: $(tail -n1 "$work/log")")
	else
		run+=("$program")
	fi
done
status=3
if [ ${#run[@]} -gt 0 ]; then
	cd "$work" || exit 3
	program=$top/tests/diagnose/real.py
	chrt -f 1 /usr/bin/python3 "$program" "$forkless" "$rounds" "$count" "${run[@]}" &
	child=$!
	wait "$child"
	status=$? child=''
fi
[ ${#skipped[@]} = 0 ] || printf 'skipped: %s\n' "${skipped[@]}"
exit $status
