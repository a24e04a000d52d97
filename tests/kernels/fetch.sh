# Sourced by the scripts beside it: Debian's kernels, fetched once and unpacked for an emulator.
# Needs bash, apt-get, dpkg and xz.
#
# The caller sets $work, a scratch directory. Kernels are kept in $cache, one directory for each
# package. It holds vmlinuz, and the modules for block devices. Set FORKLESS_KERNEL_CACHE to keep
# them elsewhere.

cache=${FORKLESS_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-kernels}
mkdir -p "$cache"

# Prints the name of the newest package of a series, such as 6[.]1[.]. Fails, with the reason, if
# apt knows none.
newest() { # SERIES ARCHITECTURE APT-OPTION...
	local series=$1 architecture=$2 found
	shift 2
	found=$(apt-cache "$@" search --names-only "^linux-image-$series.*-cloud-$architecture-unsigned\$" | cut -d' ' -f1 | sort -V | tail -n1)
	[ -n "$found" ] || echo "kernels: apt knows no linux-image-$series*-cloud-$architecture-unsigned (apt-get update?)" >&2
	echo "$found"
	[ -n "$found" ]
}

# Fills the array `apt` with an apt of another release or architecture. The machine's own apt does
# not learn of it.
apart() { # NAME ARCHITECTURE [SOURCE...]
	local state=$work/apt-$1 arch=$2
	shift 2
	mkdir -p "$state"/{lists,archives}/partial
	apt=(-o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o "Dir::State::lists=$state/lists" -o Dir::State::status=/dev/null
		-o "Dir::Cache::archives=$state/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
	if [ $# -gt 0 ]; then
		printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s\n' "$@" >"$state/sources.list"
		apt+=(-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null)
	fi
	# A mirror that stands still has lists that count as expired.
	apt-get -qq -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false "${apt[@]}" update
}

# Prints the directory of a package, after fetching and unpacking it if that was not done before.
# Fails, with the reason, if the package cannot be had.
kernel() { # PACKAGE APT-OPTION...
	local package=$1 tree=$cache/$1.d
	shift
	if [ ! -e "$tree/vmlinuz" ]; then
		rm -rf "$work/unpacked" "$tree.part" "$tree"
		mkdir -p "$tree.part" "$work/unpacked"
		if ! (cd "$work/unpacked" && apt-get -qq -o APT::Sandbox::User=root "$@" download "$package" && dpkg -x "$package"_*.deb .) >&2; then
			echo "kernels: $package could not be fetched" >&2
			return 1
		fi
		# Debian 14 has it beside the modules, which are a package of their own.
		find "$work/unpacked" -name 'vmlinuz*' -type f -exec cp {} "$tree.part/vmlinuz" \;
		[ -e "$tree.part/vmlinuz" ] || { echo "kernels: $package has no kernel" >&2; return 1; }
		find "$work/unpacked" \( -name 'dm-mod.ko*' -o -name 'loop.ko*' \) -exec cp {} "$tree.part/" \;
		# busybox cannot read compressed modules.
		find "$tree.part" -name '*.xz' -exec xz -d {} +
		rm -rf "$work/unpacked"
		mv "$tree.part" "$tree"
	fi
	echo "$tree"
}

# Prints the directory of the newest kernel of another release, of the packages of this name.
# Mirrors drop some of its packages before its lists: the newest package that can be had is taken.
of_release() { # RELEASE PATTERN SOURCE...
	local release=$1 pattern=$2 package tree
	shift 2
	apart "$release" amd64 "$@" || return 1
	for package in $(apt-cache "${apt[@]}" search --names-only "$pattern" | cut -d' ' -f1 | sort -rV | head -n 6); do
		if tree=$(kernel "$package" "${apt[@]}" 2>/dev/null); then
			echo "$tree"
			return
		fi
	done
	return 1
}

# Prints the directory of Linux 5.10, the oldest supported kernel. bullseye is no longer in the
# archives of this machine's release.
oldest() {
	of_release bullseye '^linux-image-5[.]10[.].*-cloud-amd64(-unsigned)?$' \
		"http://deb.debian.org/debian bullseye main" "http://deb.debian.org/debian-security bullseye-security main"
}

# Prints the directory of the newest kernel of Debian testing.
testing() {
	of_release testing '^linux-binary-[0-9].*-cloud-amd64$' "http://deb.debian.org/debian testing main"
}

# Makes $root an initial file system with busybox under these names. `pack` packs it.
furnish() { # BUSYBOX APPLET...
	local busybox=$1 applet
	shift
	rm -rf "$root"
	mkdir -p "$root"/{bin,lib64,usr/bin,proc,sys,tmp,dev,etc,modules}
	cp "$busybox" "$root/bin/busybox"
	for applet; do ln -s busybox "$root/bin/$applet"; done
}

# Packs $root as $work/initrd.gz.
pack() {
	chmod +x "$root/init"
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd.gz"
}
