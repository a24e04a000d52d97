"""Lines for `/bin/sh`, run without it where that provably gives the same.

Most lines that programs give to a shell are a command with its arguments. Starting it directly
saves the shell's exec, some half a millisecond. Crate `forkless` proves which lines are so (guide:
"Lines without a shell"); every other line goes to the shell. Here are `system`, and what
`Popen(shell=True)` asks.

Popen is one process with one number. So it runs only lines without a shell that take one program,
and only where its attributes are those that the line's shell would have had.

>>> os.waitstatus_to_exitcode(system("exit 3"))
3
>>> os.waitstatus_to_exitcode(system("test -d /nowhere || exit 4"))
4
"""

from __future__ import annotations

import os
import sys
import threading

# Not from `os`, where `forkless.install` puts another one.
from posix import system as _standard_system

from . import _forkless
from ._native import as_builtin

# Not from `typing`, whose import takes as long as that of `subprocess`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, AnyStr, Callable, List, Optional, Sequence, Tuple, TypeVar, Union

    _F = TypeVar("_F", bound=Callable[..., Any])
    _Command = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

__all__ = ["system"]


class Line:
    """A line that runs as one program, in the place of its shell.

    The process is an ordinary child, which the caller waits for by its number. The status has to
    be translated by :meth:`end`: a shell that waits reports a program killed by signal n as
    128 + n. Until then it holds a copy of the line's standard error, for the shell's words.

    >>> line = start(b"exec sleep 0", env=None, cwd=None, stdin=-1, stdout=-1, stderr=-1,
    ...              close_fds=True, restore_signals=True)
    >>> _, status = os.waitpid(line.pid, 0)
    >>> os.waitstatus_to_exitcode(line.end(status))
    0
    """

    __slots__ = ("pid", "quiet", "words", "_words_go_to", "_end", "_sent")

    def __init__(self, pid: int, words_go_to: Optional[int], end: object) -> None:
        self.pid = pid
        #: The caller writes :attr:`words` itself, behind the output.
        self.quiet = words_go_to is not None
        #: What the shell would have said about a killed program, once it has ended.
        self.words: Optional[str] = None
        self._words_go_to = words_go_to
        self._end = end
        self._sent: List[int] = []

    def sent(self, signal: int) -> None:
        """The caller sends this signal to the process. The shell would have got it, and died of it
        rather than report a program's death."""
        self._sent.append(signal)

    def end(self, status: int) -> int:
        """The shell's wait status for the program's. Of a line that was let go it is the same."""
        end = self._end
        self.let_go()
        if end is None or not 0 < status & 0x7F < 0x7F or status & 0x7F in self._sent:
            return status
        if self.quiet:
            self.words = _shell_message(end, status)
        translated: int = _shell_end(end, status)
        return translated

    def let_go(self) -> None:
        """Closes the copy of the standard error that the shell's words would go to.

        A program may keep the object of a line that has ended, and with this copy a lock, or the
        place on a disk of a log that it has removed.
        """
        self._end = None


# Popen's __del__ comes here, when a module's names may be gone.
_shell_end = _forkless.shell_end
_shell_message = _forkless.shell_message


def may_be_direct(
    *,
    preexec_fn: Optional[object],
    pass_fds: Sequence[int],
    executable: Optional[object],
    line_count: int,
    other_options: bool,
) -> bool:
    """Whether Popen's attributes let a line do without its shell.

    `line_count` is the number of words behind ``-c``: more than the line are the shell's own
    arguments. `other_options` are attributes that a shell would act under in another way than the
    program alone: as another user it may not find the program; as the leader of a session or group
    it would die of a signal to the group.
    """
    return (
        preexec_fn is None
        and not pass_fds
        and executable is None
        and line_count == 1
        and not other_options
    )


def start(
    line: bytes,
    *,
    env: Optional[Sequence[bytes]],
    cwd: Optional[bytes],
    stdin: int,
    stdout: int,
    stderr: int,
    close_fds: bool,
    restore_signals: bool,
    owner: Optional[object] = None,
    tells: bool = False,
) -> Optional[Line]:
    """Starts a line that takes one program and no shell. None for any other, and then nothing has
    been started: the caller starts the shell.

    `stdin`, `stdout` and `stderr` are this process's descriptors for the line, -1 for the one of
    the same number. `owner` is the Popen: it has a `stdout` and `stderr` where they are pipes of
    its own, and gets the attributes `pid` and `_child_created` before a signal handler
    can run. `tells`: its `communicate` is this package's, which calls :func:`finish`.

    >>> start(b"echo *", env=None, cwd=None, stdin=-1, stdout=-1, stderr=-1, close_fds=True,
    ...       restore_signals=True) is None
    True
    """
    reads = _readers.quiet and owner is not None and tells
    # It is for the first line alone: what is started meanwhile has another reader.
    _readers.quiet = False
    # The analysis would have to know what `--` does to a line that looks like an option.
    if line[:1] in (b"-", b"+") or b"\0" in line:
        return None
    started: Optional[Tuple[int, Optional[int], object]] = _forkless.shell_start(
        line,
        None if env is None else list(env),
        cwd,
        stdin,
        stdout,
        stderr,
        close_fds,
        restore_signals,
        reads and getattr(owner, "stdout", None) is not None,
        reads and getattr(owner, "stderr", None) is not None,
        owner,
    )
    return None if started is None else Line(*started)


class _Readers(threading.local):
    """Whether this thread's next line is read to its end before it is waited for, and its words are
    written by :func:`finish`."""

    quiet = False


_readers = _Readers()


class read_to_end:
    """While it is entered, the caller promises for the next `Popen` of this thread: it is only
    talked to by `communicate`.

    A shell writes its words about a killed program on its standard error. Where that is a pipe that
    Popen reads, this process cannot write them: it would have to keep the pipe open, and the reader
    would not see its end. So such a line gets a shell, unless this promise is given and the result
    of `communicate` goes through :func:`finish`. A subclass may have a `communicate` of its own.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        _readers.quiet = True

    def __exit__(self, *_: object) -> None:
        _readers.quiet = False


def finish(
    line: Optional[Line],
    stdout: Optional[AnyStr],
    stderr: Optional[AnyStr],
) -> Tuple[Optional[AnyStr], Optional[AnyStr]]:
    """The output of a line with the shell's words behind it.

    >>> finish(None, "out", "err")
    ('out', 'err')
    """
    words = None if line is None else line.words
    if line is None or words is None:
        return stdout, stderr
    if line._words_go_to == 1:
        return _with_words(stdout, words), stderr
    return stdout, _with_words(stderr, words)


def _with_words(output: Optional[AnyStr], words: str) -> Optional[AnyStr]:
    if output is None:
        return None
    behind: Any = words if isinstance(output, str) else words.encode("ascii")
    both: AnyStr = output + behind
    return both


def _builtin(function: _F) -> _F:
    """As `os.system`, it becomes no method where a class has it as an attribute."""
    made: _F = as_builtin(function, _standard_system, "forkless")
    return made


@_builtin
def system(command: _Command) -> int:
    """`os.system`: runs a line and returns its wait status."""
    line = os.fsencode(command)
    if b"\0" in line:
        raise ValueError("embedded null byte")
    if line[:1] in (b"-", b"+"):
        # Whether it is a line or an option depends on the version of libc.
        return _standard_system(line)
    sys.audit("os.system", line)
    status: int = _forkless.shell_system(line)
    return status
