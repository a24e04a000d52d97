# Rust's own tests of processes. They are std's tests, if the component rust-src is installed, and
# the programs of the compiler's suite that start others, from Debian's source. The installed Rust
# builds them, and its std runs them. A test that it can no longer build is no case.
# shellcheck shell=bash

prepare() {
	local file name std
	command -v rustc >/dev/null || { echo "suites: rustc is not installed"; return 1; }
	fetch_source rustc || return 1
	std=$(rustc --print sysroot)/lib/rustlib/src/rust/library/std/src/process/tests.rs
	mkdir -p "$source/built"
	[ -e "$source/built/.all" ] && return
	{ echo '#![feature(read_buf, core_io_borrowed_buf)]'; sed -E 's/\bsuper::/std::process::/g; s/\bcrate::/std::/g' "$std" 2>/dev/null; } >"$source/std.rs"
	[ ! -e "$std" ] || build --test -o "$source/built/std" "$source/std.rs" || echo "suites: std's own tests of processes cannot be built"
	for file in $(cd "$source/src/test/ui" && grep -lrE 'process::|\bfork\(|CommandExt' --include=*.rs . | xargs grep -l '// run-pass' | sed 's|^\./||'); do
		name=${file%.rs}
		build -o "$source/built/${name//\//.}" "$source/src/test/ui/$file" || echo "suites: not built by this Rust: $file"
	done
	touch "$source/built/.all"
}

build() { # ARGUMENTS FILE
	local file=${*: -1} edition flags
	edition=$(sed -nE 's|^// ?edition: ?([0-9]+).*|\1|p' "$file")
	read -ra flags <<<"$(sed -nE 's|^// ?compile-flags: ?(.*)|\1|p' "$file" | tr '\n' ' ')"
	RUSTC_BOOTSTRAP=1 rustc "${flags[@]}" -A warnings --edition "${edition:-$([[ $file = */std.rs ]] && echo 2024 || echo 2015)}" "$@" 2>/dev/null
}

cases() {
	find "$source/built" -maxdepth 1 -type f -perm -u+x ! -name std -printf '%f\n' | sort
	[ ! -e "$source/built/std" ] || "$source/built/std" --list 2>/dev/null | sed -n 's/: test$//; s/^/std:/p' | grep -vE 'std:($|[0-9]+ tests)'
}

# A program may leave files in its directory.
one() {
	local program=$1 arguments=()
	case $1 in std:*) program=std arguments=("${1#std:}" --exact) ;; esac
	cp "$source/built/$program" . || return
	env -u RUST_BACKTRACE RUST_TEST_THREADS=1 timeout -k 5 60 "${RUN[@]}" "./$program" "${arguments[@]}"
}

said() {
	sed -E 's/finished in [0-9.]+s/finished in N/; s/0x[0-9a-f]{6,}/ADDRESS/g; s/[pP][iI][dD][:=]? ?[0-9]+/pid N/g; s/\([0-9]+\) panicked/(N) panicked/g; s/line [0-9]+: +[0-9]+ /line N: /'
}
