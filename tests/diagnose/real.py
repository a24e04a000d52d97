"""The programs of fixtures/diagnose/real under `forkless diagnose`, and under its remedies.

tests/diagnose/real.sh runs this, and has the usage. Expectations stand in the programs:
`NAME: KIND in FUNCTION, remedy: WORDS`, and `@NAME` at the line of the finding.
"""

import glob
import json
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time

FORKLESS, ROUNDS, COUNT, WANTED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
# The current directory is the script's own, with a copy of the programs that other users can read.
SOURCES = os.path.join(os.getcwd(), "real")
WITHIN = 0.25
# The remedies in the table: the change of the program, and none.
OWN, BY_RUN = "own change", "`forkless run`"
RUN = [FORKLESS, "run", "--quiet", "--"]
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
# Checks that fail, by how they begin, and why: faults of the tool that are not mended yet. The last
# two fail in some runs only.
KNOWN = {
    "gunicorn /version: own change": "a shell takes a quarter longer than its price",
    "node /thumbnail: one full_fork_then_exec": "one fork of a watch is a finding of its own",
    "make: the summary has one compiler": "a gcc that ended early is named by its argument",
}
passed, failed, known, rows = [], [], [], []


def check(what, fine, got):
    why = next((why for start, why in KNOWN.items() if what.startswith(start)), None)
    if fine:
        passed.append(what)
    elif why:
        known.append(what)
        print(f"real: known to fail ({why}): {what}: {got}", flush=True)
    else:
        failed.append(what)
        print(f"real: FAILED: {what}: {got}", flush=True)


class Expected:
    """What the program's own comments say must be found."""

    def __init__(self, file, name):
        text = open(os.path.join(SOURCES, file)).read()
        said = re.search(rf"{re.escape(name)}: (\w+)(?: in (\w+))?, remedy: (.*)", text)
        self.kind, self.function, self.remedy = said.groups()
        self.place = None
        for number, line in enumerate(text.splitlines(), 1):
            if line.rstrip().endswith(f"@{name}"):
                self.place = f"{self.function} ({file}:{number})"

    def finding(self, report, program, what, count):
        """The report's finding of this kind about this program, after its checks."""
        of_kind = [f for f in report["findings"] if f["kind"] == self.kind]
        found = [f for f in of_kind if f["process"]["name"] == program]
        if len(found) != 1:
            titles = [f["title"] for f in report["findings"]]
            check(f"{what}: one {self.kind} of {program}", False, titles)
            return None
        [found] = found
        if self.place is not None:
            place = found.get("place", "")
            check(f"{what}: place {self.place}", place == self.place, place)
        check(f'{what}: remedy "{self.remedy}"', self.remedy in found["remedy"], found["remedy"])
        check(f"{what}: {count} starts", found["count"] == count, found["count"])
        return found


class Turns:
    """Predicted and measured savings of one finding, a pair a round for each remedy."""

    def __init__(self, what, kind):
        self.what, self.kind, self.pairs, self.intervals = what, kind, {}, {}

    def add(self, remedy, finding, measured):
        saves = finding["saving_each_ns"]
        self.pairs.setdefault(remedy, []).append((saves["mid"], measured))
        self.intervals.setdefault(remedy, []).append(saves)

    def judge(self):
        for remedy, pairs in self.pairs.items():
            ratio = statistics.median(p / m if m else float("inf") for p, m in pairs)
            predicted, measured = (statistics.median(column) for column in zip(*pairs))
            what = f"{self.what}: {remedy}"
            got = f"predicted {shown(predicted)}, measured {shown(measured)}, ratio {ratio:.2f}"
            if all(saves["low"] == 0 for saves in self.intervals[remedy]):
                # Such a remedy promises no number, only a most.
                most = statistics.median(saves["high"] for saves in self.intervals[remedy])
                check(what, 0 <= measured <= most * (1 + WITHIN), f"{got}, at most {shown(most)}")
                note = f" (at most {shown(most)})"
            else:
                check(what, abs(ratio - 1) <= WITHIN, got)
                note = ""
            rows.append(
                (
                    self.what,
                    self.kind,
                    remedy,
                    shown(predicted) + note,
                    shown(measured),
                    f"{ratio:.2f}",
                )
            )


