"""The process tests of other people's packages, with forkless and without it.

    python suites/foreign.py [pexpect | ptyprocess | psutil | trio | anyio ...]

The interpreter has forkless and pip. Packages and their tests come from PyPI. Each package's tests
run without forkless first, and then under `forkless.install()`. Those of pexpect and ptyprocess run
on `forkless.pty.PtyProcess`, too. A test that fails in the first run may fail in the others.

What failed in one run alone is run once more by itself: some of these suites count seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from typing import Dict, List, NamedTuple, Set, Tuple

INSTALL = "import forkless; forkless.install()\n"
PTY = """\
import ptyprocess, ptyprocess.ptyprocess
from forkless.pty import PtyProcess, PtyProcessError, PtyProcessUnicode
for module in (ptyprocess, ptyprocess.ptyprocess):
    module.PtyProcess = PtyProcess
    module.PtyProcessUnicode = PtyProcessUnicode
    module.PtyProcessError = PtyProcessError
"""


class Suite(NamedTuple):
    """A package's tests."""

    #: Its name and version on PyPI.
    package: str
    #: What else its tests import.
    needs: Tuple[str, ...]
    #: Where in its source they are, or the module that has them.
    tests: Tuple[str, ...]
    #: Names of the runs, with what they load first.
    ways: Dict[str, str]
    arguments: Tuple[str, ...] = ()


PLAIN = "without forkless"
INSTALLED = "under forkless.install()"
ON_PTY = "on forkless.pty.PtyProcess"

SUITES = {
    "pexpect": Suite(
        "pexpect==4.9.0",
        ("ptyprocess==0.7.0",),
        ("tests",),
        {PLAIN: "", INSTALLED: INSTALL, ON_PTY: PTY},
    ),
    "ptyprocess": Suite(
        "ptyprocess==0.7.0", (), ("tests",), {PLAIN: "", INSTALLED: INSTALL, ON_PTY: PTY}
    ),
    "psutil": Suite(
        "psutil==6.1.1",
        (),
        ("psutil.tests.test_process", "psutil.tests.test_testutils"),
        {PLAIN: "", INSTALLED: INSTALL},
    ),
    "trio": Suite(
        "trio==0.30.0",
        (),
        ("trio._tests.test_subprocess",),
        {PLAIN: "", INSTALLED: INSTALL},
        ("-p", "trio._tests.pytest_plugin", "--run-slow"),
    ),
    "anyio": Suite(
        "anyio==4.9.0",
        ("trio==0.30.0", "trustme", "pytest-mock", "hypothesis", "truststore", "blockbuster"),
        ("tests/test_subprocesses.py", "tests/test_to_process.py"),
        {PLAIN: "", INSTALLED: INSTALL},
        ("-p", "anyio"),
    ),
}


def failures(report: str) -> Set[str]:
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", report, re.MULTILINE))


def main(names: List[str]) -> int:
    unknown = set(names) - set(SUITES)
    if unknown:
        sys.exit("no such suite: %s; there are %s" % (", ".join(unknown), ", ".join(SUITES)))
    return max([compare(name, SUITES[name]) for name in names or SUITES])


def compare(name: str, suite: Suite) -> int:
    """Runs a suite in all its ways. Returns 0 if forkless changes no result."""
    with tempfile.TemporaryDirectory() as place:
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
        target = os.path.join(place, "installed")
        got = subprocess.run(
            [*pip, "install", "-t", target, suite.package, "pytest", *suite.needs]
        ).returncode
        root = place
        if not got and ("/" in suite.tests[0] or suite.tests == ("tests",)):
            download = ["download", "--no-deps", "--no-binary", ":all:", "-d", place]
            got = subprocess.run([*pip, *download, suite.package]).returncode
            for archive in [entry for entry in os.listdir(place) if entry.endswith(".tar.gz")]:
                with tarfile.open(os.path.join(place, archive)) as opened:
                    opened.extractall(place)
                root = os.path.join(place, archive[: -len(".tar.gz")])
        if got:
            print("skipped: %s: pip has not got %s" % (name, suite.package))
            return 0
        return compare_at(name, suite, root, target)


def compare_at(name: str, suite: Suite, root: str, target: str) -> int:
    with open(os.path.join(target, "forkless_way.py"), "w") as file:
        file.write("import os\nexec(os.environ['FORKLESS_WAY'])\n")
    tests = list(suite.tests)
    if "/" not in tests[0] and tests != ["tests"]:
        tests.insert(0, "--pyargs")
    arguments = [*suite.arguments, "--continue-on-collection-errors"]
    # One after the other: pexpect's have a port of their own.
    results = {
        way: run(root, target, code, [*arguments, *tests]) for way, code in suite.ways.items()
    }
    known = failures(results[PLAIN][0])
    worst = 0
    for way, (report, result) in results.items():
        new = failures(report) - known
        if new:
            again, _ = run(root, target, suite.ways[way], [*arguments, *sorted(new)])
            new &= failures(again)
        lines = report.strip().splitlines()
        print("%s %s: %s" % (name, way, lines[-1] if lines else "no output"), flush=True)
        for test in sorted(new):
            print("  fails here alone: " + test)
        # 2 and more: pytest itself could not do its work.
        if new or result > 1:
            print(report)
            worst = 1
    return worst


def run(root: str, target: str, code: str, arguments: List[str]) -> Tuple[str, int]:
    path = [target, *filter(None, [os.environ.get("PYTHONPATH")])]
    # -I would hide the packages; a folder of the source must not take the place of the package.
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "forkless_way"]
        + ["-p", "no:cacheprovider", *arguments],
        cwd=root,
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(path), FORKLESS_WAY=code, TERM="xterm"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout, done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
