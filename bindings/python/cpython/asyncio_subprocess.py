"""Runs CPython's own test_asyncio.test_subprocess on `forkless.asyncio`.

    python cpython/asyncio_subprocess.py [-v] [--only WORD]

The interpreter that runs this is the one whose tests are run. The standard functions and the
standard loop's method are replaced by ours, as `forkless.install` does it. `--only` runs the tests
whose name contains the word. DEVIATIONS are not run: each has its reason.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import unittest
import warnings

import forkless.asyncio

DEVIATIONS = {
    "test_create_subprocess_fails_with_inactive_watcher": (
        "no child watcher is asked, so none that is inactive can refuse the start"
    ),
    "SubprocessFastWatcherTests": (
        "a FastChildWatcher takes the status of every child of the process, and so of those that"
        " it was not told of; as with any other code that waits for all children, they report 255."
        " asyncio warns of it, and does not have it from 3.14 on"
    ),
}


def replace() -> None:
    for owner, name, new in forkless.asyncio._patches():
        setattr(owner, name, new)
    for name in ("create_subprocess_exec", "create_subprocess_shell"):
        for module in (asyncio, asyncio.subprocess):
            setattr(module, name, getattr(forkless.asyncio, name))


def tests_of(suite: unittest.TestSuite) -> "list[unittest.TestCase]":
    found = []
    for test in suite:
        found += tests_of(test) if isinstance(test, unittest.TestSuite) else [test]
    return found


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("-v", action="store_true")
    options.add_argument("--only", default="")
    given = options.parse_args()
    try:
        from test.test_asyncio import test_subprocess
    except ImportError as error:
        print("skipped: this interpreter has no tests: %s" % error)
        return 0
    replace()
    # A test of 3.12 needs one before it that has called this.
    asyncio.set_event_loop(None)
    chosen = unittest.TestSuite()
    for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(test_subprocess)):
        reasons = [DEVIATIONS[part] for part in test.id().split(".") if part in DEVIATIONS]
        if reasons:
            print("not run: %s: %s" % (test.id().partition("test_subprocess.")[2], reasons[0]))
        elif given.only in test.id():
            chosen.addTest(test)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = unittest.TextTestRunner(verbosity=2 if given.v else 1).run(chosen)
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