def shown(ns):
    return f"{ns / 1e6:.2f} ms" if abs(ns) >= 1e6 else f"{ns / 1e3:.0f} us"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(true, what, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            sys.exit(f"real: {what} after {seconds} s")
        time.sleep(0.02)


class Server:
    """A server in a session of its own, with all its processes, until `stop`."""

    def __init__(self, command, port, remedied):
        variables = dict(os.environ, REMEDIED="1") if remedied else os.environ
        self.port = port
        self.process = subprocess.Popen(
            command,
            env=variables,
            start_new_session=True,
            stdout=open("server.log", "a"),
            stderr=subprocess.STDOUT,
        )
        until(self.listens, f"{command} does not listen")

    def listens(self):
        if self.process.poll() is not None:
            sys.exit(f"real: {self.process.args} ended: {open('server.log').read()[-2000:]}")
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except OSError:
            return False
        return True

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def exchange(port, request):
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.sendall(request)
        answer = b""
        while more := stream.recv(65536):
            answer += more
    return answer


def by_http(port, path):
    answer = exchange(port, f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    assert b" 200 OK" in answer.split(b"\r\n")[0], answer
    return answer.partition(b"\r\n\r\n")[2]


def by_fastcgi(port, path):
    """One request of the FastCGI protocol, version 1: begin, parameters, no input."""

    def record(kind, content):
        return bytes((1, kind, 0, 1)) + len(content).to_bytes(2, "big") + b"\0\0" + content

    words = {
        "SCRIPT_FILENAME": os.path.join(SOURCES, path[1:]),
        "REQUEST_METHOD": "GET",
        "QUERY_STRING": "",
    }
    words = {name.encode(): value.encode() for name, value in words.items()}
    named = b"".join(bytes((len(name), len(value))) + name + value for name, value in words.items())
    request = record(1, b"\0\1\0\0\0\0\0\0") + record(4, named) + record(4, b"") + record(5, b"")
    answer = exchange(port, request)
    assert b"text/plain" in answer, answer
    return answer


def timed(ask, server, path):
    """Nanoseconds of a request, or as many as the answer says that it kept the event loop."""
    began = time.perf_counter_ns()
    answer = ask(server.port, path)
    took = time.perf_counter_ns() - began
    kept = re.search(rb"kept (\d+)", answer)
    return int(kept.group(1)) if kept else took


def report_of(options, work=None, folder="."):
    """The report of a watch, while `work` is done; without it, of a command in that folder."""
    path = os.path.abspath("report.json")
    watch = [FORKLESS, "diagnose", "--json", "-o", path, *options]
    tool = subprocess.Popen(
        watch,
        cwd=folder,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if work:
            for line in tool.stderr:
                if "the watch has begun" in line:
                    break
            work()
            # Not SIGINT, which a shell has its background commands ignore.
            tool.send_signal(signal.SIGTERM)
        said = tool.communicate()[1]
    finally:
        if tool.poll() is None:
            os.killpg(tool.pid, signal.SIGKILL)
    if tool.returncode not in (0, 1):
        sys.exit(f"real: {' '.join(watch)} ended with {tool.returncode}: {said}")
    return json.load(open(path))


def serve(what, program, file, routes, command, variants, ask=by_http):
    """A plain server is watched. Then it and one for each remedy get requests in turns, unwatched:
    beside busy processors a watch takes time from the watched."""
    servers = {}
    for name, (before, remedied) in {"": ([], False), **variants}.items():
        port = free_port()
        servers[name] = Server([*before, *command(port, remedied)], port, remedied)
    plain = servers.pop("")
    try:
        for path in routes:
            expected = Expected(file, path)
            turns = Turns(f"{what} {path}", expected.kind)
            for server in (plain, *servers.values()):
                for _ in range(5):
                    ask(server.port, path)
            for _ in range(ROUNDS):

                def work():
                    for _ in range(COUNT):
                        ask(plain.port, path)

                report = report_of(["-p", str(plain.process.pid)], work)
                finding = expected.finding(report, program, turns.what, COUNT)
                if finding is None:
                    continue
                if BY_RUN in servers:
                    promised = (
                        finding.get("why_not_run") is None and "forkless run" in finding["command"]
                    )
                    check(f"{turns.what}: `forkless run` is promised", promised, finding["remedy"])
                times = {name: [] for name in ("", *servers)}
                for _ in range(COUNT):
                    for name, server in (("", plain), *servers.items()):
                        times[name].append(timed(ask, server, path))
                before = statistics.median(times[""])
                for name in servers:
                    turns.add(name, finding, before - statistics.median(times[name]))
            turns.judge()
    finally:
        for server in (plain, *servers.values()):
            server.stop()


def processor_ns(command, variables):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ((after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)) * 1e9


def carry_out(what, program, file, name, count, command, variants):
    """A command is watched; then it runs plainly and with each remedy, in turns."""
    expected = Expected(file, name)
    turns = Turns(what, expected.kind)
    for _ in range(ROUNDS):
        finding = expected.finding(report_of(["--", *command]), program, what, count)
        if finding is None:
            continue
        times = {remedy: [] for remedy in ("", *variants)}
        for _ in range(5):
            for remedy, (words, variables) in {"": ([], {}), **variants}.items():
                times[remedy].append(processor_ns([*command, *words], {**os.environ, **variables}))
        for remedy in variants:
            saved = statistics.median(times[""]) - statistics.median(times[remedy])
            turns.add(remedy, finding, saved / finding["count"])
    turns.judge()


def source(name):
    return os.path.join(SOURCES, name)


def gunicorn():
    def command(port, _remedied):
        return [
            "gunicorn",
            "--workers=1",
            f"--bind=127.0.0.1:{port}",
            f"--chdir={SOURCES}",
            "app:app",
        ]

    serve(
        "gunicorn",
        "gunicorn",
        "app.py",
        ["/convert"],
        command,
        {OWN: ([], True), BY_RUN: (RUN, False)},
    )
    serve("gunicorn", "gunicorn", "app.py", ["/version"], command, {OWN: ([], True)})


def node():
    def command(port, _remedied):
        return ["node", source("server.js"), str(port)]

    remedies = {OWN: ([], True), BY_RUN: (RUN, False)}
    serve("node", "node server.js", "server.js", ["/thumbnail"], command, remedies)
    serve("node", "node server.js", "server.js", ["/version"], command, {OWN: ([], True)})


def puma():
    def command(port, _remedied):
        return [
            "puma",
            "--quiet",
            "--threads=1:1",
            f"--bind=tcp://127.0.0.1:{port}",
            source("pictures.ru"),
        ]

    remedies = {OWN: (NOBODY, True), BY_RUN: (RUN, False)}
    serve("puma", "puma", "pictures.ru", ["/show", "/index"], command, remedies)


def php():
    fpm = sorted(glob.glob("/usr/sbin/php-fpm*"))[-1]

    def command(port, _remedied):
        name = f"fpm-{port}.conf"
        with open(name, "w") as conf:
            conf.write(
                "[global]\ndaemonize = no\nerror_log = server.log\n"
                "[www]\nuser = www-data\ngroup = www-data\n"
                f"listen = 127.0.0.1:{port}\npm = static\npm.max_children = 1\nclear_env = no\n"
                "php_admin_value[memory_limit] = 512M\n"
            )
        return [fpm, "--no-php-ini", "--prefix", os.getcwd(), "--fpm-config", name]

    remedies = {OWN: ([], True), BY_RUN: (RUN, False)}
    serve("php", "php-fpm", "wp-media.php", ["/index.php"], command, remedies, by_fastcgi)


def lighttpd():
    def command(port, remedied):
        name = f"lighttpd-{port}.conf"
        with open(name, "w") as conf:
            conf.write(
                f'server.document-root = "{SOURCES}"\nserver.port = {port}\n'
                'server.bind = "127.0.0.1"\n'
                'server.modules = ("mod_cgi", "mod_setenv")\ncgi.assign = (".cgi" => "")\n'
            )
            if remedied:
                conf.write('setenv.add-environment = ("REMEDIED" => "1")\n')
        return ["lighttpd", "-D", "-f", name]

    remedies = {OWN: ([], True), BY_RUN: (RUN, False)}
    serve("lighttpd", "status.cgi", "status.cgi", ["/status.cgi"], command, remedies)


def configure():
    """The remedy is not applied: autoconf writes this script. Its line must start a program."""
    report = report_of(["--", "./configure"], folder="hello")
    found = storm(report, "configure", "bash configure", "what the shell does itself")
    place = re.fullmatch(r"ac_fn_c_try_\w+ \(configure:(\d+)\)", found.get("place", ""))
    check("configure: place in a function ac_fn_c_try_*", place, found.get("place"))
    text = open("hello/configure").read().splitlines()[int(place.group(1)) - 1] if place else ""
    check("configure: this line starts the compiler", '(eval "$ac_' in text, text)


def make():
    """The remedy is not applied: automake writes these recipes, and they need a shell."""
    if not os.path.exists("hello/Makefile"):
        subprocess.run("./configure", cwd="hello", stdout=subprocess.DEVNULL, check=True)
    report = report_of(["--", "make"], folder="hello")
    storm(report, "make", "make", "Leave SHELL as it is")
    names = {starter["name"]: dict(starter["started"]) for starter in report["starts"]["starters"]}
    check(
        "make: the summary has the shells that make starts", "bash" in names.get("make", {}), names
    )
    compilers = sorted(name for name, started in names.items() if "cc1" in started)
    check("make: the summary has one compiler that starts cc1", len(compilers) == 1, compilers)


def storm(report, what, program, remedy):
    found = [
        f
        for f in report["findings"]
        if f["kind"] == "start_storm" and f["process"]["name"] == program
    ]
    check(
        f"{what}: one start_storm of {program}",
        len(found) == 1,
        [f["title"] for f in report["findings"]],
    )
    if len(found) != 1:
        return {}
    check(f'{what}: remedy "{remedy}"', remedy in found[0]["remedy"], found[0]["remedy"])
    return found[0]


def recipes():
    command = ["make", "-s", "-f", source("recipes.mk")]
    carry_out(
        "recipes", "make", "recipes.mk", "recipes", 401, command, {OWN: ([], {"REMEDIED": "1"})}
    )


def bash():
    command = ["bash", source("nightly.bash")]
    carry_out(
        "bash",
        "bash nightly.bash",
        "nightly.bash",
        "report",
        600,
        command,
        {OWN: (["remedied"], {})},
    )


def main():
    for case in WANTED:
        globals()[case]()
    if rows:
        print("\n| program | finding | remedy | predicted a start | measured a start | ratio |")
        print("|:--|:--|:--|--:|--:|--:|")
        for row in rows:
            print("| " + " | ".join(row) + " |")
    print(
        f"\nreal: {len(passed)} checks passed, {len(failed)} failed,"
        f" {len(known)} failed as is known"
    )
    return bool(failed)


# So that servers are ended.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
sys.exit(main())
