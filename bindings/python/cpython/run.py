"""Runs CPython's own tests against forkless, for each interpreter found.

    python cpython/run.py [--python PATH]... [--mode module|install]... [TEST-MODULE]...

Each module runs twice: as it is, and with forkless. A test that passes as it is and not with
forkless is a deviation, and must be in deviations.py. The interpreter needs its own tests (`python
-m test`), and the package: installed, or built into ../python. Without --python every pythonX.Y on
PATH and of pyenv is taken, the newest patch of each version.

Exit codes: 0 no deviation but the listed, 1 another, 3 no interpreter.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from deviations import DEVIATIONS

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent / "python"

#: Modules of tests with the ways in which they are run.
SUITES = {
    "module": ["test.test_subprocess"],
    "install": [
        "test.test_subprocess",
        "test.test_popen",
        "test.test_pty",
        "test.test_os",
        "test.test_asyncio.test_subprocess",
    ],
}


def version_of(python):
    """The (major, minor, micro) of an interpreter that has its tests, else None."""
    ask = "import sys, test.support; print(*sys.version_info[:3])"
    done = subprocess.run([python, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode:
        return None
    return tuple(int(number) for number in done.stdout.split())


def interpreters():
    """Paths by (major, minor)."""
    candidates = [shutil.which("python3.%d" % minor) for minor in range(9, 20)]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")))
    candidates += [str(path) for path in pyenv.glob("versions/3.*/bin/python3")]
    found = {}
    for python in filter(None, candidates):
        version = version_of(python)
        if version is None or version < (3, 9):
            continue
        if version > found.get(version[:2], ((0,), ""))[0]:
            found[version[:2]] = (version, python)
    return {short: python for short, (_, python) in sorted(found.items())}


def run(python, mode, module):
    """What came of each test, and the text of the run."""
    env = dict(os.environ)
    if mode != "standard" and (PACKAGE / "forkless" / "_forkless.abi3.so").exists():
        env["PYTHONPATH"] = str(PACKAGE)
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        command = [python, str(HERE / "inside.py"), mode, module, result]
        done = subprocess.run(
            command,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        text = done.stdout.decode(errors="replace")
        if not os.path.exists(result):
            return {}, text + "\nended with %d, without a result\n" % done.returncode
        with open(result) as file:
            return json.load(file), text


def reason_for(mode, test):
    for pattern, reason in DEVIATIONS.items():
        if fnmatch.fnmatchcase("%s %s" % (mode, test), pattern):
            return reason
    return None


def report_of(text, test):
    """The traceback that unittest printed for a test."""
    short = test.rsplit(".", 1)[-1]
    blocks = re.split(r"^=+\n", text, flags=re.M)
    return "\n".join(b for b in blocks if re.match(r"(ERROR|FAIL): %s\b" % re.escape(short), b))


def compare(name, python, mode, module, verbose):
    """Prints a line, and returns the number of deviations that are not listed."""
    before, before_text = run(python, "standard", module)
    if not before:
        print("%s %s: skipped: no result without forkless, either" % (name, module))
        if verbose:
            print(before_text)
        return 0
    after, text = run(python, mode, module)
    unlisted, listed = [], []
    for test, outcome in sorted(before.items()):
        if outcome != "ok" or after.get(test) == "ok":
            continue
        (listed if reason_for(mode, test) else unlisted).append(test)
    counts = {word: sum(o == word for o in after.values()) for word in ("ok", "failed", "skipped")}
    print(
        "%s %s (%s): %d passed, %d failed, %d skipped; %d listed deviations, %d others"
        % (
            name,
            module,
            mode,
            counts["ok"],
            counts["failed"],
            counts["skipped"],
            len(listed),
            len(unlisted),
        )
    )
    for test in listed:
        print("  listed: %s: %s" % (test, reason_for(mode, test)))
    for test in unlisted:
        print("  DEVIATION: %s %s: %s" % (mode, test, after.get(test, "did not run")))
        print(report_of(text, test))
    if unlisted and not after:
        print(text)
    sys.stdout.flush()
    return len(unlisted)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="an interpreter; may be repeated")
    parser.add_argument("--mode", action="append", choices=sorted(SUITES))
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("module", nargs="*", help="such as test.test_subprocess")
    arguments = parser.parse_args()
    if arguments.python:
        found = {}
        for python in map(os.path.abspath, arguments.python):
            version = version_of(python)
            if version is None:
                parser.error("%s: no interpreter with its own tests" % python)
            found[version[:2]] = python
    else:
        found = interpreters()
    if not found:
        print("skipped: no interpreter with its own tests")
        return 3
    wrong = 0
    for (major, minor), python in found.items():
        for mode in arguments.mode or sorted(SUITES, reverse=True):
            for module in arguments.module or SUITES[mode]:
                name = "%d.%d" % (major, minor)
                wrong += compare(name, python, mode, module, arguments.verbose)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
