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
import sys
import warnings
from _thread import allocate_lock
from importlib import import_module
from types import ModuleType
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

from . import ForklessWarning, _os
from ._native import StepError

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

    patches = [*_patches_or_warning("subprocess", vars(ours)["_patches"]), *_os.patches()]
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
            child = _os.start(
                [os.fsencode(word) for word in args],
                [os.fsencode(path)],
                keep=sorted(map(int, passfds)),
                close_fds=True,
            )
        # After a failed start its child ends with exit code 255.
        return standard(path, args, passfds) if child is None else child

    return [(util, "spawnv_passfds", _os.named(spawnv_passfds, standard, util.__name__))]


# Terminals


def _pty_patches(module: ModuleType) -> List[_Patch]:
    from .pty import spawn_with

    names = vars(module)

    read = names["_read"]

    def spawn(argv: Any, master_read: Any = read, stdin_read: Any = read) -> int:
        return spawn_with(argv, master_read, stdin_read, names["fork"], names)

    return [(module, "spawn", _os.named(spawn, module.spawn, module.__name__))]


def _ptyprocess_patches(module: ModuleType) -> List[_Patch]:
    import shutil

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
        is_list = isinstance(argv, (list, tuple)) and len(argv) > 0
        # For a program that is not there it does not fork, and raises no event.
        if preexec_fn is not None or not is_list or shutil.which(argv[0]) is None:
            return standard.__get__(None, cls)(
                argv, cwd, env, echo, preexec_fn, dimensions, pass_fds
            )
        # Its child has those of them that stay open over an exec.
        keep = [fd for fd in pass_fds if _is_inheritable(fd)]
        # As its fork raises it.
        sys.audit("os.forkpty")
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

    named = _os.named(spawn, standard.__func__, process.__module__)
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
