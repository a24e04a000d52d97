# rsync's own tests with the installed rsync. Sender, generator and receiver are forks of each
# other.
# shellcheck shell=bash

prepare() {
	command -v rsync >/dev/null || { echo "suites: rsync is not installed"; return 1; }
	fetch_source rsync || return 1
	# Programs of rsync's sources that the tests start.
	[ -x "$source/wildtest" ] || (cd "$source" && ./configure --disable-openssl --disable-xxhash --disable-zstd --disable-lz4 --disable-md2man >configured 2>&1 &&
		make -s tls getgroups getfsdev testrun trimslash t_unsafe wildtest >made 2>&1) ||
		{ echo "suites: rsync's own test programs cannot be built: see $source/configured and $source/made"; return 1; }
}

cases() { (cd "$source/testsuite" && ls -- *.test | sed 's/\.test$//'); }

# rsync's output depends on when files are written. For a test that passes, only the pass is
# reported.
one() {
	local here=$PWD
	cd "$source" || return
	env scratchbase="$here" TOOLDIR="$source" rsync_bin="$(command -v rsync)" whichtests="$1.test" timeout -k 5 120 "${RUN[@]}" sh ./runtests.sh
}

said() { sed -E -e "s|$work|WORK|g; s/^ +os=.*//"; }
