"""pexpect's and ptyprocess's own tests, on `forkless.pty.PtyProcess` and under `forkless.install()`.

    python suites/pexpect.py [pytest's arguments]

The interpreter has forkless and pytest. The sources come from PyPI, by pip. Three runs, and the
tests that fail in the first one, without forkless, may fail in the others.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from typing import List, Set

PACKAGES = ("pexpect==4.9.0", "ptyprocess==0.7.0")

#: What the three runs load first.
WAYS = {
    "without forkless": "",
    "on forkless.pty.PtyProcess": """
import ptyprocess, ptyprocess.ptyprocess
from forkless.pty import PtyProcess, PtyProcessError, PtyProcessUnicode
for module in (ptyprocess, ptyprocess.ptyprocess):
    module.PtyProcess = PtyProcess
    module.PtyProcessUnicode = PtyProcessUnicode
    module.PtyProcessError = PtyProcessError
""",
    "under forkless.install()": "import forkless; forkless.install()\n",
}


def failures(report: str) -> Set[str]:
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", report, re.MULTILINE))


def main(arguments: List[str]) -> int:
    with tempfile.TemporaryDirectory() as place:
        pip = [sys.executable, "-m", "pip", "-q"]
        download = ["download", "--no-deps", "--no-binary", ":all:", "-d", place]
        subprocess.run([*pip, *download, *PACKAGES], check=True)
        target = os.path.join(place, "installed")
        subprocess.run([*pip, "install", "--no-deps", "-t", target, *PACKAGES], check=True)
        for name in os.listdir(place):
            if name.endswith(".tar.gz"):
                with tarfile.open(os.path.join(place, name)) as archive:
                    archive.extractall(place)
        worst = 0
        for name in sorted(os.listdir(place)):
            tests = os.path.join(place, name, "tests")
            if os.path.isdir(tests) and name != "installed":
                worst |= compare(name, os.path.dirname(tests), target, arguments)
        return worst


def compare(name: str, root: str, target: str, arguments: List[str]) -> int:
    known: Set[str] = set()
    worst = 0
    for way, code in WAYS.items():
        with open(os.path.join(root, "conftest.py"), "w") as file:
            file.write(code)
        path = os.pathsep.join([target, os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rfE", "tests", *arguments],
            cwd=root,
            env=dict(os.environ, PYTHONPATH=path, TERM="xterm"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        failed = failures(done.stdout)
        if not code:
            known = failed
        new = sorted(failed - known)
        lines = done.stdout.strip().splitlines()
        print("%s %s: %s" % (name, way, lines[-1] if lines else "no output"))
        for test in new:
            print("  fails here only: " + test)
        # 2 and more: pytest itself could not do its work.
        if new or done.returncode > 1:
            print(done.stdout)
            worst = 1
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
