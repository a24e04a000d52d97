"""`trio`, with children that are started on the calling thread, without a wait for the exec.

trio starts a child in a worker thread, since the start lasts until the exec. So the child gets that
thread's namespaces, capabilities and affinity. Here the start takes as long as the clone alone. It
is made on the calling thread, and the exec is awaited. The result is a :class:`trio.Process`.

All other names of this module are trio's, so ``from forkless import trio`` is the only change that
a program needs.

>>> from forkless import trio
>>> async def main():
...     done = await trio.run_process(["echo", "hi"], capture_stdout=True)
...     return done.stdout
>>> trio.run(main)
b'hi\\n'

The keyword arguments of :class:`forkless.subprocess.Popen` may be given, too: ``rlimits``,
``cgroup``, ``deadline``, and so on. A child with ``user``, ``group``, ``extra_groups``, ``cgroup``
or ``preexec_fn`` holds the loop until its exec. At its ``deadline`` a child and its process group
are killed.

A cancel during the exec waits for its end, as with trio's own start, and so does an interrupt. If
the exec lasts 5 seconds longer, the child is killed, and the start raises the cancel.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Sequence, Tuple, Union

import trio as _trio

from . import _awaited, _group
from ._awaited import FIRST_LOOK, LONGEST_PAUSE
from ._starts import Starts

__all__ = ["open_process", "run_process"]

#: Seconds. As long as trio waits between SIGTERM and SIGKILL.
LONGEST_EXEC_OF_A_CANCELLED_START = 5.0

_Command = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", Sequence[Any]]

# Before anything is put in their place.
_open_process = _trio.lowlevel.open_process
_run_process = _trio.run_process


async def open_process(command: _Command, **options: Any) -> _trio.Process:
    """As `trio.lowlevel.open_process`, on the calling thread.

    >>> async def main():
    ...     child = await open_process(["sh", "-c", "exit 3"])
    ...     return await child.wait()
    >>> _trio.run(main)
    3
    """
    start: Callable[..., Any] = _awaited.rebound(
        _open_process,
        trio=_awaited.Names(_trio, to_thread=_awaited.Names(_trio.to_thread, run_sync=_start)),
        subprocess=_awaited.standard_names,
    )
    process: _trio.Process = await start(command, **options)
    if getattr(process._proc, "_deadline", None) is not None:
        _trio.lowlevel.spawn_system_task(_keep_deadline, process)
    return process


async def run_process(command: _Command, **options: Any) -> CompletedProcess[bytes]:
    """As `trio.run_process`, on the calling thread.

    >>> _trio.run(run_process, ["sh", "-c", "exit 3"])
    Traceback (most recent call last):
    subprocess.CalledProcessError: Command '['sh', '-c', 'exit 3']' returned non-zero exit status 3.
    """
    # One of the names, or the other in newer versions.
    run: Callable[..., Any] = _awaited.rebound(
        _run_process, open_process=open_process, _open_process=open_process
    )
    done: CompletedProcess[bytes] = await run(command, **options)
    return done


@_trio.lowlevel.enable_ki_protection
async def _start(start: Callable[[], Any], *_: Any, **__: Any) -> Any:
    """In the place of trio's worker thread. As that, it is a checkpoint, and neither a cancel nor
    an interrupt comes between the start and whoever gets the child."""
    await _trio.lowlevel.checkpoint_if_cancelled()
    starts = _starts_here()
    popen = await starts.make(start)
    if not isinstance(popen, _awaited.Popen):
        # Another class is in the place of the standard one. It has waited.
        await _trio.lowlevel.cancel_shielded_checkpoint()
        return popen
    starts.pending += 1
    try:
        if popen.executed():
            await _trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await _Exec(popen).ended()
    finally:
        popen.settle()
        starts.pending -= 1
        starts.ended.unpark()
    return popen


class _Exec:
    """A wait for an exec.

    A shielded scope would keep cancels from it, but no interrupt: trio raises one wherever the main
    task waits. So another task watches, and the one that starts the child waits for that task.
    """

    def __init__(self, popen: _awaited.Popen) -> None:
        self.popen = popen
        self.failure: Optional[BaseException] = None
        self.raise_cancel: Optional[Callable[[], Any]] = None
        self.gives_up = math.inf

    async def ended(self) -> None:
        """Raises what a start that waits would have raised.

        If a cancel or an interrupt has come, and the exec has lasted for
        `LONGEST_EXEC_OF_A_CANCELLED_START` since, the child is killed, and this raises the cancel
        or the interrupt.
        """
        async with _trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, _trio.lowlevel.current_task())
            await _trio.lowlevel.wait_task_rescheduled(self._cancel)
        # Raised in the nursery it would be one of a group.
        failure, self.failure = self.failure, None
        if failure is None:
            return
        try:
            if isinstance(failure, _GivenUp) and self.raise_cancel is not None:
                self.raise_cancel()
            raise failure
        finally:
            # Its traceback has this frame.
            del failure

    def _cancel(self, raise_cancel: Callable[[], Any]) -> _trio.lowlevel.Abort:
        # trio raises it at the next checkpoint, unless `raise_cancel` is called before.
        self.raise_cancel = raise_cancel
        # Not trio's clock: a test's leaps to the next timeout.
        self.gives_up = time.monotonic() + LONGEST_EXEC_OF_A_CANCELLED_START
        return _trio.lowlevel.Abort.FAILED

    @_trio.lowlevel.enable_ki_protection
    async def _watch(self, starter: _trio.lowlevel.Task) -> None:
        try:
            with _trio.CancelScope(shield=True):
                await _awaited.until_executed(self.popen, self._readable)
        except BaseException as failure:
            self.failure = failure
            if not self.popen.never_ran:
                await _kill(self.popen)
        finally:
            # It would wait for ever.
            _trio.lowlevel.reschedule(starter)

    async def _readable(self, fd: int, seconds: float) -> bool:
        if time.monotonic() >= self.gives_up:
            raise _GivenUp
        return await _readable(fd, seconds)


class _GivenUp(Exception):
    """The start was cancelled, and its exec has not ended."""


class _RunStarts(Starts):
    def __init__(self) -> None:
        self.pending = 0
        self.ended = _trio.lowlevel.ParkingLot()
        self.queue = _trio.Lock()

    def turn(self) -> _trio.Lock:
        return self.queue

    async def one_ended(self) -> None:
        await self.ended.park()


_all_starts: _trio.lowlevel.RunVar[_RunStarts] = _trio.lowlevel.RunVar("forkless starts")


def _starts_here() -> _RunStarts:
    try:
        return _all_starts.get()
    except LookupError:
        starts = _RunStarts()
        _all_starts.set(starts)
        return starts


async def _readable(fd: int, seconds: float) -> bool:
    """Waits until a descriptor is readable, but not longer than that; -1 never is."""
    with _trio.move_on_after(seconds):
        # The kernel may have no room for another descriptor to watch (epoll_ctl(2), ENOSPC).
        with contextlib.suppress(OSError):
            if fd != -1:
                await _trio.lowlevel.wait_readable(fd)
                return True
        await _trio.sleep_forever()
    return False


async def _kill(popen: _awaited.Popen) -> None:
    """Ends and reaps the child of a start that nobody awaits any more."""
    with contextlib.suppress(OSError):
        popen.kill()
    pause = FIRST_LOOK
    fd = popen.pidfd()
    with _trio.CancelScope(shield=True):
        while popen.poll() is None:
            if await _readable(fd, pause):
                fd = -1
            else:
                pause = min(2 * pause, LONGEST_PAUSE)
    popen.let_go()
    for pipe in (popen.stdin, popen.stdout, popen.stderr):
        if pipe is not None:
            pipe.close()


async def _keep_deadline(process: _trio.Process) -> None:
    """Kills the child and its group at the deadline, if anybody of them is left then."""
    popen: Any = process._proc
    moment: float = popen._deadline
    leader = popen._leader
    try:
        with _trio.move_on_after(max(0.0, moment - time.monotonic())):
            await process.wait()
            if leader.is_over:
                return
            await _trio.sleep_forever()
    except _trio.Cancelled:
        # This run of trio is over, and the child goes on. Then a thread must see to it.
        _group.watch(leader)
        raise
    with contextlib.suppress(OSError):
        popen._kill_all()


def _patches() -> List[Tuple[object, str, object]]:
    """What `forkless.install` replaces: the owner, the attribute and its new value."""
    from trio import _subprocess

    # The standard run_process calls it by one of the names.
    names = [name for name in ("open_process", "_open_process") if hasattr(_subprocess, name)]
    patches: List[Tuple[object, str, object]] = [(_trio.lowlevel, "open_process", open_process)]
    return patches + [(_subprocess, name, open_process) for name in names]


lowlevel: Any = _awaited.Names(_trio.lowlevel, open_process=open_process)


if TYPE_CHECKING:
    # The other names, which `__getattr__` finds. The two functions above keep their types.
    from trio import *  # type: ignore[assignment]
else:

    def __getattr__(name: str) -> Any:
        # The names of a module itself are not handed on: with `__path__` this would be a package,
        # and an import would load the library's files again.
        if name.startswith("__"):
            raise AttributeError("module %r has no attribute %r" % (__name__, name))
        return getattr(_trio, name)


def __dir__() -> List[str]:
    return sorted({*globals(), *dir(_trio)})
