"""A pytest plugin: ``pytest --forkless`` reports the forks of a test run, slowest first.

A fork copies the page tables of the whole test process, so it takes longer the more the tests have
loaded. The report says where each fork comes from, which test was running, and why it was a fork:
`preexec_fn`, `user`, `os.fork`, a terminal. What pytest-xdist's workers did is in it, too.

Only forks by Python's own functions are seen. ``forkless diagnose -- pytest`` sees those of C
extensions and of other processes as well.
"""

from __future__ import annotations

import os
import sys
import threading
from time import perf_counter_ns
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import pytest

__all__: List[str] = []

_ROWS = 20


class Key(NamedTuple):
    """What is one row of the report."""

    how: str
    where: str
    test: str


class Record:
    """What the forks of one key took."""

    __slots__ = ("count", "ns", "memory")

    def __init__(self) -> None:
        self.count = 0
        self.ns = 0
        self.memory = 0

    def add(self, count: int, ns: int, memory: int) -> None:
        self.count += count
        self.ns += ns
        self.memory = max(self.memory, memory)


class _Inner(threading.local):
    """Whether this thread is in a start that is timed: behind `forkless.install` one of the timed
    functions calls another."""

    is_other = False


class Watch:
    """Times the functions that make processes, by functions in their place.

    >>> import os
    >>> from forkless.pytest_plugin import Watch
    >>> watch = Watch()
    >>> watch.begin()
    >>> pid = os.fork() or os._exit(0)
    >>> watch.end()
    >>> _ = os.waitpid(pid, 0)
    >>> [(key.how, record.count) for key, record in watch.forks.items()]
    [('os.fork', 1)]
    """

    def __init__(self) -> None:
        self.forks: Dict[Key, Record] = {}
        self.others = Record()
        self.test = ""
        self._undo: List[Tuple[object, str, object, object]] = []
        self._inner = _Inner()

    def begin(self) -> None:
        """Puts the functions in place."""
        import subprocess

        import _posixsubprocess

        # Imported before anything is replaced: it looks at what it finds.
        from . import _forkless
        from . import subprocess as ours

        for name in ("fork", "forkpty"):
            self._replace(os, name, self._fork(getattr(os, name), "os." + name))
        timed = self._fork_exec(_posixsubprocess.fork_exec)
        self._replace(_posixsubprocess, "fork_exec", timed)
        # Python 3.11 and later have the function under a name of their own, and so has our module.
        for module in (subprocess, ours):
            if hasattr(module, "_fork_exec"):
                self._replace(module, "_fork_exec", timed)
        for name in ("posix_spawn", "posix_spawnp", "system"):
            self._replace(os, name, self._other(getattr(os, name)))
        # The last two start lines without a shell.
        for name in ("spawn", "shell_system", "shell_start"):
            self._replace(_forkless, name, self._other(getattr(_forkless, name)))

    def end(self) -> None:
        """Puts back what was there, except where somebody has replaced it since."""
        while self._undo:
            owner, name, new, old = self._undo.pop()
            if getattr(owner, name) is new:
                setattr(owner, name, old)

    def _replace(self, owner: object, name: str, new: object) -> None:
        self._undo.append((owner, name, new, getattr(owner, name)))
        setattr(owner, name, new)

    def _fork(self, function: Callable[[], Any], how: str) -> Callable[[], Any]:
        def timed() -> Any:
            memory = _resident()
            begun = perf_counter_ns()
            answer = function()
            ns = perf_counter_ns() - begun
            # forkpty() gives a pair. In the child there is nothing to record.
            if (answer[0] if isinstance(answer, tuple) else answer) != 0:
                self._record(how, ns, memory)
            return answer

        return _as(timed, function)

    def _fork_exec(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            how = _why(args)
            if how is None:
                return self._timed_other(function, args, {})
            memory = _resident()
            begun = perf_counter_ns()
            answer = function(*args)
            self._record(how, perf_counter_ns() - begun, memory)
            return answer

        return _as(timed, function)

    def _other(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            return self._timed_other(function, args, kwargs)

        return _as(timed, function)

    def _timed_other(
        self, function: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]
    ) -> Any:
        if self._inner.is_other:
            return function(*args, **kwargs)
        self._inner.is_other = True
        begun = perf_counter_ns()
        answer: Any = ()
        try:
            answer = function(*args, **kwargs)
            return answer
        finally:
            self._inner.is_other = False
            # None: the line was not started, and gets a shell by another of these functions.
            started = 0 if answer is None else 1
            self.others.add(started, perf_counter_ns() - begun, 0)

    def _record(self, how: str, ns: int, memory: int) -> None:
        self._add(Key(how, _caller(), self.test), 1, ns, memory)

    def _add(self, key: Key, count: int, ns: int, memory: int) -> None:
        self.forks.setdefault(key, Record()).add(count, ns, memory)

    def dump(self) -> Dict[str, Any]:
        """All of it as plain data, for another process."""
        return {
            "forks": [
                [*key, record.count, record.ns, record.memory] for key, record in self.forks.items()
            ],
            "others": [self.others.count, self.others.ns, self.others.memory],
        }

    def load(self, data: Dict[str, Any]) -> None:
        """Adds what another process has dumped."""
        for how, where, test, count, ns, memory in data["forks"]:
            self._add(Key(how, where, test), count, ns, memory)
        self.others.add(*data["others"])

    def report(self, rows: int) -> List[str]:
        """The report's lines; 0 rows are all."""
        from . import _display

        total = Record()
        for record in self.forks.values():
            total.add(record.count, record.ns, record.memory)
        lines = []
        ranked = sorted(self.forks.items(), key=lambda item: -item[1].ns)
        shown = ranked[: rows or None]
        if shown:
            head = ["time", "count", "each", "memory", "how", "where", "test"]
            cells = [
                [
                    _display.duration(record.ns),
                    str(record.count),
                    _display.duration(record.ns / record.count),
                    _display.size(record.memory),
                    *key,
                ]
                for key, record in shown
            ]
            lines = _aligned(head, cells)
        if len(shown) < len(ranked):
            lines.append("... and %d rows more (--forkless-rows=0)" % (len(ranked) - len(shown)))
        lines.append(
            "%s took %s of the tests' time; %s without fork took %s."
            % (
                _counted(total.count, "fork"),
                _display.duration(total.ns),
                _counted(self.others.count, "start"),
                _display.duration(self.others.ns),
            )
        )
        return lines


def _aligned(head: List[str], rows: List[List[str]]) -> List[str]:
    # Figures stand right, names left.
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if i < 4 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in (head, *rows)
    ]


