"""`install`: the standard modules start children without fork, for the whole program.

Classes are changed in place, so a program that has already imported a name, or made a subclass,
is covered too. A module that the program has not imported is changed when it is: `install` imports
nothing but `subprocess`.

What can be told from the standard functions, error by error, is left to them: where a start fails
in a way that they report otherwise (exit code 127, say), they are called in its place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from _thread import allocate_lock
from importlib import import_module
from types import FunctionType, ModuleType
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    cast,
)

from . import ForklessWarning
from ._native import StepError
from ._native import spawn as _spawn

__all__ = ["install", "uninstall"]

#: Something to change: a class or module, the name of an attribute, and its new value.
_Patch = Tuple[object, str, object]
_ABSENT = object()


def install() -> None:
    """Makes the standard modules of this program start children without fork.

    ================================================  =============================================
    `subprocess`                                      `Popen` and all that uses it, `os.popen` too
    `asyncio`                                         `create_subprocess_exec` and `_shell`
    `trio`                                            `run_process` and `lowlevel.open_process`
    `os`                                              `system`, `posix_spawn`, `posix_spawnp`,
                                                      `spawnv` and the like
    `multiprocessing`                                 the start methods spawn and forkserver
    `pty`, and the package `ptyprocess` (pexpect)     `spawn`
    ================================================  =============================================

    `os.fork`, `pty.fork`, the start method fork and `preexec_fn` copy the process as ever.

    With ``FORKLESS=off`` in the environment it does nothing (as for the command ``forkless run``,
    ``0``, ``no`` and ``false`` say the same, and capitals do not matter). A second call does nothing either.
    From any thread. Children that are Python programs have to call it themselves.

    >>> import forkless, subprocess
    >>> forkless.install()
    >>> subprocess.run(["sh", "-c", "exit 3"]).returncode
    3
    >>> forkless.uninstall()
    """
    if os.environ.get("FORKLESS", "").lower() in _OFF:
        return
    # Every import comes before the lock: another thread may be in one, and come for the lock.
    from . import subprocess as ours

    patches = [*_patches_or_warning("subprocess", vars(ours)["_patches"]), *_os_patches()]
    with _lock:
        if _finder in sys.meta_path:
            return
        _apply(patches)
        # Before what is imported by now is changed: an import in another thread is missed by none.
        sys.meta_path.insert(0, cast(Any, _finder))
    for name in _LATER:
        if name in sys.modules:
            # Waits for an import that another thread is in.
            _patch_module(import_module(name))


# As crate `forkless-run` reads it.
_OFF = ("off", "0", "no", "false")


def uninstall() -> None:
    """Undoes :func:`install`, however often that was called. What another package has replaced since stays as it is.

    >>> import forkless, os
    >>> before = os.posix_spawn
    >>> forkless.install()
    >>> os.posix_spawn is before
    False
    >>> forkless.uninstall()
    >>> os.posix_spawn is before
    True
    """
    with _lock:
        if _finder in sys.meta_path:
            sys.meta_path.remove(cast(Any, _finder))
        while _changed:
            owner, name, new, old = _changed.pop()
            if vars(owner).get(name, _ABSENT) is not new:
                continue
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)


_lock = allocate_lock()
#: What was changed, in order, with the value before.
_changed: List[Tuple[object, str, object, object]] = []


def _apply(patches: Iterable[_Patch]) -> None:
    for owner, name, new in patches:
        # From the namespace itself: getattr would bind a method, and find an inherited one.
        old = vars(owner).get(name, _ABSENT)
        if any(old is done[2] and owner is done[0] and name == done[1] for done in _changed):
            # Another package's hook of the import may bring us here twice.
            continue
        setattr(owner, name, new)
        _changed.append((owner, name, new, old))


def _patch_module(module: ModuleType) -> None:
    """Changes a module of :data:`_LATER` that has been imported."""
    patches = _patches_or_warning(module.__name__, lambda: _LATER[module.__name__](module))
    with _lock:
        if _finder in sys.meta_path:
            _apply(patches)


def _patches_or_warning(name: str, patches: Callable[[], List[_Patch]]) -> List[_Patch]:
    """What `patches` gives. Nothing, and a warning, if the module is not as expected: the program
    is to run all the same."""
    try:
        return patches()
    except (AttributeError, ImportError) as error:
        text = "%s stays as it is, since it is not as expected: %s"
        warnings.warn(text % (name, error), ForklessWarning, stacklevel=3)
        return []


def _named(function: Any, like: Any, module: str) -> Any:
    """The function with the names of what it takes the place of. pickle stores a function by them,
    and loads whatever has them."""
    function.__name__, function.__qualname__ = like.__name__, like.__qualname__
    function.__module__ = module
    function.__doc__ = like.__doc__
    function.__annotations__ = getattr(like, "__annotations__", {})
    return function


class _Finder:
    """Sees the import of the modules that are changed later. It finds nothing itself."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Any:
        if name not in _LATER:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader:
    """Loads a module by its own loader, and then changes it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> Optional[ModuleType]:
        module: Optional[ModuleType] = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module is to see its own loader, which has its source and its files.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _patch_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


_finder = _Finder()


def _patches_of(name: str) -> Callable[[ModuleType], List[_Patch]]:
    """What our module of this name has for the package that it stands for."""

    def patches(module: ModuleType) -> List[_Patch]:
        ours = sys.modules.get(name)
        if ours is not None and "_patches" not in vars(ours):
            # It is what imports the package just now, and is changed when it is complete.
            return []
        return list(import_module(name)._patches())

    return patches


# multiprocessing


def _multiprocessing_patches(util: ModuleType) -> List[_Patch]:
    from . import subprocess

    standard: Callable[..., int] = util.spawnv_passfds

    def spawnv_passfds(path: Any, args: Sequence[Any], passfds: Iterable[int]) -> int:
        passfds = list(passfds)
        # A debugger follows children by that.
        if vars(subprocess)["_fork_exec_is_patched"]():
            return standard(path, args, passfds)
        child = None
        with contextlib.suppress(StepError):
            child = _start(
                [os.fsencode(word) for word in args],
                [os.fsencode(path)],
                keep=sorted(map(int, passfds)),
                close_fds=True,
            )
        # After a failed start its child ends with exit code 255.
        return standard(path, args, passfds) if child is None else child

    return [(util, "spawnv_passfds", _named(spawnv_passfds, standard, util.__name__))]


def _start(
    argv: Sequence[bytes],
    executables: Sequence[bytes],
    *,
    env: Optional[List[bytes]] = None,
    fds: Sequence[Tuple[int, int]] = (),
    keep: Sequence[int] = (),
    close_fds: bool = False,
    restore_signals: bool = False,
    setsid: bool = False,
    process_group: int = -1,
) -> int:
    child = _spawn(
        list(argv),
        executables=list(executables),
        env=env,
        cwd=None,
        fds=list(fds),
        close_fds=close_fds,
        keep=list(keep),
        restore_signals=restore_signals,
        setsid=setsid,
        process_group=process_group,
        gid=None,
        groups=None,
        uid=None,
    )
    return child.pid


# os


def _os_patches() -> List[_Patch]:
    from ._shell import system

    return [
        (os, "system", _named(_copy(system), os.system, "os")),
        (os, "posix_spawn", _posix_spawn_in_place_of(os.posix_spawn, _as_it_stands)),
        (os, "posix_spawnp", _posix_spawn_in_place_of(os.posix_spawnp, _along_path)),
        (os, "_spawnvef", _spawnvef_in_place_of(vars(os)["_spawnvef"])),
    ]


def _copy(function: Any) -> Any:
    return FunctionType(function.__code__, function.__globals__)


def _as_it_stands(file: bytes) -> Optional[List[bytes]]:
    return [file]


def _along_path(file: bytes) -> Optional[List[bytes]]:
    """The candidates of execvp(3); None where libc has a search path of its own."""
    if b"/" in file:
        return [file]
    path = os.environb.get(b"PATH")
    if not path or not file:
        return None
    return [(directory or b".") + b"/" + file for directory in path.split(b":")]


def _posix_spawn_in_place_of(
    standard: Callable[..., int], candidates: Callable[[bytes], Optional[List[bytes]]]
) -> Callable[..., int]:
    """`os.posix_spawn` holds the interpreter's lock until the child has executed its program. This
    one does not. It knows the file actions dup2 and close, groups, sessions and the signals that
    Python ignores; anything else, and whatever is no correct call, is the standard one's."""

    def posix_spawn(*arguments: Any, **options: Any) -> int:
        start = _known_options(options)
        if start is None or len(arguments) != 3:
            return standard(*arguments, **options)
        path, argv, env = arguments
        if not isinstance(argv, (list, tuple)) or not argv or not argv[0]:
            return standard(path, argv, env, **options)
        executables = None
        # What is wrong with the arguments, the standard function says: behind the clause, so that
        # its error has no other for a context.
        with contextlib.suppress(AttributeError, TypeError, UnicodeError):
            file = os.fsencode(path)
            words = [os.fsencode(word) for word in argv]
            variables = [
                os.fsencode(name) + b"=" + os.fsencode(value) for name, value in env.items()
            ]
            names = [os.fsencode(name) for name in env]
            executables = candidates(file)
        if (
            executables is None
            or not all(map(_is_name, names))
            or any(b"\0" in text for text in [file, *words, *variables])
        ):
            return standard(path, argv, env, **options)
        sys.audit("os.posix_spawn", path, argv, env)
        try:
            return _start(words, executables, env=variables, **start)
        except StepError as error:
            number = error.errno
        raise OSError(number, os.strerror(number), path)

    posix_spawn.__wrapped__ = standard  # type: ignore[attr-defined]
    named: Callable[..., int] = _named(posix_spawn, standard, "os")
    return named


