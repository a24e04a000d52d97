#!/bin/bash
# The Dockerfile recipes of docs/guide/deploy.md, built and run by Docker with its own filter for
# system calls. A command of its own: it needs root, a Docker daemon, debootstrap and a mirror of
# Debian.
#
#   tests/preload/docker.sh [--library FILE]
#
# FORKLESS_PRELOAD_STORE (~/.cache/forkless-preload) keeps the tree that becomes the base image. The
# images are removed. Exit 1 if a check fails, 3 if something needed is missing.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
store=${FORKLESS_PRELOAD_STORE:-${XDG_CACHE_HOME:-$HOME/.cache}/forkless-preload}
missing() { echo "docker: $1" >&2 && exit 3; }
docker info >/dev/null 2>&1 || missing "no Docker daemon answers"
if [ "${1-}" = --library ]; then
	library=$(realpath -- "${2:?--library needs a file}")
else
	(cd "$top" && cargo build --quiet --locked --profile preload --package forkless-preload) || exit 3
	library=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/preload/libforkless_preload.so
fi
if [ ! -e "$store/base/etc/debian_version" ]; then
	command -v debootstrap >/dev/null || missing "debootstrap is not installed: apt-get install debootstrap"
	rm -rf "$store/base" && mkdir -p "$store"
	debootstrap --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$store/base" \
		http://deb.debian.org/debian >"$store/log" 2>&1 || missing "debootstrap failed: $store/log"
fi

name=forkless-recipe-$$
context=$(mktemp -d) || exit 3
trap 'docker image rm --force "$name" "$name-base" >/dev/null 2>&1; rm -rf "$context"' EXIT
tar -C "$store/base" -c . | docker import - "$name-base" >/dev/null || exit 3
cp "$library" "$context/libforkless-run.so"
cc -O1 -o "$context/cases" "$top/fixtures/run/preloaded_cases.c" -lpthread || exit 3

# The blocks that copy the library: by the environment, and by the loader's list.
recipe() { # NUMBER
	awk -v wanted="$1" '/^```dockerfile$/ { block = ""; inside = 1; next }
		/^```$/ { if (inside && block ~ /COPY/ && ++n == wanted) printf "%s", block; inside = 0 }
		inside { block = block $0 "\n" }' "$top/docs/guide/deploy.md"
}

failed=0
check() { # WHAT EXPECTED GOT
	if [ "$2" = "$3" ]; then echo "docker: $1: $3"; else failed=1 && echo "docker: $1: $3, not $2"; fi
}

for number in 1 2; do
	{ echo "FROM $name-base" && echo "COPY cases /usr/bin/" && recipe "$number"; } >"$context/Dockerfile"
	grep -q COPY.*libforkless "$context/Dockerfile" || missing "the page has no recipe $number"
	docker build --quiet --tag "$name" "$context" >/dev/null 2>"$context/log" || { cat "$context/log" && exit 1; }
	run=(docker run --rm --network none)
	check "recipe $number, filters" "Seccomp_filters: 1" "$("${run[@]}" "$name" grep Seccomp_filters /proc/self/status | tr '\t' ' ')"
	for way in "alone fork=strict" "beside_a_thread fork=speculate"; do
		words="record=/run/record,fork-minimum=1M,fork-limit=60000,${way#* }"
		# Six words of eight bytes before the counters; among these the fourth says how many committed.
		line="cases ${way% *} && od -A n -t u8 -j 48 -N 8 /run/record"
		said=$("${run[@]}" --env "FORKLESS_OPTIONS=$words" "$name" sh -c "$line" 2>&1 | tr -s ' \n' ' ')
		check "recipe $number, ${way% *}, and how many committed" "3 of 3 children, 1 3 " "$said"
	done
	said=$("${run[@]}" --env FORKLESS=off --env FORKLESS_OPTIONS=record=/run/record "$name" sh -c 'cases alone; ls /run/record' 2>&1)
	check "recipe $number, switched off" "3 of 3 children, 1
ls: cannot access '/run/record': No such file or directory" "$said"
done
exit "$failed"