def _counted(number: int, word: str) -> str:
    return "%d %s%s" % (number, word, "" if number == 1 else "s")


def _as(new: Callable[..., Any], old: Callable[..., Any]) -> Callable[..., Any]:
    import functools
    from types import BuiltinFunctionType

    from ._native import as_builtin

    if type(old) is BuiltinFunctionType:
        made: Callable[..., Any] = as_builtin(new, old, old.__module__)
        return made
    functools.update_wrapper(new, old)
    # Tells forkless.subprocess that this is no debugger that wants to see each start.
    setattr(new, "_forkless_watches", True)
    return new


# The last arguments of fork_exec: from 3.11 to 3.13 `allow_vfork` comes after them.
_HAS_ALLOW_VFORK = (3, 11) <= sys.version_info < (3, 14)
_HAS_VFORK = sys.version_info >= (3, 10)


def _why(args: Tuple[Any, ...]) -> Optional[str]:
    """Why a call of fork_exec forks; None if it does not (Modules/_posixsubprocess.c)."""
    if _HAS_ALLOW_VFORK:
        *_, gid, gids, uid, _umask, preexec_fn, allow_vfork = args
    else:
        *_, gid, gids, uid, _umask, preexec_fn = args
        allow_vfork = _HAS_VFORK
    if preexec_fn is not None:
        return "fork for preexec_fn"
    for name, value in (("user", uid), ("group", gid), ("extra_groups", gids)):
        if value is not None:
            return "fork for " + name
    return None if allow_vfork else "fork"


def _resident() -> int:
    """The memory that a fork would copy the page tables of."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKAGES = os.sep + "site-packages" + os.sep
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _caller() -> str:
    """The innermost line that is neither Python's own library nor this package's; else the first
    outside this file.
    """
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    first = frame
    found: Any = frame
    while found is not None:
        file = found.f_code.co_filename
        inside = file.startswith(_LIBRARY) and _PACKAGES not in file
        if not inside and not file.startswith(_OURS) and not file.startswith("<"):
            break
        found = found.f_back
    frame = first if found is None else found
    file = frame.f_code.co_filename
    try:
        near = os.path.relpath(file)
    except (OSError, ValueError):
        near = file
    if not near.startswith(os.pardir):
        file = near
    return "%s:%d in %s" % (file, frame.f_lineno, frame.f_code.co_name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the two options."""
    group = parser.getgroup("forkless")
    group.addoption(
        "--forkless",
        action="store_true",
        help="report the forks of this run, slowest first",
    )
    group.addoption(
        "--forkless-rows",
        metavar="N",
        type=int,
        default=_ROWS,
        help="rows of that report (default %d, 0: all)" % _ROWS,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begins to watch, before anything is collected."""
    if config.getoption("--forkless"):
        config.pluginmanager.register(_Plugin(config), "forkless-report")


class _Plugin:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._watch = Watch()
        self._watch.begin()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._watch.test = item.nodeid
        yield
        self._watch.test = ""

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # In a worker of pytest-xdist.
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["forkless"] = self._watch.dump()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        data = getattr(node, "workeroutput", {}).get("forkless")
        if data is not None:
            self._watch.load(data)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("forks of this run")
        for line in self._watch.report(self._config.getoption("--forkless-rows")):
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        self._watch.end()
