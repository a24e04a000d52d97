#!/bin/bash
# Measures `forkless bench spawn` on this machine's C library and on Debian 13's (glibc 2.41), one
# after the other, and compares the two relative to each run's own vfork. glibc's posix_spawn makes
# 122 calls of sigaction up to 2.37; from 2.38 on the kernel clears the handlers.
#
#   tests/glibc/spawn.sh [--out DIR] [ARGUMENTS OF bench spawn...]     such as --rss 1G
#
# It is a command of its own, not for every push. It needs root, and once 60 MB of downloads
# (debootstrap): a small Debian 13 in a directory of its own, in $FORKLESS_GLIBC_CACHE, below
# $XDG_CACHE_HOME or ~/.cache by default. The command runs there by chroot, in a mount namespace of
# its own, so that nothing stays mounted. `system` and `popen` start that Debian's shell.
#
# DIR (target/glibc) gets here.json, trixie.json (or of $FORKLESS_DEBIAN) and compare.md. Exit 1 if
# a measurement fails, 2 for usage, 3 if something needed is missing.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$top/target}
out=$target/glibc

if [ "${1-}" = --out ]; then
	out=${2:?glibc: --out needs a directory}
	shift 2
fi
# shellcheck source=tests/glibc/tree.sh
. "$(dirname "$0")/tree.sh"
forkless=$target/release/forkless
[ -x "$forkless" ] || die 3 "$forkless is missing: ./x build"

make_tree
mkdir -p "$out"
# Files of the same names from another time must not be taken for these.
rm -f "$out/here.json" "$out/$release.json" "$out/compare.md"

version() { # PREFIX...
	"$@" /bin/sh -c 'ldd --version | head -n1'
}

# Runs a command in the tree, which sees the command and the directory of the results.
within() {
	mkdir -p "$tree/root/opt/forkless" "$tree/root/opt/out"
	in_tree "$(dirname "$forkless")" /opt/forkless "$(cd "$out" && pwd)" /opt/out -- "$@"
}

echo "here:   $(version env)"
echo "$release: $(version within)"
"$forkless" bench spawn --no-save --json "$out/here.json" "$@" || die 1 "the measurement here failed"
within /opt/forkless/forkless bench spawn --no-save --json "/opt/out/$release.json" "$@" ||
	die 1 "the measurement in the tree failed"
"$forkless" compare "$out/here.json" "$out/$release.json" --relative --markdown >"$out/compare.md"
cat "$out/compare.md"
