#!/bin/bash
# Runs the tests of `forkless run` on Debian 13: glibc 2.41, dash 0.5.12, bash 5.2. What libc's
# `system`, `popen` and `posix_spawn` leave in a child differs between versions of glibc, and under
# `run` it must be what the program's own libc leaves.
#
#   tests/glibc/run.sh [WORD...]     only the tests whose names hold one of the words
#   FORKLESS_DEBIAN=forky tests/glibc/run.sh           on another release: glibc 2.43
#
# It is a command of its own, not for every push. It needs root, and once 150 MB of downloads
# (debootstrap): a small Debian in a directory of its own, in $FORKLESS_GLIBC_CACHE, below
# $XDG_CACHE_HOME or ~/.cache by default. The tests are built here, and run there by chroot, in
# namespaces of their own, so that nothing stays mounted and nothing goes on. They compile their
# programs there.
#
# Exit 1 if a test fails, 3 if something needed is missing.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)

# shellcheck source=tests/glibc/tree.sh
. "$(dirname "$0")/tree.sh"
make_tree
if [ ! -e "$tree/tools" ]; then
	in_tree -- apt-get install -qq -y --no-install-recommends \
		gcc libc6-dev python3 perl make git procps busybox-static >>"$tree/log" 2>&1 ||
		die 3 "apt-get failed: see $tree/log"
	touch "$tree/tools"
fi

# The paths in the tests are those of this build, so the tree gets it at the same place. It writes
# to a directory of its own: what it compiles is for another libc.
target=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")
library=$target/preload/libforkless_preload.so
# Programs of other users write there, too.
work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
(cd "$top" && cargo build --quiet --locked --profile preload --package forkless-preload &&
	cargo build --quiet --locked --package forkless-cli) || die 3 "the build failed"
built=$(cd "$top" && cargo test --no-run --locked --package forkless-cli --test run 2>&1) ||
	die 3 "the tests do not build: $built"
binary=$(cd "$top" && realpath "$(sed -n 's/^ *Executable.*(\(.*\))$/\1/p' <<<"$built")")
mkdir -p "$tree/root$top" "$tree/root$target" "$target/tmp"
# shellcheck disable=SC2016  # the inner shell expands them
in_tree "$top" "$top" "$target" "$target" "$work" "$target/tmp" -- \
	/bin/sh -c 'ldd --version | head -n1; cd "$1"; shift; exec "$@"' run "$top" \
	env FORKLESS_TEST_LIBRARY="$library" "$binary" "$@" || die 1 "tests failed"
