"""`asyncio`, with children whose start never makes the loop wait.

The standard `create_subprocess_exec` and `create_subprocess_shell` hold the loop until the child
has executed its program: seconds, with a large program and a cold cache. These hold it for the
clone alone. The exec is awaited like anything else, and its error is raised where the standard ones
raise it. The child's end is told by its pidfd: no child watcher, no thread, no SIGCHLD.

All other names of this module are asyncio's, so ``from forkless import asyncio`` is the only change
that a program needs.

>>> from forkless import asyncio
>>> async def main():
...     child = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
...     said, _ = await child.communicate()
...     return said, child.returncode
>>> asyncio.run(main())
(b'hi\\n', 0)

The keyword arguments of :class:`forkless.subprocess.Popen` may be given, too: ``rlimits``,
``cgroup``, ``deadline``, and so on. A child with ``user``, ``group``, ``extra_groups``, ``cgroup``
or ``preexec_fn`` holds the loop until its exec, and so does one with ``pdeathsig`` that is started
in a thread other than the main one. At its ``deadline`` a child and its process group are killed:
its `returncode` is -9 then.
"""

from __future__ import annotations

import asyncio as _asyncio
import contextlib
import functools
import os
import signal as _signal
import sys
import time
import types
import warnings
import weakref
from asyncio import base_events as base_events
from asyncio import subprocess as _standard_subprocess
from asyncio import unix_events as unix_events
from asyncio.log import logger
from asyncio.subprocess import Process, SubprocessStreamProtocol
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Callable,
    List,
    Optional,
    Set,
    Tuple,
    Union,
    cast,
)

from . import _awaited
from ._awaited import FIRST_LOOK, LONGEST_PAUSE
from ._starts import Starts

__all__ = ["create_subprocess_exec", "create_subprocess_shell"]
__all__ += [name for name in _asyncio.__all__ if name not in __all__]

_Stdio = Union[None, int, IO[Any]]

if TYPE_CHECKING:
    # The other names, which `__getattr__` finds. Not from asyncio itself: it has other functions by
    # the names of the two here.
    from asyncio.base_events import *
    from asyncio.coroutines import *
    from asyncio.events import *
    from asyncio.exceptions import *
    from asyncio.futures import *
    from asyncio.locks import *
    from asyncio.protocols import *
    from asyncio.queues import *
    from asyncio.runners import *
    from asyncio.streams import *
    from asyncio.tasks import *
    from asyncio.threads import *
    from asyncio.transports import *
    from asyncio.unix_events import *

    if sys.version_info >= (3, 11):
        from asyncio.taskgroups import *
        from asyncio.timeouts import *
    if sys.version_info >= (3, 14):
        from asyncio.graph import *

    from asyncio import events as events
    from asyncio import exceptions as exceptions
    from asyncio import log as log
    from asyncio import streams as streams
    from asyncio import tasks as tasks
    from asyncio import transports as transports
    from asyncio.subprocess import Process as _Process
    from asyncio.subprocess import SubprocessStreamProtocol as _SubprocessStreamProtocol

    from typing_extensions import TypeAlias

    _StrOrBytesPath = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]
    _Future = _asyncio.Future[Any]
    _Protocol = Callable[[], _asyncio.SubprocessProtocol]
    _Started = Tuple[_asyncio.SubprocessTransport, SubprocessStreamProtocol]


async def create_subprocess_exec(
    program: _StrOrBytesPath,
    *args: _StrOrBytesPath,
    stdin: _Stdio = None,
    stdout: _Stdio = None,
    stderr: _Stdio = None,
    limit: int = 2**16,
    **kwds: Any,
) -> Process:
    """As `asyncio.create_subprocess_exec`; the loop does not wait for the exec.

    >>> async def main():
    ...     child = await create_subprocess_exec("sh", "-c", "exit 3")
    ...     return await child.wait()
    >>> _asyncio.run(main())
    3
    >>> _asyncio.run(create_subprocess_exec("/does/not/exist"))
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: '/does/not/exist'
    """
    loop = _loop(kwds)
    transport, protocol = await _Starter(loop).subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=limit, loop=loop),
        program,
        *args,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        **kwds,
    )
    return Process(transport, protocol, loop)


