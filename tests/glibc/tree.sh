# shellcheck shell=bash
# A small Debian for the commands of this directory: $tree/root. Sourced by them. It needs root,
# debootstrap, and once 60 MB of downloads. $FORKLESS_DEBIAN names its release, such as forky or
# sid. The default is Debian 13 (trixie, glibc 2.41).
release=${FORKLESS_DEBIAN:-trixie}
tree=${FORKLESS_GLIBC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-$release}
mirror=${FORKLESS_DEBIAN_MIRROR:-http://deb.debian.org/debian}

die() { # CODE MESSAGE
	echo "glibc: $2" >&2
	exit "$1"
}

# The help of a command is the comment at its beginning.
case ${1-} in
-h | --help)
	sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'
	exit 0
	;;
esac

[ "$(id -u)" = 0 ] || die 3 "chroot needs root"
for program in debootstrap chroot unshare; do
	command -v "$program" >/dev/null || die 3 "$program is missing: apt-get install debootstrap"
done

# Makes the tree, unless it is there.
make_tree() {
	# A tree that was interrupted has no such file.
	if [ ! -e "$tree/complete" ]; then
		# A debootstrap that is older than the release makes it as it makes sid.
		local script=/usr/share/debootstrap/scripts
		[ -e "$script/$release" ] && script+=/$release || script+=/sid
		echo "glibc: making a Debian ($release) in $tree" >&2
		rm -rf "$tree"
		mkdir -p "$tree"
		debootstrap --variant=minbase "$release" "$tree/root" "$mirror" "$script" >"$tree/log" 2>&1 ||
			die 3 "debootstrap failed: see $tree/log"
		touch "$tree/complete"
	fi
}

# Runs a command in the tree, which sees this machine's /dev and /sys, a /proc of its own, and each
# DIRECTORY at PLACE. The tree is the root of the mount namespace: in a chroot no namespace of users
# may be made. The environment is clean: variables of this machine may name directories that the
# tree lacks.
in_tree() { # [DIRECTORY PLACE]... -- COMMAND...
	# shellcheck disable=SC2016  # the inner shells expand them
	unshare --mount --propagation private --fork --pid /bin/bash -euc '
		root=$1
		shift
		mount --bind "$root" "$root"
		for name in dev sys; do mount --rbind "/$name" "$root/$name"; done
		mount -t proc proc "$root/proc"
		while [ "$1" != -- ]; do
			mount --rbind "$1" "$root$2"
			shift 2
		done
		shift
		cd "$root"
		pivot_root . mnt
		exec chroot . /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp \
			LC_ALL=C.UTF-8 /bin/sh -euc "umount -l /mnt; exec \"\$@\"" in_tree "$@"' in_tree "$tree/root" "$@"
}
