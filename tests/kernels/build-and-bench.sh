#!/bin/bash
# Builds the static command for this machine, and for arm64 where that is possible, and runs bench.sh with it.
#
#   tests/kernels/build-and-bench.sh TARGET-DIRECTORY OUTPUT-DIRECTORY
#
# `./x kernels` installs what this needs and starts it.
set -euo pipefail
target=$(realpath -m "$1")
output=$(realpath -m "$2")
cd "$(dirname "$0")/../.."
native=$(uname -m)-unknown-linux-gnu
arm64=aarch64-unknown-linux-gnu

# Static with glibc: one file runs on every system, and the suites call glibc's getcontext.
export RUSTFLAGS="-C target-feature=+crt-static"
CARGO_PROFILE_RELEASE_DEBUG=0 cargo build --release --locked --package forkless-cli --target "$native" --target-dir "$target"

# arm64 needs rustup for its standard library, and a cross compiler.
if rustup target add "$arm64" >/dev/null 2>&1 && command -v aarch64-linux-gnu-gcc >/dev/null &&
	command -v qemu-system-aarch64 >/dev/null && [ -e /usr/aarch64-linux-gnu/include/stdlib.h ]; then
	# The emulator's times mean nothing, so this build need not be optimised.
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CARGO_PROFILE_DEV_DEBUG=0 \
		cargo build --locked --package forkless-cli --target "$arm64" --target-dir "$target"
	export FORKLESS_ARM64=$target/$arm64/debug/forkless
fi
unset RUSTFLAGS
exec tests/kernels/bench.sh "$target/$native/release/forkless" "$output"
