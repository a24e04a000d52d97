#!/bin/bash
# packaging/reproducible.sh TARGET-FOLDER: the artefacts for this machine, made in this tree and in a
# copy of it.
#
# The copy lies in another folder with a longer name, and is built from nothing at another time, in
# another time zone and without a history. It fails if one byte differs, and names the artefact.
# Wheels are left out.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(dirname "$here")
target=$(realpath -m "$1")
copy=$target/a-copy-in-another-folder
trap 'rm -rf "$copy"' EXIT
rm -rf "$copy" "$target/once" "$target/twice"
mkdir -p "$copy/tree"
"$here/release.sh" "$target/once" "$target" --bare x86_64-unknown-linux-gnu
"$here/files.sh" | tar --create -C "$root" --null --no-recursion --files-from=- | tar -x -C "$copy/tree"
(cd "$copy/tree" && umask 077 && TZ=Asia/Tokyo LC_ALL=C \
	packaging/release.sh "$target/twice" "$copy/target" --bare x86_64-unknown-linux-gnu)
if ! diff "$target/once/SHA256SUMS" "$target/twice/SHA256SUMS"; then
	echo "these differ: compare $target/once and $target/twice with diffoscope" >&2
	exit 1
fi
echo "$(wc -l <"$target/once/SHA256SUMS") artefacts are the same bytes from both folders"
rm -rf "$target/once" "$target/twice"
