"""The native functions with Python's classes around them: a start, its child, its error.

Everything else of the package starts children through :func:`spawn`. It carries out what it is
told; searches, defaults and messages are its caller's.
"""

from __future__ import annotations

import os
from typing import List, NoReturn, Optional, Sequence, Tuple, Union

from . import _forkless


class StepError(Exception):
    """A start that failed: the step, the thing that it was about, and the kernel's reason.

    Nothing of it is left: no child, no descriptor.

    >>> try:
    ...     spawn([b"x"], executables=[b"/nowhere"], env=None, cwd=None, fds=[], close_fds=True,
    ...           keep=[], restore_signals=True, setsid=False, gid=None, groups=None, uid=None)
    ... except StepError as error:
    ...     print(error.step, error.what, error.errno)
    exec /nowhere 2
    """

    def __init__(self, step: str, what: Optional[str], errno: int) -> None:
        super().__init__(step, what, errno)
        self.step = step
        self.what = what
        self.errno = errno

    def __str__(self) -> str:
        thing = "" if self.what is None else " " + self.what
        return "%s%s: %s" % (self.step, thing, os.strerror(self.errno))


class Child:
    """A child that was started. Dropping it neither kills the child nor waits for it.

    `pidfd` is -1 where the kernel refuses pidfds or no descriptor was left, and after
    :meth:`detach_pidfd`. It is closed with this object.
    """

    __slots__ = ("pid", "pidfd", "_pending", "_error", "__weakref__")

    pid: int
    pidfd: int

    def __init__(self, pid: int, pidfd: int, pending: Optional[object]) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self._pending = pending
        self._error: Optional[StepError] = None

    def detach_pidfd(self) -> int:
        """Hands the pidfd over: from here on the caller closes it. -1 where there is none."""
        fd, self.pidfd = self.pidfd, -1
        return fd

    def start_error(self) -> Optional[StepError]:
        """After a start with ``blocking=False``: why the child never executed its program.

        None where it did, and as long as nothing is known. It can be asked for once the pidfd is
        readable, or once the descriptor `until_exec` is closed in the child. It never waits. A
        child that failed is reaped by this call; one that has executed its program is not.
        """
        if self._error is None and self._pending is not None:
            answer = _forkless.start_error(self._pending)
            if answer is not None:
                self._error = StepError(*answer)
                self._pending = None
        return self._error

    def __del__(self) -> None:
        fd, self.pidfd = getattr(self, "pidfd", -1), -1
        if fd != -1:
            try:
                _close(fd)
            except OSError:
                pass


# At the interpreter's end a module's names may be gone before its objects.
_close = os.close


def spawn(
    argv: Sequence[bytes],
    *,
    executables: Sequence[bytes],
    env: Optional[Sequence[bytes]],
    cwd: Optional[bytes],
    fds: Sequence[Tuple[int, int]],
    close_fds: bool,
    keep: Sequence[int],
    restore_signals: bool,
    setsid: bool,
    process_group: int = -1,
    gid: Optional[int],
    groups: Optional[Sequence[int]],
    uid: Optional[int],
    umask: int = -1,
    rlimits: Sequence[Tuple[int, int, int]] = (),
    pdeathsig: int = 0,
    no_new_privs: bool = False,
    cgroup: Optional[bytes] = None,
    nice: Optional[int] = None,
    affinity: Optional[Sequence[int]] = None,
    scheduler: Optional[Tuple[int, int]] = None,
    setctty: int = -1,
    blocking: bool = True,
    until_exec: int = -1,
    owner: Optional[object] = None,
) -> Child:
    """Starts a child without fork, with the lock of the interpreter released.

    `executables` are tried in their order, and no search is made. `env` has entries ``NAME=value``;
    None hands on the environment of the process. `fds` are pairs of a number in the child and this
    process's descriptor, -1 to close the number. `keep` are further descriptors that keep their
    numbers. Without `close_fds` the child gets all that are inheritable, too.

    With ``blocking=False`` it returns as soon as the process exists; see :meth:`Child.start_error`.
    `until_exec` is then a descriptor, the writing end of a pipe say, that the child holds until it
    executes its program or fails, and no longer.

    `owner` gets the attributes `pid` and `_child_created` before a signal handler can run.

    Raises StepError, and ValueError for a NUL byte.
    """
    started = _forkless.spawn(
        argv, executables, env, cwd, fds, close_fds, keep, restore_signals, setsid, process_group,
        gid, groups, uid, umask, rlimits, pdeathsig, no_new_privs, cgroup, nice, affinity,
        scheduler, setctty, blocking, until_exec, owner,
    )
    if isinstance(started[0], str):
        raise StepError(*started)
    return Child(*started)
