"""Runs one module of CPython's tests in this interpreter, and writes what came of each test.

    python inside.py standard|module|install MODULE RESULT

`standard` is the interpreter as it is; `module` has `forkless.subprocess` in the place of the
module `subprocess`; `install` is a program that has called `forkless.install()`. RESULT gets a JSON
object of test names with "ok", "failed" or "skipped". `run.py` compares them.
"""

import importlib
import json
import sys
import unittest


class Result(unittest.TextTestResult):
    """Remembers the outcome of each test by its name."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.outcomes = {}

    def _note(self, test, outcome):
        name = test.id() if hasattr(test, "id") else str(test)
        # One failed subtest is enough.
        if self.outcomes.get(name) != "failed":
            self.outcomes[name] = outcome

    def addSuccess(self, test):
        super().addSuccess(test)
        self._note(test, "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note(test, "skipped")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._note(test, "ok")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._note(test, "failed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note(test, "failed")

    def addError(self, test, err):
        super().addError(test, err)
        self._note(test, "failed")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        self._note(test, "ok" if err is None else "failed")


def main():
    mode, name, path = sys.argv[1:]
    if mode == "module":
        from forkless import subprocess

        # Before the tests import it: they get ours by `import subprocess`.
        sys.modules["subprocess"] = subprocess
    elif mode == "install":
        import forkless

        forkless.install()
    tests = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(name))
    runner = unittest.TextTestRunner(resultclass=Result, verbosity=1)
    result = runner.run(tests)
    with open(path, "w") as file:
        json.dump(result.outcomes, file)


if __name__ == "__main__":
    # A child that a test makes by multiprocessing's spawn must find the same.
    main()
