#!/bin/bash
# packaging/test.sh ARTEFACTS TARGET-FOLDER: installs, uses and removes each artefact in a clean
# Debian tree.
#
# The tree is mmdebstrap's ($FORKLESS_SUITE, bookworm), with a C compiler, pkg-config and Python.
# Each test sees it through an overlay of its own, so it stays clean. After a removal, the files are
# those of before. All mounts are in mount namespaces of the tests, none on this machine. Needs root.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
artefacts=$(realpath "$1") target=$(realpath -m "$2")
version=$("$here/version.sh")
suite=${FORKLESS_SUITE:-bookworm}
tree=$target/root-$suite
mkdir -p "$target"
work=$(mktemp -d -p "$target")
trap 'rm -rf "$work"' EXIT
: >"$work/log"

if [ ! -e "$tree/usr/bin/gcc" ] || [ ! -e "$tree/usr/share/python-wheels" ]; then
	rm -rf "$tree" "$tree.new"
	mmdebstrap --quiet --variant=essential --include=gcc,libc6-dev,pkgconf,python3-venv "$suite" "$tree.new"
	mv "$tree.new" "$tree"
fi

# Runs the script on standard input in the tree, after inside.sh. $BIND is a folder to see at
# /mnt/more, $RUST one to see at /mnt/rust.
inside() { # NAME
	mkdir -p "$work/upper" "$work/work" "$work/tree" "$work/empty"
	{
		cat "$here/inside.sh"
		printf 'version=%q\n' "$version"
		cat
	} >"$work/script"
	echo "== $1"
	# shellcheck disable=SC2016
	if ! unshare --mount --propagation private --pid --fork bash -euc '
		mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/tree"
		mount -t proc proc "$2/tree/proc"
		mount --rbind /dev "$2/tree/dev"
		mount -t tmpfs tmpfs "$2/tree/tmp"
		mount -t tmpfs tmpfs "$2/tree/mnt"
		mkdir "$2/tree/mnt/artefacts" "$2/tree/mnt/more" "$2/tree/mnt/rust"
		mount --bind "$3" "$2/tree/mnt/artefacts"
		mount --bind "$4" "$2/tree/mnt/more"
		mount --bind "$5" "$2/tree/mnt/rust"
		cp "$2/script" "$2/tree/tmp/script"
		exec chroot "$2/tree" bash /tmp/script' - "$tree" "$work" "$artefacts" "${BIND:-$work/empty}" "${RUST:-$work/empty}" </dev/null 2>&1 | tee -a "$work/log"; then
		echo "FAILED  the script of $1 ends" | tee -a "$work/log"
	fi
	rm -rf "$work/upper" "$work/work" "$work/tree"
}

skip() { echo "skipped: $1" | tee -a "$work/log"; }

try_here() { # NAME COMMAND...
	local name=$1
	shift
	if "$@" >"$work/said" 2>&1; then
		echo "ok      $name"
	else
		echo "FAILED  $name"
		tail -n 40 "$work/said" | sed 's/^/        /'
	fi | tee -a "$work/log"
}

echo "== sums"
try_here "SHA256SUMS names every artefact, and is right" bash -c 'cd "$1" && sha256sum --quiet -c SHA256SUMS &&
	[ "$(cut -c67- SHA256SUMS)" = "$(find . -type f -not -name SHA256SUMS -printf "%P\n" | LC_ALL=C sort)" ]' - "$artefacts"
