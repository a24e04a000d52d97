#!/bin/sh
# Builds the BPF objects, or checks that the committed ones belong to the sources.
#
#   bpf/build.sh           build, and record the hash of the sources beside the objects
#   bpf/build.sh --check   exit 1 if the sources changed after the objects were built
#   bpf/build.sh --rebuild-check
#                          also build again in a temporary directory and compare the code (needs clang; exit 4 without)
#
# An object for each architecture, in built/, named as Rust names it: what differs is in arch.h. Needs clang and llvm-strip to
# build (any version from 12 on; CLANG, STRIP and OBJCOPY name others).
set -eu
cd "$(dirname "$0")"
CLANG=${CLANG:-clang}
STRIP=${STRIP:-llvm-strip}
OBJCOPY=${OBJCOPY:-llvm-objcopy}
objects='x86_64 aarch64'

sources() { cat build.sh arch.h helpers.h kernel.h records.h watch.bpf.c | sha256sum | cut -d' ' -f1; }

# -mcpu=v3: 32-bit jumps and atomics with a result, Linux 5.12. The relocation sections of BTF serve linkers only.
compile() { # ARCHITECTURE FILE
	case $1 in
	x86_64) macro=__TARGET_ARCH_x86 ;;
	aarch64) macro=__TARGET_ARCH_arm64 ;;
	esac
	"$CLANG" -g -O2 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Wno-implicit-fallthrough -Werror -D$macro \
		-fdebug-prefix-map="$PWD"=. -target bpf -c watch.bpf.c -o "$2"
	"$STRIP" -g "$2"
	"$OBJCOPY" -R .rel.BTF -R .rel.BTF.ext "$2"
}

fresh() {
	[ -f built/SOURCES.sha256 ] && [ "$(sources)" = "$(cat built/SOURCES.sha256)" ] && return
	echo "bpf/built does not belong to these sources: run bpf/build.sh and commit its result" >&2
	exit 1
}

case "${1-}" in
"")
	mkdir -p built
	for object in $objects; do compile $object built/watch-$object.bpf.o; done
	"$CLANG" --version | head -1 >built/CLANG
	sources >built/SOURCES.sha256
	;;
--check)
	fresh
	;;
--rebuild-check)
	fresh
	command -v "$CLANG" >/dev/null && command -v "$STRIP" >/dev/null || { echo "no clang here" >&2; exit 4; }
	same=$([ "$("$CLANG" --version | head -1)" = "$(cat built/CLANG)" ] && echo yes || echo no)
	[ $same = yes ] || echo "another clang than $(cat built/CLANG): only that it compiles can be checked" >&2
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	for object in $objects; do
		compile $object "$dir/watch.bpf.o"
		[ $same = no ] || cmp "$dir/watch.bpf.o" built/watch-$object.bpf.o ||
			{ echo "bpf/built/watch-$object.bpf.o differs from a new build" >&2; exit 1; }
	done
	;;
*)
	sed -n '2,9s/^# \{0,1\}//p' build.sh >&2
	exit 2
	;;
esac
