#!/bin/bash
# packaging/archive.sh FILE FOLDER NAME...: FILE, a .tar.gz of what FOLDER has by these names. The same files give the
# same bytes: they are sorted, of one owner and of one time.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
file=$1 folder=$2
shift 2
tar --create --directory="$folder" --sort=name --mtime="$("$here/version.sh" --date) 00:00Z" --owner=0 --group=0 --numeric-owner \
	--mode=u+rw,go=rX --format=gnu -- "$@" | gzip -9n >"$file.new"
mv "$file.new" "$file"
