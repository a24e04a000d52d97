# Node.js's own tests of child processes, clusters, standard streams, signals and the process
# object, then all other tests that start programs. They come from Debian's source of the same major
# version. If no release of Debian has that version, the tests are missing.
# shellcheck shell=bash

prepare() {
	local version release
	version=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null) || { echo "suites: node is not installed"; return 1; }
	case $version in
	18) release=bookworm ;;
	20) release=trixie ;;
	*) echo "suites: which release of Debian has the source of Node.js $version, and its tests, is not known"; return 1 ;;
	esac
	fetch_source nodejs "$release"
}

# The debugger's tests depend on the clock.
cases() {
	(cd "$source/test" && { ls -- {parallel,sequential}/test-{child-process,cluster,process,stdin,stdio,stdout,signal,kill,spawn}*.*js
		grep -lE "child_process|'cluster'" -- {parallel,sequential}/*.*js; } 2>/dev/null) | awk '!/test-(debugger|inspector|runner)/ && !seen[$0]++'
}

# The tests expect to run in the source's directory, and write elsewhere.
one() {
	local file=$source/test/$1 flags here=$PWD
	cd "$source" || return
	read -ra flags <<<"$(sed -nE 's|^// Flags: *(.*)|\1|p' "$file" | tr '\n' ' ')"
	env NODE_TEST_DIR="$here" NODE_TEST_KNOWN_GLOBALS=0 TMPDIR="$here" timeout -k 5 60 "${RUN[@]}" node "${flags[@]}" "$file"
}

said() {
	sed -E -e 's/0x[0-9a-f]{6,}/ADDRESS/g; s/\(node:[0-9]+\)/(node:N)/g; s/\b(pid|PID)([ :=]+)[0-9]+/\1\2N/g; s/duration_ms:? [0-9.]+/duration_ms N/g' \
		-e 's/^\[[0-9]+\]/[N]/; s/^[0-9]+\.[0-9]{6,}$/TIME/'
}
