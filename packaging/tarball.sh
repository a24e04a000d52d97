#!/bin/bash
# packaging/tarball.sh BUILT TARGET OUTPUT: an archive that works wherever it is unpacked, and one with its symbols.
#
# The command finds the preloaded library in ../lib, and pkg-config the C library by ${pcfiledir}. The symbols are for
# /usr/lib/debug, where debuggers look for a build id. $GENERATOR and $TOOLS are as in stage.sh.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
built=$1 output=$3
name=forkless-$("$here/version.sh")-$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2016 # pkg-config expands it
DEBUG=$work/debug "$here/stage.sh" "$built" "$work/$name" "" /lib '${pcfiledir}/../..'
"$here/archive.sh" "$output/$name.tar.gz" "$work" "$name"
"$here/archive.sh" "$output/$name-debug.tar.gz" "$work/debug" .build-id
