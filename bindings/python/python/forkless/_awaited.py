"""A Popen whose exec an event loop awaits, and what the loops' modules share.

The child holds the writing end of a pipe until it executes its program or is gone. A loop watches
the reading end, and asks :meth:`Popen.executed` when it has ended. But a process that another
thread forks just then keeps a copy of the writing end for life. So a loop also asks now and then,
first after `FIRST_LOOK` seconds, with pauses that double up to `LONGEST_PAUSE`.
"""

from __future__ import annotations

import os
import subprocess as standard
import sys
import types
from typing import Any, Awaitable, Callable, Optional, TypeVar, cast

from . import subprocess
from ._native import StepError

# An exec takes a tenth of this, and the pipe tells of it at once.
FIRST_LOOK = 0.001
LONGEST_PAUSE = 0.032

_F = TypeVar("_F", bound=Callable[..., Any])


class Popen(subprocess.Popen[bytes]):
    """A Popen that returns as soon as the process exists. Its owner awaits the rest.

    Until :meth:`executed` has returned true, nothing else may be done with it but a kill.
    """

    _blocking = False
    _leader: Any
    _names: Any
    never_ran = False

    def __del__(self, *rest: Any) -> None:
        super().__del__(*rest)
        # The standard module keeps a child that still runs, until a later start has reaped it by
        # its number. Nobody has a use for its pidfd any more but a thread that kills its group.
        self._child = None
        if self._leader is not None and self._leader.entry is None:
            self._leader = None

    def exec_fd(self) -> int:
        """The descriptor that becomes readable when there is something to ask; -1 for none."""
        return -1 if self._child is None else self._child.exec_fd

    def pidfd(self) -> int:
        """Of the Popen, for as long as it lives; -1 where there is none."""
        return -1 if self._child is None else self._child.pidfd

    def executed(self) -> bool:
        """False as long as nothing is known. Raises what a start that waits would have raised.

        The child is reaped then, and its pipes are closed.
        """
        child = self._child
        if child is None:
            # Started by the standard module, for a preexec_fn. It has waited.
            return True
        try:
            return child.executed()
        except StepError as error:
            failure = self._start_exception(error, *self._names)
        self.never_ran = True
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        # Without a status, the drop of this object warns and keeps it for a later wait.
        self.returncode = 255
        # Whoever keeps the exception keeps this object.
        self._leader = None
        self.settle()
        self.let_go()
        raise failure

    def settle(self) -> None:
        """Closes the pipe of the exec; no loop may be watching it any more."""
        if self._child is not None:
            self._child.close_exec_fd()

    def let_go(self) -> None:
        """Closes the pidfd of a child that has been reaped, unless its group may be signalled."""
        leader = self._leader
        if self._child is not None and (leader is None or leader.child.pidfd == -1):
            fd = self._child.detach_pidfd()
            if fd != -1:
                os.close(fd)


Popen.__name__ = Popen.__qualname__ = "Popen"


async def until_executed(popen: Popen, readable: Callable[[int, float], Awaitable[bool]]) -> None:
    """Awaits the exec of a Popen that has not executed its program yet. Raises as its
    :meth:`Popen.executed`.

    `readable` waits until a descriptor is readable, but not longer than so many seconds; -1 never
    is. It says whether it was.
    """
    pause = FIRST_LOOK
    # A failed child's pipe ends a moment before it can be reaped. Then its pidfd is watched. If a
    # tracer comes first, that is ready too early as well.
    signs = [popen.exec_fd(), popen.pidfd(), -1]
    while True:
        if await readable(signs[0], pause):
            signs.pop(0)
        else:
            pause = min(2 * pause, LONGEST_PAUSE)
        if popen.executed():
            return


class _StandardNames:
    """The standard module `subprocess`, but its Popen does not wait for the exec.

    A Popen that a program or a test has put into the standard module is used as it is.
    """

    @property
    def Popen(self) -> Any:
        put = standard.Popen
        return Popen if put in Popen.__mro__ else put

    def __getattr__(self, name: str) -> Any:
        return getattr(standard, name)


standard_names = _StandardNames()


class Names:
    """The names of a module or an object, some of them replaced."""

    def __init__(self, of: Any, **names: Any) -> None:
        self.__dict__.update(names)
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


def rebound(function: _F, **names: Any) -> _F:
    """The same function, with other things behind some of its module's names.

    So it does what it does in the library version at hand, checks and messages included. Made
    anew for each call: whatever a program has replaced in that module holds here, too.

    >>> import textwrap
    >>> rebound(textwrap.dedent, re=None) is textwrap.dedent
    False
    """
    original = cast(types.FunctionType, function)
    copy = types.FunctionType(
        original.__code__,
        {**original.__globals__, **names},
        original.__name__,
        original.__defaults__,
        original.__closure__,
    )
    copy.__kwdefaults__ = original.__kwdefaults__
    copy.__qualname__ = original.__qualname__
    copy.__doc__ = original.__doc__
    return cast(_F, copy)


def open_pidfd(pid: int) -> int:
    """A pidfd of a child that is not reaped yet; -1 where there is none to be had."""
    if sys.platform != "linux":
        return -1
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


def take_status(proc: standard.Popen[bytes]) -> Optional[int]:
    """Reaps an ended child and returns its code; None if it cannot be reaped yet.

    Raises ChildProcessError where its status is lost.
    """
    if proc.returncode is None:
        # Another thread may be in proc.wait(), and has the status but not noted it yet.
        lock = getattr(proc, "_waitpid_lock", None)
        if lock is not None and not lock.acquire(False):
            return None
        try:
            if proc.returncode is None:
                pid, status = os.waitpid(proc.pid, os.WNOHANG)
                if pid == 0:
                    return None
                cast(Any, proc)._handle_exitstatus(status)
        finally:
            if lock is not None:
                lock.release()
    return cast(Optional[int], proc.returncode)
