# Sourced by the scripts beside it: Debian's kernels, fetched once and unpacked for an emulator. Needs bash, apt-get, dpkg and xz.
#
# The caller has $work, a scratch directory. Kernels are kept in $cache, a directory a package: vmlinuz, and the modules for
# block devices. Set FORKLESS_KERNEL_CACHE to keep them elsewhere.

cache=${FORKLESS_KERNEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-kernels}
mkdir -p "$cache"

# The newest package of a series, such as 6[.]1[.]: its name. Fails, and says why, where apt knows none.
newest() { # SERIES ARCHITECTURE APT-OPTION...
	local series=$1 architecture=$2 found
	shift 2
	found=$(apt-cache "$@" search --names-only "^linux-image-$series.*-cloud-$architecture-unsigned\$" | cut -d' ' -f1 | sort -V | tail -n1)
	[ -n "$found" ] || echo "kernels: apt knows no linux-image-$series*-cloud-$architecture-unsigned (apt-get update?)" >&2
	echo "$found"
	[ -n "$found" ]
}

# apt of another release or architecture, of which the machine's own does not learn: fills the array `apt`.
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
	apt-get -qq -o APT::Sandbox::User=root "${apt[@]}" update
}

# Fetches and unpacks a package unless that was done before: the directory. Fails, and says why, where it cannot be had.
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
		find "$work/unpacked/boot" -name 'vmlinuz-*' -exec cp {} "$tree.part/vmlinuz" \;
		find "$work/unpacked" \( -name 'dm-mod.ko*' -o -name 'loop.ko*' \) -exec cp {} "$tree.part/" \;
		# busybox reads no compressed modules.
		find "$tree.part" -name '*.xz' -exec xz -d {} +
		rm -rf "$work/unpacked"
		mv "$tree.part" "$tree"
	fi
	echo "$tree"
}

# The directory of Linux 5.10, the oldest kernel that is supported. bullseye is no longer in the archives of this machine's release, and some
# of its packages are gone from the mirrors before their lists are: the newest that can be had.
oldest() {
	local package tree
	apart bullseye amd64 "http://deb.debian.org/debian bullseye main" "http://deb.debian.org/debian-security bullseye-security main" || return 1
	for package in $(apt-cache "${apt[@]}" search --names-only '^linux-image-5[.]10[.].*-cloud-amd64(-unsigned)?$' | cut -d' ' -f1 | sort -rV | head -n 6); do
		if tree=$(kernel "$package" "${apt[@]}" 2>/dev/null); then
			echo "$tree"
			return
		fi
	done
	return 1
}

# Makes $root an initial file system with busybox under these names, packed by pack.
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
