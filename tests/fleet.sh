#!/bin/bash
# The files of examples/fleet, in the real programs: promtool checks the rules and their cases. Then
# `forkless diagnose` runs with the arguments and the capabilities of daemonset.yaml, a Prometheus of
# this machine scrapes it and evaluates the rules (within seconds, not minutes), while a program
# of 1 GiB forks to execute another. The alert on slow forks must fire, and every query of the
# dashboard must give numbers. Go, where it is installed, reads the DaemonSet by Kubernetes' own
# types, strictly.
#
#   tests/fleet.sh [--forkless COMMAND]
#
# It needs root, prometheus, python3 with yaml, curl and setpriv. Exit codes: 0 fine, 1 a check
# failed, 2 usage, 3 something needed is missing.
set -uo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
fleet=$top/examples/fleet
forkless=${CARGO_TARGET_DIR:-$top/target}/release/forkless
missing() { echo "fleet: $1" >&2 && exit 3; }
case ${1-} in
--forkless) forkless=$(realpath -- "${2:?fleet: --forkless needs a command}") ;;
"") ;;
*) echo "fleet: no argument '$1'" >&2 && exit 2 ;;
esac
for program in prometheus promtool python3 curl setpriv; do
	command -v "$program" >/dev/null || missing "$program is not installed: apt-get install prometheus python3-yaml curl util-linux"
done
python3 -c 'import yaml' 2>/dev/null || missing "python3 has no yaml: apt-get install python3-yaml"
[ "$(id -u)" = 0 ] || missing "only root can give the capabilities of daemonset.yaml"
[ -x "$forkless" ] || missing "$forkless is missing: ./x build"
work=$(mktemp -d) || exit 3
ended() {
	# shellcheck disable=SC2046
	kill $(jobs -p) 2>/dev/null
	wait 2>/dev/null
	rm -rf "$work"
}
trap ended EXIT
cd "$work" || exit 3

failed=0
check() { # WHAT EXPECTED GOT
	if [ "$2" = "$3" ]; then echo "fleet: $1: $3"; else failed=1 && echo "fleet: FAILED: $1: '$3', not '$2'"; fi
}
promtool check config "$fleet/prometheus.yml" >log 2>&1
check "promtool check config" 0 $?
(cd "$fleet" && promtool test rules forkless.rules.test.yml) >log 2>&1
check "cases of the rules" 0 $?
[ $failed = 0 ] || cat log
# A case that expects nothing where something fires must fail.
sed 's/^  - forkless.rules.yml/  - '"${fleet//\//\\/}"'\/forkless.rules.yml/; s/eval_time: 5m$/eval_time: 30m/' "$fleet/forkless.rules.test.yml" >wrong.yml
promtool test rules wrong.yml >log 2>&1
check "control: a wrong case is found" 1 $?

# Arguments and capabilities of the pod, in the place of its container.
python3 - "$fleet/daemonset.yaml" >pod <<'PYTHON' || exit 1
import sys, yaml
[container] = yaml.safe_load(open(sys.argv[1]))["spec"]["template"]["spec"]["containers"]
assert container["args"][0] == "forkless"
assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
port = str(container["ports"][0]["containerPort"])
assert container["args"][-1].endswith(":" + port)
print(*container["args"][1:-1])
print(",".join("+" + name.lower() for name in container["securityContext"]["capabilities"]["add"]))
PYTHON
{ read -r args && read -r capabilities; } <pod
# shellcheck disable=SC2086
setpriv --bounding-set "-all,$capabilities" "$forkless" $args 127.0.0.1:0 2>watch.txt >/dev/null &
for _ in $(seq 300); do
	address=$(grep -oE '127\.0\.0\.1:[0-9]+' watch.txt | head -n1) && curl -sf "http://$address/metrics" | grep -q forkless_events_lost && break
	sleep 0.2
done
[ -n "${address-}" ] || { cat watch.txt; missing "the watch did not begin"; }
curl -sf "http://$address/metrics" >metrics.txt
promtool check metrics <metrics.txt >log 2>&1
check "promtool check metrics" 0 $?