try_here "what is installed has 25 MB at most" bash -c '
	for file in "$1"/*-gnu.tar.gz "$1"/*-musl.tar.gz; do
		[ ! -e "$file" ] || [ "$(tar -tvzf "$file" | awk "{ all += \$3 } END { print all }")" -le 25000000 ] || { echo "$file"; exit 1; }
	done' - "$artefacts"

for file in "$artefacts"/forkless-"$version"-x86_64-*.tar.gz; do
	name=$(basename "$file" .tar.gz)
	[[ $name != *-debug && -e $file ]] || continue
	{
		printf 'name=%q\n' "$name"
		cat <<-'SCRIPT'
			mkdir -p "/opt/a place"
			files >/tmp/before
			try "it is unpacked" tar -xzf "$artefacts/$name.tar.gz" -C /opt
			command_works "/opt/$name/bin/forkless" "$version"
			if [ -e "/opt/$name/lib/libforkless.a" ]; then
				export PKG_CONFIG_PATH=/opt/$name/lib/pkgconfig
				c_works "$version" "/opt/$name/lib"
				mv "/opt/$name" /opt/moved
				export PKG_CONFIG_PATH=/opt/moved/lib/pkgconfig
				c_works "$version" /opt/moved/lib
				mv /opt/moved "/opt/$name"
			fi
			mv "/opt/$name" "/opt/a place/"
			try "moved, the command finds its library, and says that no loader can preload it from there" \
				sh -c "'/opt/a place/$name/bin/forkless' run -- true 2>&1 | grep 'a space'"
			try "it is removed" rm -r "/opt/a place/$name"
			try "nothing is left" nothing_left
		SCRIPT
	} | inside "$name"
done

for file in "$artefacts"/forkless-"$version"-aarch64-*.tar.gz; do
	[[ $file != *-debug.tar.gz && -e $file ]] || continue
	rm -rf "$work/arm"
	mkdir "$work/arm"
	tar -xzf "$file" -C "$work/arm" --strip-components=1
	echo "== $(basename "$file" .tar.gz)"
	files=(bin/forkless lib/libforkless-run.so)
	# musl's archive has no C library.
	[[ $file == *-musl.tar.gz ]] || files+=("lib/libforkless.so.$version")
	for one in "${files[@]}"; do
		try_here "$one is linked for aarch64" bash -c 'readelf -h "$1" | grep AArch64' - "$work/arm/$one"
	done
	skip "running it: user-mode emulators share no memory between a vfork child and its parent (tests/kernels/library.sh boots a machine)"
done

if compgen -G "$artefacts/*.deb" >/dev/null; then
	inside "Debian packages" <<-'SCRIPT'
		files >/tmp/before
		try "they are installed, with what they depend on" dpkg --install $artefacts/*.deb
		command_works forkless "$version"
		c_works "$version" "/usr/lib/$(gcc -dumpmachine)"
		try "without a path, the loader finds the library" says "$version 7" /tmp/shared
		try "dpkg finds nothing changed" sh -c '[ -z "$(dpkg --verify forkless libforkless0 libforkless-dev)" ]'
		try "each program's symbols lie at its build id" sh -c '
			for file in /usr/bin/forkless /usr/lib/libforkless-run.so /usr/lib/*/libforkless.so.0; do
				id=$(readelf -n "$file" | sed -n "s/.*Build ID: //p")
				readelf -SW "/usr/lib/debug/.build-id/$(echo "$id" | cut -c1-2)/$(echo "$id" | cut -c3-).debug" | grep debug_line || exit 1
			done'
		try "a program with LD_PRELOAD has the library" \
			says 1 env LD_PRELOAD=/usr/lib/libforkless-run.so grep -c 'r-xp.*libforkless-run.so' /proc/self/maps
		try "they are installed again, over themselves" dpkg --install $artefacts/*.deb
		try "they are removed" dpkg --purge forkless-dbgsym libforkless0-dbgsym forkless libforkless-dev libforkless0
		try "nothing is left" nothing_left
	SCRIPT
	if command -v lintian >/dev/null; then
		try_here "lintian finds nothing" lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$artefacts"/*.deb
	else
		skip "lintian: not installed"
	fi
fi

for file in "$artefacts"/python/*.whl; do
	[ -e "$file" ] || continue
	if [[ $file != *-manylinux*_x86_64.whl ]]; then
		skip "running $(basename "$file"): no Python here is for it"
		continue
	fi
	{
		printf 'wheel=$artefacts/python/%q\n' "$(basename "$file")"
		cat <<-'SCRIPT'
			export PYTHONDONTWRITEBYTECODE=1
			files >/tmp/before
			try "a virtual environment is made" python3 -m venv /opt/env
			try "pip installs the wheel" /opt/env/bin/pip install --no-index --no-deps "$wheel"
			try "it does what the guide begins with" /opt/env/bin/python /mnt/more/smoke.py
			command_works /opt/env/bin/forkless "$version"
			try "pip uninstalls it" /opt/env/bin/pip uninstall --yes forkless
			try "nothing of it is left" sh -c 'find /opt/env | grep forkless; [ $? = 1 ]'
			rm -r /opt/env
			try "nothing is left" nothing_left
		SCRIPT
	} | BIND=$here/../bindings/python inside "$(basename "$file")"
done

if compgen -G "$artefacts/*.crate" >/dev/null; then
	# A program that has the crates from their packages, and all else from this machine's registry.
	mkdir "$work/rust" "$work/rust/src" "$work/rust/crates"
	for file in "$artefacts"/*.crate; do tar -xzf "$file" -C "$work/rust/crates"; done
	cat >"$work/rust/src/main.rs" <<-'PROGRAM'
		use forkless::{Command, Resource};
		fn main() -> Result<(), forkless::SpawnError> {
		    let status = Command::new("sh").args(["-c", "exit 7"]).umask(0o027).rlimit(Resource::Core, 0, 0).status()?;
		    println!("{:?}", status.code());
		    Ok(())
		}
	PROGRAM
	{
		printf '[package]\nname = "program"\nversion = "1.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\nforkless = "%s"\n[patch.crates-io]\n' "$version"
		for one in forkless forkless-sys forkless-child forkless-shell; do printf '%s = { path = "crates/%s-%s" }\n' $one $one "$version"; done
	} >"$work/rust/Cargo.toml"
	cp "$here/../Cargo.lock" "$work/rust/"
	mkdir "$work/rust/.cargo"
	printf '[source.crates-io]\nreplace-with = "vendor"\n[source.vendor]\ndirectory = "vendor"\n' >"$work/config.toml"
	if (cd "$work/rust" && cargo vendor --quiet vendor >/dev/null 2>"$work/said" && mv "$work/config.toml" .cargo/); then
		BIND=$work/rust RUST=$(rustc --print sysroot) inside "crates" <<-'SCRIPT'
			export PATH=/mnt/rust/bin:$PATH CARGO_TARGET_DIR=/tmp/target CARGO_HOME=/tmp/cargo
			cd /mnt/more
			try "a Rust program is built from the packaged crates" cargo build --offline
			try "it runs" says "Some(7)" /tmp/target/debug/program
			for example in deadline descriptors limits nonblocking switch; do
				try "the packaged example $example is there" test -s "crates/forkless-$version/examples/$example.rs"
			done
		SCRIPT
	else
		skip "a Rust program from the crates: $(tail -n1 "$work/said")"
	fi
fi

echo "== recipes"
lint() { # LINTER FILE...
	if command -v "$1" >/dev/null; then try_here "$1 finds nothing" "$@"; else skip "$1: not installed"; fi
}
lint hadolint "$here/Containerfile"
lint actionlint "$here"/../.github/workflows/*.yml

echo "== dependencies"
if cargo deny --version >/dev/null 2>&1; then
	deny() { (cd "$here/.." && cargo deny --locked "$@"); }
	try_here "cargo deny finds nothing in licences and sources" deny check bans licenses sources
	if deny fetch db >"$work/said" 2>&1; then
		try_here "cargo deny knows no advisory" deny check advisories
	else
		skip "cargo deny check advisories: $(grep -m1 -o 'fatal: .*' "$work/said" || tail -n1 "$work/said")"
	fi
else
	skip "cargo deny: not installed (cargo install cargo-deny --locked)"
fi

counted() { grep -c "^$1" "$work/log" || true; }
failed=$(counted FAILED)
echo "$(counted 'ok ') passed, $failed failed, $(counted skipped:) skipped"
[ "$failed" = 0 ]
