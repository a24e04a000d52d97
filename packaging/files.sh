#!/bin/bash
# packaging/files.sh: the files of the source, each ended by a NUL byte, relative to the root: those
# that git tracks, and new ones that it does not ignore. Where git knows no clone (an unpacked
# archive, or a clone of another user), all but build folders and .git/.
set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.."
if [ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$PWD" ]; then
	git ls-files -z --cached --others --exclude-standard
else
	find . \( -path ./target -o -path ./fuzz/target -o -path ./.git \) -prune -o \( -type f -o -type l \) -printf '%P\0'
fi | LC_ALL=C sort -zu
