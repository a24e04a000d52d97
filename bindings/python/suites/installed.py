"""CPython's own tests of processes under `forkless.install()`, and without it.

    python suites/installed.py [TEST ...]

The interpreter has forkless and the package `test`. A test that fails without forkless may fail
with it. test_subprocess and test_asyncio against the modules themselves are run by `cpython/`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from typing import Dict, List, Set, Tuple

#: The test modules, with patterns of their parts; none for all.
TESTS: Dict[str, List[str]] = {
    "test_popen": [],
    "test_pty": [],
    "test_os": ["*Spawn*", "*Pid*", "*Exec*", "*System*", "*Popen*", "*Wait*", "*Fork*"],
    "test_posix": ["*Spawn*", "*spawn*", "*fork*", "*wait*"],
    "test_subprocess": [],
    "test_asyncio.test_subprocess": [],
    "test_multiprocessing_spawn": ["*TestProcess*", "*TestPool*", "*TestStartMethod*"],
    "test_multiprocessing_forkserver": ["*TestProcess*", "*TestPool*", "*TestStartMethod*"],
    "test_concurrent_futures": ["*ProcessPoolSpawn*", "*ProcessPoolForkserver*"],
    "test_cmd_line": [],
    "test_signal": [],
}

CODE = """\
import sys, unittest
{first}
import test.support
argv = ["-m unittest", "-v"] + {arguments!r} + ["test." + {name!r}]
unittest.main(module=None, argv=argv)
"""

OUTCOME = re.compile(r"^(?:FAIL|ERROR): (.+)$", re.MULTILINE)


def run(name: str, first: str) -> Tuple[Set[str], str]:
    arguments = [word for part in TESTS.get(name, []) for word in ("-k", part)]
    code = CODE.format(first=first, arguments=arguments, name=name)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, TERM="dumb"),
        text=True,
        errors="replace",
    )
    failed = set(OUTCOME.findall(done.stdout))
    if done.returncode not in (0, 1, 5):
        failed.add("the test process itself (exit code %d)" % done.returncode)
    return failed, done.stdout


def main(names: List[str]) -> int:
    worst = 0
    for name in names or TESTS:
        if importlib.util.find_spec("test." + name) is None:
            print("skipped: this interpreter has no test.%s" % name)
            continue
        known, _ = run(name, "")
        failed, report = run(name, "import forkless; forkless.install()")
        new = failed - known
        if new:
            # A busy machine fails some tests at times: what fails twice counts.
            again, report = run(name, "import forkless; forkless.install()")
            new &= again
        count = re.findall(r"^Ran (\d+) tests?", report, re.MULTILINE)
        print(
            "%s: %s tests, %d fail without forkless, %d with it alone"
            % (name, count[-1] if count else "no", len(known), len(new)),
            flush=True,
        )
        for test in sorted(new):
            print("  " + test)
        if new:
            print(report)
            worst = 1
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