async def create_subprocess_shell(
    cmd: Union[str, bytes],
    stdin: _Stdio = None,
    stdout: _Stdio = None,
    stderr: _Stdio = None,
    limit: int = 2**16,
    **kwds: Any,
) -> Process:
    """As `asyncio.create_subprocess_shell`; the loop does not wait for the exec.

    >>> async def main():
    ...     child = await create_subprocess_shell("exit 3")
    ...     return await child.wait()
    >>> _asyncio.run(main())
    3
    """
    loop = _loop(kwds)
    transport, protocol = await _Starter(loop).subprocess_shell(
        lambda: SubprocessStreamProtocol(limit=limit, loop=loop),
        cmd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        **kwds,
    )
    return Process(transport, protocol, loop)


def _loop(kwds: Any) -> _asyncio.AbstractEventLoop:
    """The loop to start in. Python 3.9 has an argument for it, deprecated."""
    if sys.version_info < (3, 10) and "loop" in kwds:
        loop = kwds.pop("loop")
        if loop is not None:
            why = "the argument loop is deprecated: Python 3.10 does not have it"
            warnings.warn(why, DeprecationWarning, stacklevel=3)
            return loop
    return _asyncio.get_running_loop()


class _Starter:
    """A loop of any kind, that starts children as this module does.

    The checks of arguments, and their messages, are those of the standard loop.
    """

    def __init__(self, loop: _asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._debug = loop.get_debug()

    subprocess_exec: Any = base_events.BaseEventLoop.subprocess_exec
    subprocess_shell: Any = base_events.BaseEventLoop.subprocess_shell
    _log_subprocess: Any = getattr(base_events.BaseEventLoop, "_log_subprocess")

    async def _make_subprocess_transport(self, *args: Any, **kwds: Any) -> Any:
        return await _make_subprocess_transport(self._loop, *args, **kwds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


async def _make_subprocess_transport(
    self: Any,
    protocol: Any,
    args: Any,
    shell: bool,
    stdin: Any,
    stdout: Any,
    stderr: Any,
    bufsize: int,
    extra: Any = None,
    **kwargs: Any,
) -> _asyncio.SubprocessTransport:
    """The method of the standard loop, for any loop."""
    starts = _starts_of(self)
    executed = self.create_future()

    def start() -> Any:
        return _UnixSubprocessTransport(
            self, protocol, args, shell, stdin, stdout, stderr, bufsize, executed, extra, **kwargs
        )

    transport = await starts.make(start)
    starts.pending.add(executed)
    try:
        await executed
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as failure:
        # The start failed, or nobody awaits it any more. Nothing of it may be left.
        cancels = await transport._abandon()
        if cancels and not isinstance(failure, _asyncio.CancelledError):
            raise cancels[0]
        raise
    finally:
        starts.pending.discard(executed)
    return cast(_asyncio.SubprocessTransport, transport)


async def _all_the_same(future: _Future, cancels: List[BaseException]) -> None:
    """Waits for a future that comes soon, also where the task is cancelled meanwhile.

    anyio's scopes cancel a task in every turn of the loop, so whoever cleans up must be at the same
    place behind it. Not by a task of its own: a loop that comes to its end cancels all tasks.
    """
    while not future.done():
        try:
            # It leaves the future alone when it is cancelled.
            await _asyncio.wait({future})
        except _asyncio.CancelledError as error:
            cancels.append(error)


class _LoopStarts(Starts):
    def __init__(self) -> None:
        self.pending: Set[_Future] = set()
        # Present while somebody is in it: it refers to the loop, which must not be kept.
        self.queue: Optional[_asyncio.Lock] = None
        self.queued = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self.queue is None:
            self.queue = _asyncio.Lock()
        self.queued += 1
        try:
            async with self.queue:
                yield
        finally:
            self.queued -= 1
            if self.queued == 0:
                self.queue = None

    async def one_ended(self) -> None:
        await _asyncio.wait(set(self.pending), return_when=_asyncio.FIRST_COMPLETED)


_all_starts: weakref.WeakKeyDictionary[Any, _LoopStarts] = weakref.WeakKeyDictionary()


def _starts_of(loop: Any) -> _LoopStarts:
    starts = _all_starts.get(loop)
    if starts is None:
        starts = _all_starts[loop] = _LoopStarts()
    return starts


if TYPE_CHECKING:
    _Base = Any
else:
    _Base = unix_events._UnixSubprocessTransport


# Its name is part of its repr, which programs log.
class _UnixSubprocessTransport(_Base):  # type: ignore[misc]
    """The standard transport. It awaits the exec, and learns of the child's end by itself."""

    _proc: Any
    _exit_waiters: Any
    _connected: Any = None
    never_ran = False
    _own_pidfd = -1
    _watched_pidfd = -1
    _deadline_timer: Optional[_asyncio.TimerHandle] = None

    def _start(self, *args: Any, **kwargs: Any) -> None:
        start = _awaited.rebound(_Base._start, subprocess=_awaited.standard_names)
        start(self, *args, **kwargs)

    async def _connect_pipes(self, waiter: Optional[_Future]) -> None:
        self._connected = self._loop.create_future()
        try:
            await self._await_and_connect(waiter)
        finally:
            if not self._connected.done():
                self._connected.set_result(None)

    async def _abandon(self) -> List[BaseException]:
        """Closes the transport, and waits until nothing of the child and its pipes is left.

        Returns the cancels that have come meanwhile."""
        cancels: List[BaseException] = []
        self.close()
        if self._connected is None:
            # The task for it was cancelled before its first turn.
            await self._connect_pipes(None)
        await _all_the_same(self._connected, cancels)
        # `close` knew only of the pipes that were connected before it.
        for protocol in self._pipes.values():
            if protocol is not None:
                protocol.pipe.close()
        # They close their descriptors in the next turn of the loop.
        turn = self._loop.create_future()
        self._loop.call_soon(_wake, turn, False)
        await _all_the_same(turn, cancels)
        if self._pending_calls is not None and not self.never_ran:
            self._do_without_pipes()
        if self._returncode is None:
            ended = self._loop.create_future()
            self._exit_waiters.append(ended)
            await _all_the_same(ended, cancels)
        return cancels

    def _do_without_pipes(self) -> None:
        """Not all pipes were connected, since the loop is coming to its end.

        The standard transport would wait for them for ever. Its protocol has been told nothing.
        """
        for pipe in (self._proc.stdin, self._proc.stdout, self._proc.stderr):
            if pipe is not None:
                pipe.close()
        # In place: typeshed does not know the attribute, which is the standard transport's.
        for fd in [fd for fd, pipe in self._pipes.items() if pipe is None]:
            del self._pipes[fd]
        self._protocol = _asyncio.SubprocessProtocol()
        self._pending_calls = None
        if self._returncode is not None:
            self._try_finish()

    async def _await_and_connect(self, waiter: Optional[_Future]) -> None:
        proc = self._proc
        try:
            await self._until_executed(proc)
        except BaseException as failure:
            if getattr(proc, "never_ran", False):
                self._never_ran()
            else:
                # The loop is coming to its end, or has no room for a descriptor. The transport must
                # come to its own end, and its pipes have to be connected for that.
                with contextlib.suppress(OSError):
                    proc.kill()
                self._watch_end()
                await super()._connect_pipes(None)
            if isinstance(failure, (SystemExit, KeyboardInterrupt)):
                raise
            _fail(waiter, failure)
            return
        self._watch_end()
        await super()._connect_pipes(waiter)

    async def _until_executed(self, proc: Any) -> None:
        if not isinstance(proc, _awaited.Popen):
            # Another class is in the place of the standard one. It has waited.
            return
        try:
            if not proc.executed():
                await _awaited.until_executed(proc, functools.partial(_readable, self._loop))
        finally:
            proc.settle()

    def _never_ran(self) -> None:
        self.never_ran = True
        self._closed = True
        self._returncode = self._proc.returncode
        # Somebody who was cancelled may wait for the end.
        waiters, self._exit_waiters = self._exit_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(self._returncode)
        self._proc = None

    def _watch_end(self) -> None:
        deadline = getattr(self._proc, "_deadline", None)
        if deadline is not None:
            left = max(0.0, deadline - time.monotonic())
            self._deadline_timer = self._loop.call_later(left, self._expire)
        # With a deadline, whoever reaps the child may close its pidfd, unnoticed by the loop.
        shares_pidfd = isinstance(self._proc, _awaited.Popen) and deadline is None
        pidfd = self._proc.pidfd() if shares_pidfd else -1
        if pidfd == -1:
            pidfd = self._own_pidfd = _awaited.open_pidfd(self._proc.pid)
        if pidfd == -1:
            self._look_for_end(FIRST_LOOK)
        else:
            self._watched_pidfd = pidfd
            self._loop.add_reader(pidfd, self._ended)

    def _expire(self) -> None:
        # A group that has changed its user: nothing can be done about it.
        with contextlib.suppress(OSError):
            self._proc._kill_all()

    def _ended(self) -> None:
        self._loop.remove_reader(self._watched_pidfd)
        if self._own_pidfd != -1:
            os.close(self._own_pidfd)
            self._own_pidfd = -1
        self._look_for_end(FIRST_LOOK)

    def _look_for_end(self, pause: float) -> None:
        proc = self._proc
        try:
            returncode = _awaited.take_status(proc)
        except ChildProcessError:
            returncode = 255
            why = "child process pid %d exit status already read:  will report returncode 255"
            logger.warning(why, proc.pid)
        if returncode is not None:
            if isinstance(proc, _awaited.Popen):
                # Logs and exceptions may keep this object for long.
                proc.let_go()
            self._process_exited(returncode)
        else:
            # There is no pidfd, or a tracer or another thread comes first.
            self._loop.call_later(pause, self._look_for_end, min(2 * pause, LONGEST_PAUSE))

    def __del__(self, *rest: Any) -> None:
        if self._own_pidfd != -1:
            # Only when the loop that watched it is gone.
            os.close(self._own_pidfd)
            self._own_pidfd = -1
        super().__del__(*rest)

    def _call_connection_lost(self, exc: Optional[BaseException]) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        super()._call_connection_lost(exc)

    def send_signal(self, signal: int) -> None:
        self._check_proc()
        proc = self._proc
        fd = proc.pidfd() if isinstance(proc, _awaited.Popen) else -1
        if fd == -1 or proc._leader is not None:
            proc.send_signal(signal)
            return
        try:
            _signal.pidfd_send_signal(fd, signal)
        except ProcessLookupError:
            pass
        except OSError:
            # A filter refuses this call. An error of the kernel's own comes again from the number.
            proc.send_signal(signal)

    def terminate(self) -> None:
        self.send_signal(_signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(_signal.SIGKILL)


def _fail(waiter: Optional[_Future], failure: BaseException) -> None:
    if waiter is None or waiter.done():
        return
    if isinstance(failure, _asyncio.CancelledError):
        waiter.cancel()
    else:
        waiter.set_exception(failure)


async def _readable(loop: _asyncio.AbstractEventLoop, fd: int, seconds: float) -> bool:
    """Waits until a descriptor is readable, but not longer than that; -1 never is."""
    woken = loop.create_future()
    timer = loop.call_later(seconds, _wake, woken, False)
    if fd != -1:
        loop.add_reader(fd, _wake, woken, True)
    try:
        return bool(await woken)
    finally:
        timer.cancel()
        if fd != -1:
            loop.remove_reader(fd)


def _wake(woken: _Future, by_descriptor: bool) -> None:
    if not woken.done():
        woken.set_result(by_descriptor)


def _patches() -> List[Tuple[object, str, object]]:
    """What `forkless.install` replaces: the owner, the attribute and its new value.

    >>> [(owner.__name__, name) for owner, name, _ in _patches()]
    [('_UnixSelectorEventLoop', '_make_subprocess_transport')]
    """
    owner = getattr(unix_events, "_UnixSelectorEventLoop")
    return [(owner, "_make_subprocess_transport", _make_subprocess_transport)]


def _own_subprocess() -> types.ModuleType:
    module = types.ModuleType(__name__ + ".subprocess", _standard_subprocess.__doc__)
    module.__dict__.update(
        {
            **{k: v for k, v in vars(_standard_subprocess).items() if not k.startswith("__")},
            "create_subprocess_exec": create_subprocess_exec,
            "create_subprocess_shell": create_subprocess_shell,
        }
    )
    return module


if TYPE_CHECKING:
    _exec, _shell = create_subprocess_exec, create_subprocess_shell

    class subprocess:
        """What the module has, for type checkers."""

        PIPE: int
        STDOUT: int
        DEVNULL: int
        Process: TypeAlias = _Process
        SubprocessStreamProtocol: TypeAlias = _SubprocessStreamProtocol
        create_subprocess_exec = staticmethod(_exec)
        create_subprocess_shell = staticmethod(_shell)

else:
    subprocess = _own_subprocess()
    # For ``import forkless.asyncio.subprocess``.
    sys.modules[subprocess.__name__] = subprocess

    # Type checkers would take every name for one of this module.
    def __getattr__(name: str) -> Any:
        # The names of a module itself are not handed on: with `__path__` this would be a package,
        # and an import would load the library's files again.
        if name.startswith("__"):
            raise AttributeError("module %r has no attribute %r" % (__name__, name))
        return getattr(_asyncio, name)


def __dir__() -> List[str]:
    return sorted({*globals(), *dir(_asyncio)})