def _is_name(name: bytes) -> bool:
    """Whether the standard functions take this for the name of a variable."""
    return name != b"" and b"=" not in name


def _known_options(options: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """The options of a `posix_spawn` as a start has them; None if there are others."""
    start: Dict[str, Any] = {}
    for name, value in options.items():
        if name == "file_actions":
            actions = _known_actions(value)
            if actions is None:
                return None
            start["fds"] = actions
        elif name == "setsid" and type(value) in (bool, int):
            start["setsid"] = bool(value)
        elif name == "setpgroup" and type(value) is int and value >= 0:
            start["process_group"] = value
        elif name == "setsigdef" and _is_of_python(value):
            start["restore_signals"] = bool(value)
        elif name == "resetids" and type(value) in (bool, int) and not value:
            pass
        elif name == "setsigmask" and value == ():
            pass
        else:
            return None
    return start


def _is_of_python(signals: object) -> bool:
    """Whether these are the signals that Python ignores, all or none of them."""
    if not isinstance(signals, (list, tuple)):
        return False
    return len(signals) == 0 or set(signals) == {signal.SIGPIPE, signal.SIGXFSZ}


def _known_actions(actions: object) -> Optional[List[Tuple[int, int]]]:
    """File actions as pairs: a number in the child, and this process's descriptor or -1."""
    if not isinstance(actions, (list, tuple)):
        return None
    numbers: Dict[int, int] = {}
    # libc refuses numbers from the limit on when the action is noted: without the program's name.
    limit = os.sysconf("SC_OPEN_MAX")
    for action in actions:
        if not isinstance(action, tuple) or not all(type(part) is int for part in action):
            return None
        if not all(0 <= part < limit for part in action):
            return None
        if len(action) == 2 and action[0] == os.POSIX_SPAWN_CLOSE:
            numbers[action[1]] = -1
        elif len(action) == 3 and action[0] == os.POSIX_SPAWN_DUP2:
            source: int = numbers.get(int(action[1]), int(action[1]))
            if source == -1:
                return None
            numbers[int(action[2])] = source
        else:
            return None
    return list(numbers.items())


def _spawnvef_in_place_of(standard: Callable[..., int]) -> Callable[..., int]:
    """What `os.spawnv` and its like call: a fork and an exec."""

    def start(
        file: Any, args: Any, env: Optional[Mapping[Any, Any]], func: Callable[..., Any]
    ) -> Optional[int]:
        """The child's number. None, or an error, for what only the standard function knows."""
        name = os.fsencode(file)
        words = [os.fsencode(word) for word in args]
        variables = None
        if env is not None:
            pairs = [(os.fsencode(key), os.fsencode(value)) for key, value in env.items()]
            if not all(_is_name(key) for key, _ in pairs):
                return None
            variables = [key + b"=" + value for key, value in pairs]
        searches = func in (os.execvp, os.execvpe) and not os.path.dirname(name)
        executables = [name]
        if searches:
            # The path of the environment that the program gets, as os.execvpe has it.
            directories = os.get_exec_path(cast(Any, env))
            executables = [os.path.join(os.fsencode(where), name) for where in directories]
        # Called without an environment, the other two fail in the child.
        known = func in ((os.execv, os.execvp) if env is None else (os.execve, os.execvpe))
        correct = isinstance(args, (tuple, list)) and words and words[0]
        if not known or not correct:
            return None
        sys.audit("os.exec", file, args, env)
        return _start(words, executables, env=variables)

    def _spawnvef(
        mode: int, file: Any, args: Any, env: Optional[Mapping[Any, Any]], func: Callable[..., Any]
    ) -> int:
        pid = None
        # With an exec that fails, its child ends with exit code 127. Behind the clause, so that an
        # error has no other for a context.
        with contextlib.suppress(AttributeError, StepError, TypeError, ValueError):
            pid = start(file, args, env, func)
        if pid is None:
            return standard(mode, file, args, env, func)
        if mode == os.P_NOWAIT:
            return pid
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    named: Callable[..., int] = _named(_spawnvef, standard, "os")
    return named


# Terminals


def _pty_patches(module: ModuleType) -> List[_Patch]:
    from .pty import spawn_with

    names = vars(module)

    read = names["_read"]

    def spawn(argv: Any, master_read: Any = read, stdin_read: Any = read) -> int:
        return spawn_with(argv, master_read, stdin_read, names["fork"], names)

    return [(module, "spawn", _named(spawn, module.spawn, module.__name__))]


def _ptyprocess_patches(module: ModuleType) -> List[_Patch]:
    from .pty import start_process

    process = module.PtyProcess
    standard = vars(process)["spawn"]

    def spawn(
        cls: Any,
        argv: Any,
        cwd: Any = None,
        env: Any = None,
        echo: bool = True,
        preexec_fn: Any = None,
        dimensions: Tuple[int, int] = (24, 80),
        pass_fds: Iterable[int] = (),
    ) -> Any:
        pass_fds = tuple(pass_fds)
        if preexec_fn is not None or not isinstance(argv, (list, tuple)):
            return standard.__get__(None, cls)(
                argv, cwd, env, echo, preexec_fn, dimensions, pass_fds
            )
        # Its child has those of them that stay open over an exec.
        keep = [fd for fd in pass_fds if _is_inheritable(fd)]
        started = None
        with contextlib.suppress(OSError):
            started = start_process(argv, cwd, env, echo, None, dimensions, keep)
        if started is None:
            # Its errors have texts of their own.
            return standard.__get__(None, cls)(argv, cwd, env, echo, None, dimensions, pass_fds)
        pid, fd, words = started
        child = cls(pid, fd)
        child.argv = words
        if env is not None:
            child.env = env
        if cwd is not None:
            child.launch_dir = cwd
        return child

    named = _named(spawn, standard.__func__, process.__module__)
    return [(process, "spawn", classmethod(named))]


def _is_inheritable(fd: int) -> bool:
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


#: Modules that are changed when the program imports them.
_LATER: Dict[str, Callable[[ModuleType], List[_Patch]]] = {
    # The packages, not the parts that are changed: ours need all of them.
    "asyncio": _patches_of("forkless.asyncio"),
    "forkless.asyncio": _patches_of("forkless.asyncio"),
    "trio": _patches_of("forkless.trio"),
    "forkless.trio": _patches_of("forkless.trio"),
    "multiprocessing.util": _multiprocessing_patches,
    "pty": _pty_patches,
    "ptyprocess.ptyprocess": _ptyprocess_patches,
}
