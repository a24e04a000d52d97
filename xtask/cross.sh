#!/bin/bash
# ./x cross: compiles for every system that the project says it compiles for, and runs what runs here. What fails does not keep the
# rest from being tried; the summary at the end says what was run, only linked and only compiled, what was skipped and what failed.
#
# - FreeBSD and macOS: what measures is checked with clippy; nothing is linked. Needs rustup's standard libraries.
# - musl, x86-64: the command is linked, statically, and it, the library's tests and the bench's run. Shared objects are not made:
#   what is preloaded into a program of another C library is built with this machine's.
# - aarch64: the whole workspace is linked. It is not run: user-mode emulators do not share memory between a vfork child and its parent
#   (docs/guide/platforms.md); tests/kernels/library.sh runs it in a full-system emulator.
#
# rustup's servers are not always at hand. For arm64 Debian 12's rustc-web has a standard library, too; it is unpacked below
# target/cross, never installed: the compiler that `cargo` finds elsewhere stays the one of this machine.
set -uo pipefail
root=$1
cross=$2
cd "$root" || exit 1
mkdir -p "$cross"
log=$cross/log
ran=() linked=() compiled=() skipped=() failed=()

# One step; its failure is remembered.
try() { # WHAT COMMAND...
	local what=$1
	shift
	echo "== $what"
	"$@" && return
	failed+=("$what (exit code $?)")
	return 1
}

# Tests, counted as their runners count them.
tests() { # WHAT CARGO-OPTION...
	local what=$1 counted
	shift
	echo "== tests: $what"
	cargo test --locked --no-fail-fast "$@" 2>&1 | tee "$log" || failed+=("tests of $what")
	counted=$(awk '/^test result: / {
		for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) passed += $(i - 1); if ($i ~ /^failed/) failed += $(i - 1);
			if ($i ~ /^(skipped|ignored)/) skipped += $(i - 1) }
	} END { printf "%d passed, %d failed, %d skipped", passed, failed, skipped }' "$log")
	ran+=("tests of $what: $counted")
}

summary() {
	local one
	echo "== summary"
	for one in "${ran[@]}"; do echo "run:            $one"; done
	for one in "${linked[@]}"; do echo "linked:         $one"; done
	for one in "${compiled[@]}"; do echo "compiled only:  $one"; done
	for one in "${skipped[@]}"; do echo "skipped:        $one"; done
	for one in "${failed[@]}"; do echo "FAILED:         $one"; done
	echo "./x cross: ${#ran[@]} run, ${#linked[@]} linked, ${#compiled[@]} compiled only, ${#skipped[@]} skipped, ${#failed[@]} failed; $SECONDS s"
	rm -f "$log"
}
trap summary EXIT
trap 'failed+=("stopped before its end"); exit 1' INT TERM HUP

# Whether there is a standard library for a target; rustup is asked for it.
has() { # TARGET
	[ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || rustup target add "$1" >/dev/null 2>&1
}

for target in x86_64-unknown-freebsd aarch64-apple-darwin; do
	if has $target; then
		try "$target" cargo clippy --locked --package forkless-bench --package forkless-lab --package forkless-cli --target $target -- -Dwarnings &&
			compiled+=("$target: forkless bench, compare, history")
	else
		skipped+=("$target: no standard library")
	fi
done

musl() {
	local target=x86_64-unknown-linux-musl file suite
	has $target || { skipped+=("Rust for musl: no standard library"); return; }
	try "the command for musl" cargo build --locked --package forkless-cli --target $target || return
	file=${CARGO_TARGET_DIR:-target}/$target/debug/forkless
	if readelf -lW "$file" | grep -q INTERP; then
		failed+=("forkless for musl is not static")
		return
	fi
	linked+=("musl, x86-64: forkless, one static file")
	tests "the parts of the library, musl" --target $target --package forkless-sys --package forkless-child --package forkless-shell \
		--package forkless-run --package forkless-speculate
	tests "the library, musl" --target $target --package forkless --test behaviour --test shell_lines --lib
	tests "the bench, musl" --target $target --package forkless-bench --lib
	for suite in spawn cow syscalls context; do
		try "bench $suite, musl" "$file" bench $suite --quick --time 2 --no-save --csv "$log" >/dev/null &&
			ran+=("bench $suite, musl: $(sed 1d "$log" | wc -l) rows")
	done
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

# Debian's compiler with its standard library for arm64, where rustup has none: as $cross/rustc.
debians_rust() {
	local more llvm deb
	mkdir -p "$cross/debs" "$cross/apt/lists/partial" "$cross/apt/archives/partial"
	if [ ! -x "$cross/rust/usr/bin/rustc" ]; then
		fetch arm64 libstd-rust-web-dev && fetch amd64 rustc-web libstd-rust-web-dev || return
		# The compiler's own library and its LLVM carry their version in the name.
		mapfile -t more < <(dpkg-deb -f "$cross"/debs/rustc-web_*_amd64.deb Version |
			sed -n 's/^\([0-9]*\.[0-9]*\).*/libstd-rust-web-\1/p')
		fetch amd64 "${more[@]}" || return
		mapfile -t llvm < <(dpkg-deb -f "$cross/debs/${more[0]}"_*_amd64.deb Depends | grep -o 'libllvm[0-9]*')
		fetch amd64 "${llvm[@]}" || return
		rm -rf "$cross/rust.part"
		for deb in "$cross"/debs/*.deb; do dpkg-deb -x "$deb" "$cross/rust.part" || return; done
		rm -rf "$cross/rust"
		mv "$cross/rust.part" "$cross/rust"
	fi
	cat >"$cross/rustc" <<-RUSTC
		#!/bin/sh
		LD_LIBRARY_PATH=$cross/rust/usr/lib/x86_64-linux-gnu exec $cross/rust/usr/bin/rustc "\$@"
	RUSTC
	chmod +x "$cross/rustc"
	"$cross/rustc" --version
}

aarch64() {
	local target=aarch64-unknown-linux-gnu with="this machine's compiler" built
	if ! has $target; then
		with="Debian's compiler"
		try "Debian's compiler for aarch64" debians_rust || return
		# Another compiler's objects would be built anew each time where this machine's are.
		export RUSTC=$cross/rustc CARGO_TARGET_DIR=$cross/target
	fi
	export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
	try "the workspace for aarch64" cargo build --locked --workspace --exclude forkless-preload --exclude forkless-python --exclude xtask --target $target || return
	try "the preloaded library for aarch64" cargo build --locked --profile preload --package forkless-preload --target $target || return
	for built in debug/forkless debug/libforkless_capi.so preload/libforkless_preload.so; do
		if aarch64-linux-gnu-readelf -h "${CARGO_TARGET_DIR:-target}/$target/$built" | grep -q AArch64; then
			linked+=("aarch64, glibc, $with: $built")
		else
			failed+=("$built is not for aarch64")
		fi
	done
}

for header in include/*.h; do
	try "musl reads $header" musl-gcc -Wall -Wextra -Werror -fsyntax-only -x c "$header" && compiled+=("musl, C: $header")
done
# Last, for it may change the compiler.
aarch64
[ ${#failed[@]} = 0 ]
