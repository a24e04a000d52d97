"""What `forkless.install` puts into `os`: `system`, `posix_spawn`, `posix_spawnp`, and what
`spawnv` and its like call.

Nothing here may lead to `subprocess` or to what `install` has changed. `os` lives almost to the
interpreter's end, and so does all that its functions refer to. The pipes of a Popen that nobody has
closed would be closed too late for their ResourceWarning.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import sys
from types import BuiltinFunctionType
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    cast,
)

from ._native import StepError, as_builtin
from ._native import spawn as _spawn

__all__ = ["named", "patches", "start"]


def named(function: Any, like: Any, module: str) -> Any:
    """The function with the names of what it takes the place of. pickle stores a function by them,
    and loads whatever has them."""
    function.__name__, function.__qualname__ = like.__name__, like.__qualname__
    function.__module__ = module
    function.__doc__ = like.__doc__
    function.__annotations__ = getattr(like, "__annotations__", {})
    return function


def start(
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


def patches() -> List[Tuple[object, str, object]]:
    """What `install` changes: the owner, the attribute and its new value."""
    return [
        (os, "system", _system_in_place_of(os.system)),
        (os, "posix_spawn", _posix_spawn_in_place_of(os.posix_spawn, _as_it_stands)),
        (os, "posix_spawnp", _posix_spawn_in_place_of(os.posix_spawnp, _along_path)),
        (os, "_spawnvef", _spawnvef_in_place_of(vars(os)["_spawnvef"])),
    ]


def _in_place_of(standard: Any, function: Callable[..., int]) -> Callable[..., int]:
    """The function as one of `os`, and of the kind of the standard one."""
    made: Callable[..., int]
    if type(standard) is BuiltinFunctionType:
        made = as_builtin(function, standard, "os")
    else:
        # Another package, or a test, has put one of its own there.
        function.__wrapped__ = standard  # type: ignore[attr-defined]
        made = named(function, standard, "os")
    return made


def _system_in_place_of(standard: Callable[..., int]) -> Callable[..., int]:
    from ._shell import system as ours

    def system(*arguments: Any, **options: Any) -> int:
        # What is wrong with a call, the standard function says.
        is_correct = len(arguments) == 1 and not options
        if is_correct or (not arguments and list(options) == ["command"]):
            return ours(*arguments, **options)
        return standard(*arguments, **options)

    return _in_place_of(standard, system)


def _as_it_stands(file: bytes) -> Optional[List[bytes]]:
    return [file]


def _along_path(file: bytes) -> Optional[List[bytes]]:
    """The candidates of execvp(3); None where libc has a search path of its own."""
    if b"/" in file:
        return [file]
    path = os.environb.get(b"PATH")
    if not path or not file or b"\0" in file:
        return None
    files = [(directory or b".") + b"/" + file for directory in path.split(b":")]
    for at, candidate in enumerate(files):
        try:
            mode = os.stat(candidate).st_mode
        except OSError as error:
            if error.errno in _TRIES_ON:
                continue
        else:
            if not stat.S_ISREG(mode) or not os.access(candidate, os.X_OK, effective_ids=True):
                # EACCES, which execvp remembers.
                continue
            # Most errors of its exec end the search. For the others see `_goes_on`.
            return files[: at + 1]
        return None
    return files


#: The errors by which execvp goes on to the next directory (posix/execvpe.c of glibc). Another one
#: ends its search.
_TRIES_ON = (
    errno.EACCES,
    errno.ENODEV,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.ESTALE,
    errno.ETIMEDOUT,
)


def _goes_on(number: int, executables: Sequence[bytes]) -> bool:
    """Whether execvp might find another file behind the last of these, whose start has failed: a
    script whose interpreter is missing, for one."""
    return number in _TRIES_ON and os.path.lexists(executables[-1])


def _posix_spawn_in_place_of(
    standard: Callable[..., int], candidates: Callable[[bytes], Optional[List[bytes]]]
) -> Callable[..., int]:
    """`os.posix_spawn` holds the interpreter's lock until the child has executed its program. This
    one does not. It knows the file actions dup2 and close, groups, sessions and the signals that
    Python ignores; anything else, and whatever is no correct call, is the standard one's."""

    def posix_spawn(*arguments: Any, **options: Any) -> int:
        known = _known_options(options)
        if known is None or len(arguments) != 3:
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
            return start(words, executables, env=variables, **known)
        except StepError as error:
            number = error.errno
        if candidates is _along_path and b"/" not in file and _goes_on(number, executables):
            return standard(path, argv, env, **options)
        raise OSError(number, os.strerror(number), path)

    return _in_place_of(standard, posix_spawn)


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

    def start_it(
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
        return start(words, executables, env=variables)

    def _spawnvef(
        mode: int, file: Any, args: Any, env: Optional[Mapping[Any, Any]], func: Callable[..., Any]
    ) -> int:
        pid = None
        # With an exec that fails, its child ends with exit code 127. Behind the clause, so that an
        # error has no other for a context.
        with contextlib.suppress(AttributeError, StepError, TypeError, ValueError):
            pid = start_it(file, args, env, func)
        if pid is None:
            return standard(mode, file, args, env, func)
        if mode == os.P_NOWAIT:
            return pid
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    made: Callable[..., int] = named(_spawnvef, standard, "os")
    return made