# Seconds in place of minutes; nothing else of the rules is changed.
sed -E 's/\[(5|10|30)m\]/[20s]/; s/\[(5|10|30)m\]/[20s]/; s/for: .*/for: 2s/' "$fleet/forkless.rules.yml" >forkless.rules.yml
sed "s/127.0.0.1:9469/$address/" "$fleet/prometheus.yml" >prometheus.yml
printf 'global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n' | cat - prometheus.yml >all.yml
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
prometheus --config.file=all.yml --storage.tsdb.path=data "--web.listen-address=127.0.0.1:$port" --log.level=error >prometheus.txt 2>&1 &
python3 - <<'PYTHON' &
import subprocess
# The alert is for forks of more than 10 ms.
memory = bytearray(1 << 30)
memory[::4096] = b"1" * len(memory[::4096])
while True:
    subprocess.run(["sh", "-c", "/bin/true"], preexec_fn=int)
PYTHON
python3 - "$port" "$fleet/grafana-dashboard.json" <<'PYTHON' || failed=1
import json, sys, time, urllib.parse, urllib.request

port, dashboard = sys.argv[1:]
def ask(path, **words):
    url = "http://127.0.0.1:%s/api/v1/%s?%s" % (port, path, urllib.parse.urlencode(words))
    return json.load(urllib.request.urlopen(url, timeout=30))["data"]

def until(question, seconds=180):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            answer = question()
            if answer:
                return answer
        except OSError:
            pass
        time.sleep(0.5)
    return None

def firing():
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    return rules if any(r["name"] == "ForklessForkIsSlow" and r.get("state") == "firing" for r in rules) else None

rules = until(firing)
assert rules, "ForklessForkIsSlow does not fire: %s" % json.dumps(ask("rules"))[:3000]
print("fleet: ForklessForkIsSlow fires")
for rule in rules:
    assert rule["health"] == "ok", rule
    assert rule.get("state") != "firing" or rule["name"] != "ForklessWatchIsGone", rule
print("fleet: %d rules are evaluated, none has an error" % len(rules))
shown = json.load(open(dashboard))
empty = []
for panel in shown["panels"]:
    for target in panel["targets"]:
        query = target["expr"].replace("$__rate_interval", "20s").replace("$instance", ".*")
        assert "$" not in query, query
        # What no process here does has no series; its query must be right all the same.
        if not ask("query", query=query)["result"]:
            empty.append(panel["title"])
assert set(empty) <= {"Time of a fork whose child works, by cgroup"}, empty
print("fleet: %d panels of the dashboard have numbers" % (len(shown["panels"]) - len(empty)))
PYTHON

if command -v go >/dev/null; then
	mkdir reader && cd reader || exit 3
	printf 'module reader\n\ngo 1.24\n\nrequire (\n\tk8s.io/api v0.34.1\n\tsigs.k8s.io/yaml v1.6.0\n)\n' >go.mod
	cat >main.go <<-'GO'
		// Reads a DaemonSet strictly.
		package main

		import (
			"fmt"
			"os"

			apps "k8s.io/api/apps/v1"
			"sigs.k8s.io/yaml"
		)

		func main() {
			text, _ := os.ReadFile(os.Args[1])
			var set apps.DaemonSet
			if err := yaml.UnmarshalStrict(text, &set); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			fmt.Println(set.Kind, set.Spec.Template.Spec.Containers[0].Args)
		}
	GO
	if go mod tidy >../log 2>&1 && go build -o reader . >>../log 2>&1; then
		check "DaemonSet, by Kubernetes' types" "DaemonSet [forkless $args 0.0.0.0:9469]" "$(./reader "$fleet/daemonset.yaml")"
	else
		echo "skipped: the reader of Kubernetes' types cannot be built: $(tail -n1 ../log)"
	fi
else
	echo "skipped: no Go here to read the DaemonSet by Kubernetes' types"
fi
exit $failed
