#!/bin/bash
# The recipes of docs/guide/deploy.md for systemd, Compose and Kubernetes, each taken from the page
# and given to its tool's own reader, strictly: an unknown key fails. Their values then start a
# program, which must speculate. tests/preload/docker.sh does the same for the Dockerfiles,
# tests/units.sh for the units of other pages.
#
#   tests/preload/recipes.sh [--library FILE]
#
# A command of its own: it needs root, systemd's programs, a Go toolchain and its module proxy, and a
# C compiler. A user manager of systemd runs in a mount namespace, and is ended.
# Exit 1 if a recipe fails, 3 if something needed is missing.
set -uo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
missing() { echo "recipes: $1" >&2 && exit 3; }
for program in systemd-analyze systemctl unshare go cc; do
	command -v "$program" >/dev/null || missing "$program is not installed"
done
if [ "${1-}" = --library ]; then
	library=$(realpath -- "${2:?--library needs a file}")
else
	(cd "$top" && cargo build --quiet --locked --profile preload --package forkless-preload) || exit 3
	library=$(realpath -m "${CARGO_TARGET_DIR:-$top/target}")/preload/libforkless_preload.so
fi
[ "$(id -u)" = 0 ] || missing "only root can make mount namespaces"
work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT
cc -O1 -o "$work/cases" "$top/fixtures/run/preloaded_cases.c" -lpthread || exit 3

failed=0
check() { # WHAT EXPECTED GOT
	if [ "$2" = "$3" ]; then echo "recipes: $1: $3"; else failed=1 && echo "recipes: $1: $3, not $2"; fi
}

# The page's only block of a language.
block() { # LANGUAGE PATTERN
	awk -v start="\`\`\`$1" -v pattern="$2" '$0 == start { block = ""; inside = 1; next }
		/^```$/ { if (inside && block ~ pattern) printf "%s", block; inside = 0 }
		inside { block = block $0 "\n" }' "$top/docs/guide/deploy.md"
}

# Six words of eight bytes before the counters; among these the fourth says how many committed.
committed() { od -A n -t u8 -j 48 -N 8 "$1" | tr -d ' '; }
options="record=$work/record,fork-minimum=1M,fork-limit=60000"

# Kubernetes and Compose: their own types and schema. What they read is printed as shell variables.
mkdir "$work/reader" && cd "$work/reader" || exit 3
cat >go.mod <<'GO'
module reader

go 1.24

require (
	github.com/compose-spec/compose-go/v2 v2.9.0
	k8s.io/api v0.34.1
	sigs.k8s.io/yaml v1.6.0
)
GO
cat >main.go <<'GO'
// Reads a manifest strictly, and prints the variables and mounts of its program.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if os.Args[1] == "compose" {
		options, err := cli.NewProjectOptions([]string{os.Args[2]}, cli.WithName("recipe"))
		must(err)
		project, err := options.LoadProject(context.Background())
		must(err)
		service, err := project.GetService("server")
		must(err)
		for name, value := range service.Environment {
			fmt.Printf("%s=%s\n", name, *value)
		}
		for _, volume := range service.Volumes {
			fmt.Printf("mount %s %s %t\n", volume.Source, volume.Target, volume.ReadOnly)
		}
		return
	}
	text, err := os.ReadFile(os.Args[2])
	must(err)
	var pod core.Pod
	must(yaml.UnmarshalStrict(text, &pod))
	for _, word := range pod.Spec.InitContainers[0].Command {
		fmt.Printf("init %s\n", word)
	}
	for _, variable := range pod.Spec.Containers[0].Env {
		fmt.Printf("%s=%s\n", variable.Name, variable.Value)
	}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		fmt.Printf("mount %s %s %t\n", mount.Name, mount.MountPath, mount.ReadOnly)
	}
}
GO
go mod tidy >"$work/log" 2>&1 && go build -o reader . >>"$work/log" 2>&1 || missing "the readers cannot be built: $(tail -n 1 "$work/log")"
cd "$work" || exit 3

block yaml '^services:' >compose.yaml
reader/reader compose compose.yaml >compose.txt || failed=1
check "Compose, library" "LD_PRELOAD=/usr/lib/libforkless-run.so" "$(grep LD_PRELOAD compose.txt)"
check "Compose, mount" "mount /usr/lib/libforkless-run.so /usr/lib/libforkless-run.so true" "$(grep '^mount' compose.txt)"
words=$(sed -n 's/^FORKLESS_OPTIONS=//p' compose.txt)
said=$(env "LD_PRELOAD=$library" "FORKLESS_OPTIONS=$words,$options" ./cases alone 2>&1)
check "Compose, its program" "3 of 3 children, 1, 3" "$said, $(committed record)"
rm -f record

block yaml '^apiVersion:' >pod.yaml
reader/reader pod pod.yaml >pod.txt || failed=1
from=$(sed -n 's/^init //p' pod.txt | tr '\n' ' ')
volume=$(sed -n 's/^mount forkless \([^ ]*\) true$/\1/p' pod.txt)
check "Kubernetes, copied" "cp /usr/lib/libforkless-run.so $volume/ " "$from"
mkdir volume && cp "$library" "volume/$(basename /usr/lib/libforkless-run.so)"
preload=$(sed -n "s|^LD_PRELOAD=$volume|$work/volume|p" pod.txt)
said=$(env "LD_PRELOAD=$preload" "FORKLESS_OPTIONS=$options" ./cases alone 2>&1)
check "Kubernetes, its program" "3 of 3 children, 1, 3" "$said, $(committed record)"
rm -f record

# systemd: a drop-in of a unit, read by a manager of its own.
mkdir -p units/recipe.service.d runtime
cat >units/recipe.service <<UNIT
[Service]
Type=oneshot
ExecStart=$work/cases alone
StandardOutput=file:$work/said
StandardError=file:$work/said
UNIT
block ini 'LD_PRELOAD' | sed "s|/usr/lib/libforkless-run.so|$library|; s|^Environment=.*|& FORKLESS_OPTIONS=$options|" \
	>units/recipe.service.d/forkless.conf
said=$(SYSTEMD_UNIT_PATH=$work/units: systemd-analyze verify recipe.service 2>&1)
check "systemd, verify" "" "$said"
# A user manager starts only where /run says that systemd has booted the machine.
chmod 700 runtime
cat >manager.sh <<'SCRIPT'
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system /run/user || exit 1
export XDG_RUNTIME_DIR=$1/runtime SYSTEMD_UNIT_PATH=$1/units:/usr/lib/systemd/user
/lib/systemd/systemd --user --log-target=null &
for _ in $(seq 600); do
	[ -S "$XDG_RUNTIME_DIR/systemd/private" ] && break
	kill -0 $! 2>/dev/null || break
	sleep 0.1
done
timeout 120 systemctl --user start recipe.service
status=$?
kill $!
wait $!
exit $status
SCRIPT
unshare --mount bash manager.sh "$work" >manager.log 2>&1
check "systemd, its program" "0, 3 of 3 children, 1, 3" "$?, $(cat said), $(committed record)"
exit $failed
