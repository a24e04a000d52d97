#!/bin/bash
# packaging/deb.sh BUILT OUTPUT: Debian packages forkless, libforkless0 and libforkless-dev, and those of their symbols.
#
# Made by dpkg-deb alone: what is built is there, and debhelper would build it again. Dependencies are dpkg-shlibdeps'.
# There are no maintainer scripts: ldconfig runs by its trigger. The version has no revision: whoever packages Forkless
# for a distribution starts from the source, and not from here.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repository=$(dirname "$here")
built=$(realpath "$1") output=$(realpath "$2")
version=$("$here/version.sh")
date=$("$here/version.sh" --date)
SOURCE_DATE_EPOCH=$(date --utc --date="$date 00:00Z" +%s)
export SOURCE_DATE_EPOCH
architecture=$(dpkg --print-architecture)
multiarch=$(gcc -dumpmachine)
maintainer="The Forkless developers <forkless@users.noreply.github.com>"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
all=$work/all

DEBUG=$work/debug "$here/stage.sh" "$built" "$all" /usr "/usr/lib/$multiarch" /usr

# Moves files of the installation into a package's tree.
take() { # PACKAGE PATH...
	local package=$1 path
	shift
	for path; do
		mkdir -p "$(dirname "$work/$package/$path")"
		mv "$all/$path" "$work/$package/$path"
	done
}
take libforkless0 "usr/lib/$multiarch/libforkless.so.$version" "usr/lib/$multiarch/libforkless.so.0"
take libforkless-dev "usr/lib/$multiarch/libforkless.so" "usr/lib/$multiarch/libforkless.a" "usr/lib/$multiarch/pkgconfig" usr/include \
	usr/share/man/man3
take forkless usr/bin usr/lib/libforkless-run.so usr/share/man/man1 usr/share/bash-completion usr/share/zsh usr/share/fish \
	usr/share/doc/forkless/{README.md,SECURITY.md,CHANGELOG.md}
gzip -9n "$work/forkless/usr/share/doc/forkless/CHANGELOG.md"
# What is linked in came with licences that ask for their texts.
for one in forkless libforkless0 libforkless-dev; do
	mkdir -p "$work/$one/usr/share/doc/$one"
	[ ! -e "$all/usr/share/doc/forkless/third-party-licenses.gz" ] ||
		cp "$all/usr/share/doc/forkless/third-party-licenses.gz" "$work/$one/usr/share/doc/$one/"
done
# Debian's place for zsh.
mv "$work/forkless/usr/share/zsh/site-functions" "$work/forkless/usr/share/zsh/vendor-completions"

mkdir "$work/debian"
printf 'Source: forkless\n\nPackage: forkless\nArchitecture: any\n' >"$work/debian/control"
needs() { # FILE: the packages that its libraries are in
	(cd "$work" && dpkg-shlibdeps -O "$1" | sed 's/^shlibs:Depends=//')
}

documents() { # PACKAGE
	local to=$work/$1/usr/share/doc/$1
	mkdir -p "$to"
	cat >"$to/copyright" <<-COPYRIGHT
		Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
		Upstream-Name: forkless
		Source: https://github.com/forkless/forkless

		Files: *
		Copyright: 2026 The Forkless developers
		License: Expat or Apache-2.0

		License: Expat
		$(sed -n '/^Permission/,$p' "$repository/LICENSE-MIT" | sed 's/^$/./; s/^/ /')

		License: Apache-2.0
		 On Debian systems the text of this license is in /usr/share/common-licenses/Apache-2.0.
	COPYRIGHT
	gzip -9n >"$to/changelog.gz" <<-CHANGELOG
		forkless ($version) unstable; urgency=medium

		  * Version $version. /usr/share/doc/forkless/CHANGELOG.md.gz says what changed.

		 -- $maintainer  $(date --utc --date="$date 00:00Z" --rfc-email)
	CHANGELOG
	find "$work/$1/usr/share/man" -name '*.[13]' -exec gzip -9n {} + 2>/dev/null || true
	chmod -R u+rwX,go=rX "$work/$1"
}

