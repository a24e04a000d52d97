#!/bin/bash
# What is published on PyPI: the source, and the wheels for manylinux (glibc 2.17 and later) and musllinux, x86-64 and aarch64,
# as far as they can be built here. `./x python` builds one for this machine; this one needs a network (zig, whose linker knows
# each libc), some 2 GB of disk and minutes.
#
# usage: bindings/python/wheels.sh DIRECTORY [ARCHITECTURE-LIBC...]       such as x86_64-gnu aarch64-musl; all four by default
#
# The wheel for this machine is installed in a fresh virtual environment and smoke-tested. The others are not run: it says so.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd)
[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/p}' "$0"; exit 2; }
directory=$(realpath -m "$1")
shift
[ $# -gt 0 ] || set -- x86_64-gnu aarch64-gnu x86_64-musl aarch64-musl
target=$(cd "$root" && realpath -m "${CARGO_TARGET_DIR:-target}")/python
tools=$target/tools-wheels
mkdir -p "$directory" "$target"
cd "$root"

if ! [ -x "$tools/bin/cargo-zigbuild" ]; then
	rm -rf "$tools"
	python3 -m venv "$tools"
	"$tools/bin/pip" --disable-pip-version-check --quiet install 'maturin>=1.9.4,<2' ziglang cargo-zigbuild
fi
PATH=$tools/bin:$PATH
export CARGO_ZIGBUILD_PYTHON_PATH=$tools/bin/python
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc

# Prints the wheel.
build() { # ARCHITECTURE LIBC
	local rust=$1-unknown-linux-$2 glibc= platform=musllinux_1_2 built strip=strip
	[ "$1" = "$(uname -m)" ] || strip=$1-linux-gnu-strip
	command -v "$strip" >/dev/null || { echo "$strip is not installed"; return 1; }
	# maturin asks zig for the glibc of the platform; by `linux` it would get a newer one.
	[ "$2" = musl ] || glibc=.2.17 platform=manylinux2014
	rustup target add "$rust" "$1-unknown-linux-gnu" >/dev/null 2>&1 || { echo "Rust has no standard library for $rust here"; return 1; }
	built=$target/wheels-$rust
	rm -rf "$built"
	{
		# One library for programs of either libc: it needs none. zig's linker does not know its linker script.
		cargo build --profile preload --locked --package forkless-preload --target "$1-unknown-linux-gnu"
		# For musl it is a static file.
		cargo zigbuild --release --locked --package forkless-cli --target "$rust$glibc"
		maturin build --release --locked --zig --compatibility "$platform" --target "$rust" --interpreter python3 \
			--manifest-path bindings/python/Cargo.toml --out "$built"
	} >"$built.log" 2>&1 || { echo "see $built.log: $(grep -m1 -E '^error|ERROR' "$built.log" || tail -n1 "$built.log")"; return 1; }
	STRIP=$strip python3 bindings/python/add_command.py "$built"/*.whl "$target/../$rust/release/forkless" \
		"$target/../$1-unknown-linux-gnu/preload/libforkless_preload.so" "$directory"
}

failed=0
maturin sdist --manifest-path bindings/python/Cargo.toml --out "$directory" >"$target/sdist.log" 2>&1 || { cat "$target/sdist.log"; exit 1; }
for one; do
	if said=$(build "${one%-*}" "${one#*-}"); then
		echo "$said"
		if [ "$one" = "$(uname -m)-gnu" ]; then
			rm -rf "$target/smoke-wheel"
			python3 -m venv --without-pip "$target/smoke-wheel"
			"$tools/bin/pip" --quiet --python "$target/smoke-wheel/bin/python" install --no-index --no-deps "${said%%: *}"
			"$target/smoke-wheel/bin/python" bindings/python/smoke.py || failed=1
		else
			echo "not run: $one"
		fi
	else
		echo "not built: $one: $said"
		failed=1
	fi
done
exit $failed
