#!/bin/bash
# packaging/stage.sh BUILT ROOT PREFIX LIBDIR PC-PREFIX: lays out an installation of what lies in
# BUILT (`./x build`).
#
# Files go below ROOT/PREFIX, libraries for C into ROOT/LIBDIR. PC-PREFIX is the prefix that
# forkless.pc says. What is installed is stripped. From the environment:
# - $DEBUG: a folder for the symbols, by build id.
# - $NOTICES: a file with the licences of what is built in.
# - $GENERATOR: a `forkless` that runs here, where the one in BUILT does not.
# - $TOOLS: as in link.sh.
# - $LIST: a file to which each file and link that is put below PREFIX is added, a path from there
#   a line. A folder that was not there before ends with a slash.
set -euo pipefail
repository=$(readlink -f "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/..")
built=$1 to=$2$3 libraries=$2$4 pc_prefix=$5
version=$("$repository/packaging/version.sh")
generator=${GENERATOR:-$built/forkless}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Notes what is about to be put there, and the folders that it needs.
note() { # DESTINATION
	local folder=${1%/*}
	[ -n "${LIST-}" ] || return 0
	while [[ $folder/ == "$to/"* ]] && ! [ -d "$folder/" ]; do
		echo "${folder#"$to"}/" >>"$LIST"
		folder=${folder%/*}
	done
	echo "${1#"$to"}" >>"$LIST"
}

# Files under their own names.
files() { # FOLDER SOURCE...
	local folder=$1 source
	shift
	for source; do
		note "$folder/${source##*/}"
		install -D -m 644 "$source" "$folder/${source##*/}"
	done
}

link() { # TARGET DESTINATION
	note "$2"
	ln -sf "$1" "$2"
}

# Replaces a file by a new one in one step. Running programs have the old file mapped, and crash if it is overwritten.
# A program that starts meanwhile finds the old file or the new one.
put() { # MODE SOURCE DESTINATION
	note "$3"
	install -D -m "$1" "$2" "$3.new.$$"
	mv -f "$3.new.$$" "$3"
}

# A program or library without its symbols, which gdb and perf find by its build id.
object() { # MODE SOURCE DESTINATION
	local id
	if [ -n "${DEBUG-}" ]; then
		id=$("${TOOLS-}readelf" -n "$2" | sed -n 's/.*Build ID: //p')
		[ -n "$id" ] || { echo "packaging/stage.sh: $2 has no build id" >&2; return 1; }
		mkdir -p "$DEBUG/.build-id/${id:0:2}"
		"${TOOLS-}objcopy" --only-keep-debug --compress-debug-sections "$2" "$DEBUG/.build-id/${id:0:2}/${id:2}.debug"
		chmod 644 "$DEBUG/.build-id/${id:0:2}/${id:2}.debug"
	fi
	"${TOOLS-}strip" --strip-unneeded --remove-section=.comment -o "$work/object" "$2"
	put "$1" "$work/object" "$3"
}

"$generator" generate man "$work/man"
"$generator" generate completions "$work/completions"
mkdir "$work/man3"
awk -v version="$version" -v date="$("$repository/packaging/version.sh" --date)" -v directory="$work/man3" \
	-f "$repository/packaging/man3.awk" "$repository"/include/{forkless,popen_noshell}.h

object 755 "$built/forkless" "$to/bin/forkless"
# By the name that people write into LD_PRELOAD, and beside the command, which looks for it in ../lib.
object 644 "$built/libforkless_preload.so" "$to/lib/libforkless-run.so"
# A static command, as musl's, comes without the libraries for C.
if [ -e "$built/libforkless.so" ]; then
	# The name has the full version. The loader and the linker follow links to it.
	object 644 "$built/libforkless.so" "$libraries/libforkless.so.$version"
	link "libforkless.so.$version" "$libraries/libforkless.so.0"
	link libforkless.so.0 "$libraries/libforkless.so"
	"${TOOLS-}strip" --strip-debug --enable-deterministic-archives -o "$work/libforkless.a" "$built/libforkless.a"
	put 644 "$work/libforkless.a" "$libraries/libforkless.a"
	# Not by sed: to it, & and | in a prefix are more than themselves. So is & to bash without quotes.
	pc=$(<"$repository/crates/forkless-capi/forkless.pc.in")
	pc=${pc//@prefix@/"$pc_prefix"} pc=${pc//@libdir@/"${4#"$3/"}"} pc=${pc//@version@/"$version"}
	echo "$pc" >"$work/forkless.pc"
	files "$libraries/pkgconfig" "$work/forkless.pc"
	files "$to/include" "$repository"/include/*.h
	files "$to/share/man/man3" "$work"/man3/*.3
fi
files "$to/share/man/man1" "$work"/man/*.1
mv "$work/completions/forkless.bash" "$work/completions/forkless"
files "$to/share/bash-completion/completions" "$work/completions/forkless"
files "$to/share/zsh/site-functions" "$work/completions/_forkless"
files "$to/share/fish/vendor_completions.d" "$work/completions/forkless.fish"
files "$to/share/doc/forkless" "$repository"/{README.md,CHANGELOG.md,SECURITY.md,LICENSE-MIT,LICENSE-APACHE}
if [ -n "${NOTICES-}" ]; then
	gzip -9n <"$NOTICES" >"$work/third-party-licenses.gz"
	files "$to/share/doc/forkless" "$work/third-party-licenses.gz"
fi
