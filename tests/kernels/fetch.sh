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
