#!/bin/bash
# packaging/release.sh OUTPUT TARGET-FOLDER [--bare] [TRIPLE...]: every artefact of a release in one
# folder, each tested. `./x release` calls it, and installs what it needs. --bare: no wheels, no
# tests.
#
# OUTPUT is empty, or has an earlier release, which is replaced.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
root=$(dirname "$here")
output=$(realpath -m "$1") target=$(realpath -m "$2")
shift 2
bare=
if [ "${1-}" = --bare ]; then
	bare=1
	shift
fi
triples=("$@")
native=x86_64-unknown-linux-gnu
[ ${#triples[@]} -gt 0 ] || triples=("$native" {x86_64,aarch64}-unknown-linux-musl aarch64-unknown-linux-gnu)
version=$("$here/version.sh")
# What fails within an argument ends no script: a date that is missing must fail here.
date=$("$here/version.sh" --date)
echo "forkless $version of $date"
export CARGO_TARGET_DIR=$target
# The places of this machine stay out of what is built: the same tree gives the same bytes anywhere.
sysroot=$(rustc --print sysroot)
RUSTFLAGS="--remap-path-prefix=$root=/usr/src/forkless-$version --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/usr/src/cargo"
export RUSTFLAGS="$RUSTFLAGS --remap-path-prefix=$sysroot=/usr/src/rust --remap-path-prefix=$target=/usr/src/target"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
# Debian has no C compiler for musl on aarch64. Rust brings musl and a linker.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
# Its symbols are wanted here; stage.sh takes them out.
export CARGO_PROFILE_PRELOAD_STRIP=none
umask 022
mkdir -p "$output" "$target"
rm -f "$output"/forkless[-_]*.{tar.gz,deb,crate,cdx.json} "$output"/libforkless*.deb "$output/SHA256SUMS"
rm -f "$output"/python/forkless-*.{whl,tar.gz}
rmdir "$output/python" 2>/dev/null || true
[ -z "$(ls -A "$output")" ] || { echo "$output has other files: name an empty folder" >&2 && exit 2; }
# Before there is an artefact: OUTPUT may lie within the source.
"$here/files.sh" >"$target/files"

# Builds for one target into $target/TRIPLE/built.
build() { # TRIPLE
	local packages=(--package forkless-cli) built=$target/$1/built flags=$RUSTFLAGS
	cd "$root"
	[[ $1 == *-musl ]] || packages+=(--package forkless-capi)
	# The C compilers ask for it by themselves.
	[[ $1 != aarch64-*-musl ]] || flags+=" -Clink-arg=--build-id=sha1"
	RUSTFLAGS=$flags cargo build --release --locked --target "$1" "${packages[@]}"
	mkdir -p "$built"
	install "$target/$1/release/forkless" "$built/forkless"
	# Linked against nothing: glibc's serves musl.
	local of=${1/musl/gnu}
	cargo build --profile preload --locked --package forkless-preload --target "$of"
	install "$target/$of/preload/libforkless_preload.so" "$built/"
	[[ $1 == *-musl ]] || "$here/link.sh" "$target/$1/release/libforkless_capi.a" "$built"
}

env -u RUSTFLAGS CARGO_TARGET_DIR="$target/tools" cargo run --quiet --locked --package xtask --manifest-path "$root/Cargo.toml" -- notices >"$target/notices"
export NOTICES=$target/notices

for triple in "${triples[@]}"; do
	case $triple in aarch64-*) export TOOLS=aarch64-linux-gnu- ;; *) unset TOOLS ;; esac
	echo "== $triple"
	build "$triple"
	# Pages and completions come from a command that runs here.
	case $triple in aarch64-*) GENERATOR=$target/$native/built/forkless ;; *) GENERATOR=$target/$triple/built/forkless ;; esac
	export GENERATOR
	"$here/tarball.sh" "$target/$triple/built" "$triple" "$output"
done
unset TOOLS GENERATOR

if [ -e "$target/$native/built/forkless" ]; then
	echo "== Debian packages"
	"$here/deb.sh" "$target/$native/built" "$output"
fi

echo "== source and crates"
# From an export, without the history: cargo would write the commit into the crates, and only a clone has one.
source=$target/source
rm -rf "$source" "$target/crates"
mkdir -p "$source/forkless-$version"
tar --create -C "$root" --null --no-recursion --files-from="$target/files" | tar -x -C "$source/forkless-$version"
"$here/archive.sh" "$output/forkless-$version.tar.gz" "$source" "forkless-$version"
(
	cd "$source/forkless-$version"
	unset RUSTFLAGS
	published=()
	for manifest in crates/*/Cargo.toml; do
		grep -q '^publish = false' "$manifest" || published+=(--package "$(basename "$(dirname "$manifest")")")
	done
	# What a crate needs of the others is taken from the same run.
	cargo package "${published[@]}" --locked --no-verify --quiet --target-dir "$target/crates"
)
cp "$target"/crates/package/*-"$version".crate "$output/"
rm -rf "$source"

missing=
if [ -z "$bare" ]; then
	echo "== Python package"
	wheels=()
	for architecture in x86_64 aarch64; do
		[[ " ${triples[*]}" != *" $architecture-"* ]] || wheels+=("$architecture-gnu" "$architecture-musl")
	done
	# A folder of its own: the name of its source, which pip looks for, is that of the whole tree's.
	CARGO_TARGET_DIR=$target/wheels "$root/bindings/python/wheels.sh" "$output/python" "${wheels[@]}" || missing=1
fi

env -u RUSTFLAGS CARGO_TARGET_DIR="$target/tools" cargo run --quiet --locked --package xtask -- sbom >"$output/forkless-$version.cdx.json"
(cd "$output" && find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum -- >"$target/sums" && mv "$target/sums" SHA256SUMS)

if [ -z "$bare" ]; then
	echo "== tests"
	"$here/test.sh" "$output" "$target"
fi
echo "$output: $(wc -l <"$output/SHA256SUMS") artefacts, SHA256SUMS"
[ -z "$missing" ] || { echo "a wheel is missing, or failed: see above" >&2 && exit 1; }
