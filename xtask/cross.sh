#!/bin/bash
# ./x cross: builds the workspace for aarch64, and the C headers with musl. It compiles and links; it runs nothing, since
# user-mode emulators do not share memory between a vfork child and its parent (docs/guide/platforms.md).
#
# rustup's servers are not always at hand, but Debian 12's rustc-web has a standard library for arm64. It is unpacked below
# target/cross, never installed: the compiler that `cargo` finds elsewhere stays the one of this machine.
# A standard library for musl is not among Debian's packages, so no Rust is built for musl.
set -euo pipefail
root=$1
cross=$2
mkdir -p "$cross/debs" "$cross/apt/lists/partial" "$cross/apt/archives/partial"

fetch() { # ARCHITECTURE PACKAGE...
	local arch=$1
	shift
	# Lists and status of this architecture alone: the machine's own apt does not learn of it.
	local options=(-q -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o "Dir::State::lists=$cross/apt/lists"
		-o Dir::State::status=/dev/null -o "Dir::Cache::archives=$cross/apt/archives" -o Dir::Cache::pkgcache=
		-o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
	(cd "$cross/debs" && apt-get "${options[@]}" update >&2 && apt-get "${options[@]}" download "$@" >&2)
}

if [ ! -x "$cross/rust/usr/bin/rustc" ]; then
	fetch arm64 libstd-rust-web-dev
	fetch amd64 rustc-web libstd-rust-web-dev
	# The compiler's own library and its LLVM carry their version in the name.
	mapfile -t more < <(dpkg-deb -f "$cross"/debs/rustc-web_*_amd64.deb Version |
		sed -n 's/^\([0-9]*\.[0-9]*\).*/libstd-rust-web-\1/p')
	fetch amd64 "${more[@]}"
	mapfile -t llvm < <(dpkg-deb -f "$cross/debs/${more[0]}"_*_amd64.deb Depends | grep -o 'libllvm[0-9]*')
	fetch amd64 "${llvm[@]}"
	rm -rf "$cross/rust.part"
	for deb in "$cross"/debs/*.deb; do dpkg-deb -x "$deb" "$cross/rust.part"; done
	rm -rf "$cross/rust"
	mv "$cross/rust.part" "$cross/rust"
fi

cat >"$cross/rustc" <<RUSTC
#!/bin/sh
LD_LIBRARY_PATH=$cross/rust/usr/lib/x86_64-linux-gnu exec $cross/rust/usr/bin/rustc "\$@"
RUSTC
chmod +x "$cross/rustc"
"$cross/rustc" --version

export RUSTC=$cross/rustc CARGO_TARGET_DIR=$cross/target
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
cd "$root"
target=aarch64-unknown-linux-gnu
cargo build --locked --workspace --exclude forkless-preload --exclude xtask --target "$target"
cargo build --locked --profile preload --package forkless-preload --target "$target"
for built in debug/forkless debug/libforkless_capi.so preload/libforkless_preload.so; do
	aarch64-linux-gnu-readelf -h "$cross/target/$target/$built" | grep -q AArch64
	echo "built for aarch64: $built"
done

for header in include/*.h; do
	musl-gcc -Wall -Wextra -Werror -fsyntax-only -x c "$header"
	echo "musl reads: $header"
done
echo "skipped: Rust for musl: Debian has no standard library for it"
