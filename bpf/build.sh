#!/bin/sh
# Builds the BPF objects, or checks that the committed ones belong to the sources.
#
#   bpf/build.sh           build, and record the hash of the sources beside the objects
#   bpf/build.sh --check   exit 1 if the sources changed after the objects were built
#   bpf/build.sh --rebuild-check
#                          also build again in a temporary directory and compare the code (needs clang; exit 4 without)
#
# Needs clang and llvm-strip to build (any version from 12 on; CLANG, STRIP and OBJCOPY name others).
set -eu
cd "$(dirname "$0")"
CLANG=${CLANG:-clang}
STRIP=${STRIP:-llvm-strip}
OBJCOPY=${OBJCOPY:-llvm-objcopy}

sources() { cat build.sh helpers.h kernel.h records.h watch.bpf.c | sha256sum | cut -d' ' -f1; }

# -mcpu=v3: 32-bit jumps and atomics with a result, Linux 5.12. The relocation sections of BTF serve linkers only.
compile() {
	"$CLANG" -g -O2 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Wno-implicit-fallthrough -Werror \
		-fdebug-prefix-map="$PWD"=. -target bpf -c watch.bpf.c -o "$1"
	"$STRIP" -g "$1"
	"$OBJCOPY" -R .rel.BTF -R .rel.BTF.ext "$1"
}

fresh() {
	[ -f built/SOURCES.sha256 ] && [ "$(sources)" = "$(cat built/SOURCES.sha256)" ] && return
	echo "bpf/built does not belong to these sources: run bpf/build.sh and commit its result" >&2
	exit 1
}

case "${1-}" in
"")
	mkdir -p built
	compile built/watch.bpf.o
	"$CLANG" --version | head -1 >built/CLANG
	sources >built/SOURCES.sha256
	;;
--check)
	fresh
	;;
--rebuild-check)
	fresh
	command -v "$CLANG" >/dev/null && command -v "$STRIP" >/dev/null || { echo "no clang here" >&2; exit 4; }
	if [ "$("$CLANG" --version | head -1)" != "$(cat built/CLANG)" ]; then
		echo "another clang than $(cat built/CLANG): only that it compiles can be checked" >&2
	fi
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	compile "$dir/watch.bpf.o"
	if [ "$("$CLANG" --version | head -1)" = "$(cat built/CLANG)" ]; then
		cmp "$dir/watch.bpf.o" built/watch.bpf.o || { echo "bpf/built/watch.bpf.o differs from a new build" >&2; exit 1; }
	fi
	;;
*)
	sed -n '2,9s/^# \{0,1\}//p' build.sh >&2
	exit 2
	;;
esac
