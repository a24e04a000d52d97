"""The native functions with Python's classes around them: a start, its child, its error.

Everything else of the package starts children through :func:`spawn`, or by the native function
under it. Both carry out what they are told; searches, defaults and messages are their caller's.
"""

from __future__ import annotations

import os

from . import _forkless

# Not from `typing`, whose import takes as long as that of `subprocess`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Sequence

__all__ = ["Child", "StepError", "as_builtin", "spawn"]


class StepError(Exception):
    """A start that failed: the step, the thing that it was about, and the kernel's reason.

    Nothing of it is left: no child, no descriptor. `pid` is the number that the child had; None
    where there was none.

    >>> try:
    ...     spawn([b"x"], executables=[b"/nowhere"], env=None, cwd=None, fds=[], close_fds=True,
    ...           keep=[], restore_signals=True, setsid=False, gid=None, groups=None, uid=None)
    ... except StepError as error:
    ...     print(error.step, error.what, error.errno)
    exec /nowhere 2
    """

    def __init__(
        self, step: str, what: Optional[str], errno: int, pid: Optional[int] = None
    ) -> None:
        super().__init__(step, what, errno, pid)
        self.step = step
        self.what = what
        self.errno = errno
        self.pid = pid

    def __str__(self) -> str:
        thing = "" if self.what is None else " " + self.what
        return "%s%s: %s" % (self.step, thing, os.strerror(self.errno))


class Child:
    """A child that was started. Dropping it neither kills the child nor waits for it.

    `pidfd` is -1 where the kernel refuses pidfds or no descriptor was left, and after
    :meth:`detach_pidfd`. `exec_fd` is -1 after a start that waited for the exec. Otherwise it is
    the reading end of a pipe, which ends when the child has executed its program or failed to. Both
    are closed with this object.
    """

    __slots__ = ("pid", "pidfd", "exec_fd", "_owned", "_pending", "_error", "__weakref__")

    def __init__(
        self, pid: int, pidfd: int, exec_fd: int = -1, owned: Optional[object] = None
    ) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.exec_fd = exec_fd
        # It closes the descriptors when the last reference goes.
        self._owned = owned
        self._pending = exec_fd != -1
        self._error: Optional[StepError] = None

    def detach_pidfd(self) -> int:
        """Hands the pidfd over: from here on the caller closes it. -1 where there is none."""
        fd, self.pidfd = self.pidfd, -1
        if fd != -1:
            _forkless.detach_pidfd(self._owned)
        return fd

    def close_exec_fd(self) -> None:
        """Closes `exec_fd`, once the exec is known."""
        fd, self.exec_fd = self.exec_fd, -1
        if fd != -1:
            _forkless.close_exec_fd(self._owned)

    def executed(self) -> bool:
        """Whether the program runs or has run; False as long as nothing is known. Never waits.

        Raises the StepError of a child that failed before its exec; that child is then reaped.
        """
        if self._error is not None:
            raise self._error
        if not self._pending:
            return True
        answer = _forkless.executed(self._owned)
        if answer is None:
            return False
        self._pending = False
        if answer is not True:
            self._error = StepError(*answer)
            raise self._error
        return True

    def start_error(self) -> Optional[StepError]:
        """As :meth:`executed`, with the error as an answer; None for both other answers."""
        try:
            self.executed()
        except StepError as error:
            return error
        return None


def as_builtin(function: Callable[..., Any], like: Any, module: str) -> Any:
    """The function in the place of the builtin one `like`. It is a builtin one too, so a class that
    has it as an attribute does not make a method of it.

    >>> import posix
    >>> system = as_builtin(lambda line: line * 2, posix.system, "os")
    >>> system, system.__module__, type("Shell", (), {"run": system})().run("exit;")
    (<built-in function system>, 'os', 'exit;exit;')
    """
    # pickle takes it for a function of a module, and not for a method, by this `__self__`.
    of: Any = type(os)(getattr(like.__self__, "__name__", module))
    of.called = function
    # Python takes the two apart again (Objects/typeobject.c, find_signature).
    doc = like.__doc__ or ""
    if like.__text_signature__ is not None:
        doc = "%s%s\n--\n\n%s" % (like.__name__, like.__text_signature__, doc)
    return _forkless.builtin(of, like.__name__, doc, module)


def spawn(argv: Sequence[bytes], **options: Any) -> Child:
    """Starts a child without fork, with the lock of the interpreter released.

    The options are those of the native function; `_forkless.pyi` has them with their defaults.
    Every sequence is a list or a tuple. `executables` are tried in their order, and no search is
    made. `env` has entries ``NAME=value``; None hands on the environment of the process. `fds` are
    pairs of a number in the child and this process's descriptor, -1 to close the number. `keep` are
    further descriptors that keep their numbers. Without `close_fds` the child gets all that are
    inheritable, too.

    With ``blocking=False`` it returns as soon as the process exists; see :attr:`Child.exec_fd` and
    :meth:`Child.executed`.

    `owner` gets the attributes `pid` and `_child_created` before a signal handler can run.

    Raises StepError, and ValueError for a NUL byte.
    """
    started = _forkless.spawn(argv, **options)
    if isinstance(started[0], str):
        raise StepError(*started)
    return Child(*started)
