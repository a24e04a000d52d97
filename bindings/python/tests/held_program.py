"""A program whose exec waits until a test lets it go on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
from pathlib import Path
from typing import Callable, Iterator, Tuple

import pytest


@contextlib.contextmanager
def held_program(
    directory: Path, program: str = "/bin/true"
) -> Iterator[Tuple[str, Callable[[], None]]]:
    """A copy of a program, and the function that lets its execs go on.

    A write lease holds whoever opens the file, exec included, until the holder gives it up or
    /proc/sys/fs/lease-break-time is over.
    """
    path = directory / "held"
    shutil.copy(program, path)
    fd = os.open(path, os.O_RDONLY)
    # The kernel tells the holder of somebody who waits, and the signal's default is the end.
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            print("skipped: no lease on a file of %s: %s" % (directory, error))
            pytest.skip("no lease on a file of %s: %s" % (directory, error))
        yield str(path), lambda: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK) and None
    finally:
        os.close(fd)
        signal.signal(signal.SIGIO, before)


def is_in_exec(pid: int) -> bool:
    """Whether the process has not executed a program of its own yet: it has this one's file."""
    try:
        return os.readlink("/proc/%d/exe" % pid) == os.readlink("/proc/self/exe")
    except OSError:
        return False


def children() -> "set[int]":
    """The processes whose parent this one is, zombies included."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/children" % task) as listed:
                found.update(map(int, listed.read().split()))
        except OSError:
            pass
    return found


def open_descriptors() -> "set[int]":
    fds = {int(name) for name in os.listdir("/proc/self/fd")}
    # The directory's own is gone by now.
    return {fd for fd in fds if os.path.lexists("/proc/self/fd/%d" % fd)}
