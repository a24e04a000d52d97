#!/bin/bash
# packaging/link.sh ARCHIVE DIRECTORY: makes DIRECTORY/libforkless.a and libforkless.so from the archive that cargo builds.
#
# cargo's own shared object cannot have symbol versions: rustc passes the linker a version script without a name, and
# the linker takes no second one beside it. Its archive has the whole standard library, bitcode included, and shows C
# programs every name of it. Here all of it becomes one object, with what the C functions reach, and no name but theirs.
#
# $TOOLS is put before the names of ld, objcopy, ar and gcc: aarch64-linux-gnu- for another architecture.
set -euo pipefail
archive=$(realpath "$1")
to=$(realpath "$2")
symbols=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../crates/forkless-capi/symbols.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed '/^#/d; s/@.*//' "$symbols" >"$work/names"
# A version's node has the symbols that came with it. Nodes follow each other: the last one hides all other names.
awk -F@ '!/^#/ { if (!($2 in of)) order[++nodes] = $2; of[$2] = of[$2] "\t\t" $1 ";\n" }
	END { for (i = 1; i <= nodes; i++) printf "%s {\n\tglobal:\n%s%s}%s;\n", order[i], of[order[i]],
		(i == 1 ? "\tlocal: *;\n" : ""), (i > 1 ? " " order[i - 1] : "") }' "$symbols" >"$work/map"

mapfile -t wanted < <(sed 's/^/--undefined=/' "$work/names")
"${TOOLS-}ld" -r --gc-sections "${wanted[@]}" -o "$work/all.o" "$archive"
"${TOOLS-}objcopy" --keep-global-symbols="$work/names" --remove-section=.llvmbc --remove-section=.llvmcmd "$work/all.o" "$work/forkless.o"
(cd "$work" && "${TOOLS-}ar" rcD libforkless.a forkless.o)

# - The soname rises with every incompatible change of the C ABI.
# - nodelete: a child, or a thread of the library, may still run this code when the last dlclose comes.
# - now: nothing is to be resolved lazily in a child that shares memory.
"${TOOLS-}gcc" -shared -o "$work/libforkless.so" "$work/forkless.o" -Wl,--version-script="$work/map" -Wl,-soname,libforkless.so.0 \
	-Wl,-z,nodelete,-z,now,-z,relro,-z,noexecstack,--gc-sections,--build-id=sha1,--eh-frame-hdr,--hash-style=gnu -Wl,--as-needed \
	-lgcc_s -lpthread -lm -ldl -lc
# In one step each: running programs have the old file mapped, and crash if it is written over.
for file in libforkless.a libforkless.so; do
	install -m "$([ $file = libforkless.so ] && echo 755 || echo 644)" "$work/$file" "$to/$file.new.$$"
	mv -f "$to/$file.new.$$" "$to/$file"
done
ln -sf libforkless.so "$to/libforkless.so.0"
