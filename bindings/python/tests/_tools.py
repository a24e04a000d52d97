"""What the tests of terminals, shell lines and `install` share."""

from __future__ import annotations

import contextlib
import os
import subprocess as standard
import sys
from typing import Iterator, List, Set

import pytest

#: C functions that make a process: fork and its kin, and this package's.
FORKS = {"fork", "forkpty", "fork_exec"}


def skip(reason: str) -> None:
    """Skips the test, and says so on a line that `./x` counts."""
    print("skipped: " + reason)
    pytest.skip(reason)


@contextlib.contextmanager
def c_calls() -> Iterator[Set[str]]:
    """The names of the C functions that this thread's Python code calls meanwhile."""
    seen: Set[str] = set()

    def profile(frame: object, event: str, function: object) -> None:
        # What `install` puts in the place of a builtin function is one too, and calls Python's.
        own = getattr(function, "__self__", None)
        if event == "c_call" and not hasattr(own, "called"):
            seen.add(getattr(function, "__name__", ""))

    sys.setprofile(profile)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def python(*arguments: str, env: dict = {}, check: bool = True) -> str:
    """The output of a new interpreter. Standard error is this process's."""
    done = standard.run(
        [sys.executable, *arguments],
        stdout=standard.PIPE,
        env=dict(os.environ, **env),
        text=True,
    )
    if check and done.returncode != 0:
        raise AssertionError("exit code %d, output %r" % (done.returncode, done.stdout))
    return done.stdout


def descriptors() -> List[str]:
    """What this process has open."""
    return sorted(os.listdir("/proc/self/fd"), key=int)