# The control file comes from standard input, without the fields that all packages share.
package() { # NAME
	local tree=$work/$1 fields level
	fields=$(cat)
	mkdir -p "$tree/DEBIAN"
	{
		printf 'Package: %s\nSource: forkless\nVersion: %s\nArchitecture: %s\nMaintainer: %s\nPriority: optional\n' "$1" "$version" \
			"$architecture" "$maintainer"
		printf 'Homepage: https://github.com/forkless/forkless\nInstalled-Size: %s\n' "$(du -k --apparent-size -s "$tree/usr" | cut -f1)"
		printf '%s\n' "$fields"
	} >"$tree/DEBIAN/control"
	(cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
	chmod 755 "$tree/DEBIAN"
	# Symbols are compressed in their files already.
	case $1 in *-dbgsym) level=1 ;; *) level=6 ;; esac
	dpkg-deb --root-owner-group -Zxz -z$level --build "$tree" "$output/${1}_${version}_$architecture.deb" >/dev/null
}

# Symbols of one file, by its build id, in a package of their own.
symbols_of() { # PACKAGE FILE
	local id tree=$work/$1-dbgsym
	id=$(readelf -n "$2" | sed -n 's/.*Build ID: //p')
	mkdir -p "$tree/usr/lib/debug/.build-id/${id:0:2}" "$tree/usr/share/doc"
	mv "$work/debug/.build-id/${id:0:2}/${id:2}.debug" "$tree/usr/lib/debug/.build-id/${id:0:2}/"
	ids="${ids:+$ids }$id"
	ln -sfn "$1" "$tree/usr/share/doc/$1-dbgsym"
}

dbgsym() { # PACKAGE FILE...
	local package=$1 file ids=
	shift
	for file; do symbols_of "$package" "$file"; done
	package "$package-dbgsym" <<-CONTROL
		Section: debug
		Depends: $package (= $version)
		Auto-Built-Package: debug-symbols
		Build-Ids: $ids
		Description: debug symbols for $package
	CONTROL
}

for one in forkless libforkless0 libforkless-dev; do documents $one; done

mkdir -p "$work/forkless/usr/share/lintian/overrides"
cat >"$work/forkless/usr/share/lintian/overrides/forkless" <<'OVERRIDES'
# People write its path into LD_PRELOAD. No program is linked with it, and it is linked with nothing: it serves every
# C library.
forkless: lacks-ldconfig-trigger *
forkless: package-name-doesnt-match-sonames *
forkless: shared-library-lacks-version *
forkless: shared-library-lacks-prerequisites *
forkless: no-symbols-control-file *
OVERRIDES
needed=$(needs "$work/forkless/usr/bin/forkless")
package forkless <<CONTROL
Section: devel
Depends: $needed
Description: measures, explains and removes the cost of fork
 fork copies the page tables of its caller: some ten milliseconds a gigabyte,
 and as much again in page faults afterwards. This command measures what
 starting programs costs here (forkless bench), finds the programs that pay
 for it, with the reason (forkless diagnose), and runs them unchanged without
 that cost (forkless run), by a library that it preloads.
CONTROL

needed=$(needs "$work/libforkless0/usr/lib/$multiarch/libforkless.so.$version")
mkdir -p "$work/libforkless0/DEBIAN"
echo "libforkless 0 libforkless0 (>= $version)" >"$work/libforkless0/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$work/libforkless0/DEBIAN/triggers"
# A program needs the version that the youngest of its functions came with. FORKLESS_0.1 came with 0.1.0.
awk 'BEGIN { print "libforkless.so.0 libforkless0 #MINVER#" }
	!/^#/ { since = $0; sub(/.*FORKLESS_/, "", since); nodes["FORKLESS_" since] = since; lines[++n] = " " $0 " " since ".0" }
	END { for (node in nodes) print " " node "@" node " " nodes[node] ".0"; for (i = 1; i <= n; i++) print lines[i] }' \
	"$repository/crates/forkless-capi/symbols.txt" >"$work/libforkless0/DEBIAN/symbols"
package libforkless0 <<CONTROL
Section: libs
Multi-Arch: same
Depends: $needed
Description: start any program at the cost of vfork - shared library
 A C library that starts programs with every option that fork and exec offer
 (ids, limits, umask, groups, descriptors, sessions, pipelines), at the same
 cost from a process of any size. It has system and popen without a shell
 where that is provably the same, and says which step of a start failed.
CONTROL

package libforkless-dev <<CONTROL
Section: libdevel
Multi-Arch: same
Depends: libforkless0 (= $version), libc6-dev | libc-dev
Description: start any program at the cost of vfork - development files
 The headers, the static library, the manual pages and the data for pkg-config
 of libforkless.
CONTROL

dbgsym forkless "$built/forkless" "$built/libforkless_preload.so"
dbgsym libforkless0 "$built/libforkless.so"
