"""`anyio`, with children whose start never makes the loop wait, on asyncio and on trio.

On asyncio a child is started as :mod:`forkless.asyncio` does it, on trio as :mod:`forkless.trio`
does. Either way the start is made on the calling thread and lasts as long as the clone alone, and
the exec is awaited. The result is anyio's `Process`.

All other names of this module are anyio's, so ``from forkless import anyio`` is the only change
that a program needs.

>>> from forkless import anyio
>>> async def main():
...     done = await anyio.run_process(["echo", "hi"])
...     return done.stdout
>>> anyio.run(main)
b'hi\\n'

The keyword arguments of :class:`forkless.subprocess.Popen` may be given, too, whether or not anyio
has them: ``process_group``, ``rlimits``, ``cgroup``, ``deadline``, and so on.
"""

from __future__ import annotations

import asyncio as _asyncio
import functools as _functools
import inspect
import os
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Sequence, Tuple, Union

import anyio as _anyio
from anyio.abc import Process

from . import _awaited

__all__ = ["open_process", "run_process"]

_Command = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", Sequence[Any]]
_Options = Dict[str, Any]

# Before anything is put in their place.
_open_process = _anyio.open_process
_run_process = _anyio.run_process


async def open_process(command: _Command, **options: Any) -> Process:
    """As `anyio.open_process`; the loop does not wait for the exec.

    >>> async def main():
    ...     async with await open_process(["sh", "-c", "exit 3"]) as child:
    ...         return await child.wait()
    >>> _anyio.run(main)
    3
    """
    known, further = _split(_open_process, options)
    # anyio 3 has the other name, with the same meaning here.
    get = "get_async_backend" if _has(_open_process, "get_async_backend") else "get_asynclib"
    get_backend: Callable[[], Any] = getattr(_open_process, "__globals__")[get]
    start: Callable[..., Any] = _awaited.rebound(
        _open_process, **{get: lambda: _backend(get_backend(), further)}
    )
    process: Process = await start(command, **known)
    return process


async def run_process(command: _Command, **options: Any) -> CompletedProcess[bytes]:
    """As `anyio.run_process`; the loop does not wait for the exec.

    >>> _anyio.run(run_process, ["sh", "-c", "exit 3"])
    Traceback (most recent call last):
    subprocess.CalledProcessError: Command '['sh', '-c', 'exit 3']' returned non-zero exit status 3.
    """
    known, further = _split(_run_process, options)
    start = _functools.partial(open_process, **further)
    run: Callable[..., Any] = _awaited.rebound(_run_process, open_process=start)
    done: CompletedProcess[bytes] = await run(command, **known)
    return done


def _has(function: Any, name: str) -> bool:
    return name in function.__globals__


def _split(function: Any, options: _Options) -> Tuple[_Options, _Options]:
    """The options that this version of anyio has, and the further ones."""
    names = inspect.signature(function).parameters
    known = {name: value for name, value in options.items() if name in names}
    further = {name: value for name, value in options.items() if name not in names}
    return known, further


def _backend(backend: Any, further: _Options) -> Any:
    """anyio's backend, but it starts children as this package does."""
    method = backend.open_process
    # A class method in anyio 4, a function of a module in anyio 3.
    function = getattr(method, "__func__", method)
    names = _trio_names(further) if _has(function, "trio") else _asyncio_names(further)
    start = _awaited.rebound(function, **names)
    if method is not function:
        start = _functools.partial(start, method.__self__)
    return _awaited.Names(backend, open_process=start)


def _trio_names(further: _Options) -> _Options:
    import trio

    from . import trio as own

    lowlevel = _awaited.Names(
        trio.lowlevel, open_process=_functools.partial(own.open_process, **further)
    )
    return {"trio": _awaited.Names(trio, lowlevel=lowlevel)}


def _asyncio_names(further: _Options) -> _Options:
    from . import asyncio as own

    def with_further(function: Callable[..., Any]) -> Callable[..., Any]:
        return _functools.partial(function, **further)

    def get_running_loop() -> Any:
        starter = own._Starter(_asyncio.get_running_loop())
        return _awaited.Names(
            starter,
            subprocess_exec=with_further(starter.subprocess_exec),
            subprocess_shell=with_further(starter.subprocess_shell),
        )

    # Newer versions ask the loop, older ones call the functions.
    names = _awaited.Names(
        _asyncio,
        get_running_loop=get_running_loop,
        create_subprocess_exec=with_further(own.create_subprocess_exec),
        create_subprocess_shell=with_further(own.create_subprocess_shell),
    )
    return {"asyncio": names}


if TYPE_CHECKING:
    # The other names, which `__getattr__` finds. The two functions above keep their types.
    from anyio import *  # type: ignore[assignment]
else:

    def __getattr__(name: str) -> Any:
        # The names of a module itself are not handed on: with `__path__` this would be a package,
        # and an import would load the library's files again.
        if name.startswith("__"):
            raise AttributeError("module %r has no attribute %r" % (__name__, name))
        return getattr(_anyio, name)


def __dir__() -> List[str]:
    return sorted({*globals(), *dir(_anyio)})
