#!/bin/sh
# The version, from its one place: [workspace.package] of the root Cargo.toml. With --date the day
# of that version, from its heading in CHANGELOG.md: what is packaged has this time, so that the same
# tree gives the same bytes.
set -eu
root=$(dirname "$0")/..
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
case ${1-} in
--date)
	sed -n "s/^## \[$version\] - \([0-9-]*\)\$/\1/p" "$root/CHANGELOG.md" | grep . ||
		{ echo "CHANGELOG.md has no heading: ## [$version] - DATE" >&2 && exit 1; }
	;;
*) echo "$version" ;;
esac
