#!/bin/bash
# ./x cross: compiles for every system that the project says it compiles for, and runs what runs here.
#
# - FreeBSD and macOS: what measures is checked with clippy; nothing is linked. Needs rustup's standard libraries.
# - musl, x86-64: the command is linked, statically, and it, the library's tests and the bench's run. Shared objects are not made:
#   what is preloaded into a program of another C library is built with this machine's.
# - aarch64: the whole workspace is linked. It is not run: user-mode emulators do not share memory between a vfork child and its parent
#   (docs/guide/platforms.md); tests/kernels/library.sh runs it in a full-system emulator.
#
# rustup's servers are not always at hand. For arm64 Debian 12's rustc-web has a standard library, too; it is unpacked below
# target/cross, never installed: the compiler that `cargo` finds elsewhere stays the one of this machine.
set -euo pipefail
root=$1
cross=$2
skipped=()
cd "$root"

# Whether there is a standard library for a target; rustup is asked for it.
has() { # TARGET
	[ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || rustup target add "$1" >/dev/null 2>&1
}

for target in x86_64-unknown-freebsd aarch64-apple-darwin; do
	if has $target; then
		cargo clippy --locked --package forkless-bench --package forkless-cli --target $target -- -Dwarnings
		echo "compiles for $target, not linked: forkless bench, compare, history"
	else
		skipped+=("$target: no standard library")
	fi
done

musl() {
	local target=x86_64-unknown-linux-musl
	has $target || { skipped+=("Rust for musl: no standard library"); return; }
	cargo build --locked --package forkless-cli --target $target
	local file=${CARGO_TARGET_DIR:-target}/$target
	readelf -lW "$file/debug/forkless" | grep -q INTERP && { echo "built for musl, but not static: forkless" >&2; exit 1; }
	echo "built for musl, static: forkless"
	cargo test --locked --target $target --package forkless-sys --package forkless-child --package forkless-shell --package forkless-record
	cargo test --locked --target $target --package forkless --test behaviour --test shell_lines --lib
	cargo test --locked --target $target --package forkless-bench --lib
	for suite in spawn cow syscalls context; do
		"$file/debug/forkless" bench $suite --quick --time 2 --no-save --csv - >"$cross.csv"
		echo "ran with musl: bench $suite, $(sed 1d "$cross.csv" | wc -l) rows"
	done
	rm -f "$cross.csv"
}
musl

fetch() { # ARCHITECTURE PACKAGE...
	local arch=$1
	shift
	# Lists and status of this architecture alone: the machine's own apt does not learn of it.
	local options=(-q -o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o "Dir::State::lists=$cross/apt/lists"
		-o Dir::State::status=/dev/null -o "Dir::Cache::archives=$cross/apt/archives" -o Dir::Cache::pkgcache=
		-o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
	(cd "$cross/debs" && apt-get "${options[@]}" update >&2 && apt-get "${options[@]}" download "$@" >&2)
}

# Debian's compiler with its standard library for arm64, where rustup has none: in RUSTC.
debians_rust() {
	local more llvm
	mkdir -p "$cross/debs" "$cross/apt/lists/partial" "$cross/apt/archives/partial"
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
	cat >"$cross/rustc" <<-RUSTC
		#!/bin/sh
		LD_LIBRARY_PATH=$cross/rust/usr/lib/x86_64-linux-gnu exec $cross/rust/usr/bin/rustc "\$@"
	RUSTC
	chmod +x "$cross/rustc"
	"$cross/rustc" --version
	# Another compiler's objects would be built anew each time where this machine's are.
	export RUSTC=$cross/rustc CARGO_TARGET_DIR=$cross/target
}

target=aarch64-unknown-linux-gnu
has $target || debians_rust
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
cargo build --locked --workspace --exclude forkless-preload --exclude xtask --target "$target"
cargo build --locked --profile preload --package forkless-preload --target "$target"
for built in debug/forkless debug/libforkless_capi.so preload/libforkless_preload.so; do
	aarch64-linux-gnu-readelf -h "${CARGO_TARGET_DIR:-target}/$target/$built" | grep -q AArch64
	echo "built for aarch64: $built"
done

for header in include/*.h; do
	musl-gcc -Wall -Wextra -Werror -fsyntax-only -x c "$header"
	echo "musl reads: $header"
done
for one in "${skipped[@]}"; do echo "skipped: $one"; done
