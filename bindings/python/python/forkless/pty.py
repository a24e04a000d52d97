"""Children on a terminal of their own, without fork: the names of the standard module `pty`, and
`PtyProcess`.

`pty.fork` copies the caller's memory, to execute a program a moment later. Here the program is
started at once, with the terminal as its controlling terminal:

>>> import os
>>> child = PtyProcess.spawn(["tty"])
>>> child.read().startswith(b"/dev/pts/")
True
>>> child.wait()
0

:class:`PtyProcess` and :class:`PtyProcessUnicode` have the interface of the package `ptyprocess`,
on which pexpect and the terminals of Jupyter are built.

A program that cannot be executed is an :class:`OSError` of the caller's. With `pty.spawn` the child
would print a traceback to the terminal.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import io
import os
import pty as _standard
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from types import FunctionType, TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from ._native import StepError
from ._native import spawn as _spawn

__all__ = ["openpty", "fork", "spawn", "PtyProcess", "PtyProcessUnicode", "PtyProcessError"]

_Word = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_Self = TypeVar("_Self", bound="PtyProcess")


def _take_over() -> None:
    """Gives this module every name of the standard one, with its functions bound to this module:
    what is replaced here (`pty.select`, `pty.STDIN_FILENO`) is what they use."""
    names = globals()
    for name, value in vars(_standard).items():
        if name.startswith("__") or name in names:
            continue
        if isinstance(value, FunctionType) and value.__module__ == _standard.__name__:
            bound = FunctionType(value.__code__, names, name, value.__defaults__, value.__closure__)
            bound.__kwdefaults__ = value.__kwdefaults__
            bound.__doc__ = value.__doc__
            value = bound
        names[name] = value


if TYPE_CHECKING:
    from pty import fork, openpty
else:
    _take_over()
# It returns twice, so it has to copy the process: the standard one.
fork = _standard.fork

_Reader = Callable[[int], bytes]


def _read(fd: int) -> bytes:
    """Reads what a descriptor has, at most a KiB."""
    return os.read(fd, 1024)


def spawn(
    argv: Union[str, Sequence[str]], master_read: _Reader = _read, stdin_read: _Reader = _read
) -> int:
    """Runs a program on a terminal of its own, copies between that terminal and this process's
    standard input and output, and returns the wait status.

    >>> seen = []
    >>> def read(fd):
    ...     seen.append(os.read(fd, 1024))
    ...     return seen[-1]
    >>> status = spawn(["tty"], read)  # doctest: +ELLIPSIS
    >>> os.waitstatus_to_exitcode(status), b"".join(seen).startswith(b"/dev/pts/")
    (0, True)

    Raises OSError if the program cannot be executed.
    """
    return spawn_with(argv, master_read, stdin_read, None)


def spawn_with(
    argv: Union[str, Sequence[str]],
    master_read: _Reader,
    stdin_read: _Reader,
    otherwise: Optional[Callable[[], Tuple[int, int]]],
    names: Optional[Dict[str, Any]] = None,
) -> int:
    """:func:`spawn` as the standard module's code has it, with `names` as its globals.

    `otherwise` is the fork for a program that cannot be executed; without it that is an error.
    """
    if names is None:
        names = globals()
    if names["fork"] is _standard_fork:
        words: Sequence[str] = (argv,) if isinstance(argv, str) else argv

        def start() -> Tuple[int, int]:
            # The fork raises the event itself.
            if otherwise is not None and not _may_be_there(words):
                return otherwise()
            # As the standard fork raises it.
            sys.audit("os.forkpty")
            try:
                return _start_on_path(words)
            except Exception:
                if otherwise is None:
                    raise
            # Behind the clause: what its child raises has no other error for a context.
            return otherwise()

        # Only for this call: another thread may be in another one.
        names = dict(names, fork=start)
    code = FunctionType(_standard_spawn.__code__, names)
    status: int = code(argv, master_read, stdin_read)
    return status


# As they were at the import: `forkless.install` replaces the standard ones.
_standard_fork = _standard.fork
_standard_spawn: FunctionType = _standard.spawn  # type: ignore[assignment]


def _on_path(program: bytes) -> List[bytes]:
    if os.path.dirname(program):
        return [program]
    return [os.path.join(os.fsencode(dir), program) for dir in os.get_exec_path()]


def _may_be_there(words: Sequence[str]) -> bool:
    """Whether one of the files may be executed, as far as its mode tells."""
    with contextlib.suppress(Exception):
        files = _on_path(os.fsencode(words[0]))
        return any(os.access(file, os.X_OK, effective_ids=True) for file in files)
    return False


def _start_on_path(words: Sequence[str]) -> Tuple[int, int]:
    argv = [os.fsencode(word) for word in words]
    if not argv:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), "argv")
    try:
        return _start(argv, _on_path(argv[0]), close_fds=False)
    except StepError as error:
        raise OSError(error.errno, os.strerror(error.errno), words[0]) from None


def _start(
    argv: Sequence[bytes],
    executables: Sequence[bytes],
    *,
    env: Optional[Sequence[bytes]] = None,
    cwd: Optional[bytes] = None,
    close_fds: bool,
    keep: Sequence[int] = (),
    dimensions: Optional[Tuple[int, int]] = None,
    echo: bool = True,
) -> Tuple[int, int]:
    """Starts a program as the leader of a session on a new terminal. Returns its number and the
    terminal's other end. Signals are handed on as after a fork.

    Raises StepError.
    """
    ours, theirs = os.openpty()
    try:
        _prepare(theirs, dimensions, echo)
        child = _spawn(
            list(argv),
            executables=list(executables),
            env=None if env is None else list(env),
            cwd=cwd,
            fds=[(0, theirs), (1, theirs), (2, theirs)],
            close_fds=close_fds,
            keep=list(keep),
            restore_signals=False,
            setsid=True,
            gid=None,
            groups=None,
            uid=None,
            setctty=0,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        # With a copy here, nobody would ever read an end.
        os.close(theirs)
    return child.pid, ours


def _prepare(terminal: int, dimensions: Optional[Tuple[int, int]], echo: bool) -> None:
    """Sets a terminal up before the program can see it."""
    if dimensions is not None:
        _set_size(terminal, *dimensions)
    if not echo:
        _set_echo(terminal, False)


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _set_echo(terminal: int, on: bool) -> None:
    attributes = termios.tcgetattr(terminal)
    local = attributes[3]
    attributes[3] = local | termios.ECHO if on else local & ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _start_with_preexec(
    argv: Sequence[bytes],
    preexec_fn: Callable[[], object],
    env: Optional[Mapping[Any, Any]],
    cwd: Optional[_Word],
    keep: Iterable[int],
    dimensions: Tuple[int, int],
    echo: bool,
) -> Tuple[int, int]:
    """The same with a function to call in the child, which costs a fork (CPython's own)."""
    from .subprocess import Popen

    ours, theirs = os.openpty()
    told, tell = os.pipe()

    def prepare() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        try:
            preexec_fn()
        except Exception as error:
            os.write(tell, ("%s:%s" % (type(error).__name__, error)).encode("utf-8", "replace"))
            raise

    # What the warning speaks of.
    prepare.func = preexec_fn  # type: ignore[attr-defined]
    try:
        try:
            _prepare(theirs, dimensions, echo)
            child = Popen(
                list(argv),
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                env=env,
                cwd=cwd,
                pass_fds=tuple(keep),
                restore_signals=False,
                start_new_session=True,
                preexec_fn=prepare,
            )
        except subprocess.SubprocessError:
            os.close(tell)
            tell = -1
            kind, _, text = os.read(told, 4096).decode("utf-8", "replace").partition(":")
            named = getattr(__import__("builtins"), kind, None)
            if isinstance(named, type) and issubclass(named, Exception):
                raise named(text) from None
            raise
    except BaseException:
        os.close(ours)
        raise
    finally:
        for fd in (theirs, told, tell):
            if fd != -1:
                os.close(fd)
    # PtyProcess waits for it. Popen would warn of a child that nobody has waited for.
    child.returncode = 0
    return child.pid, ours


class PtyProcessError(Exception):
    """A child on a terminal could not be ended, or somebody else has waited for it."""


class PtyProcess:
    """A program on a terminal of its own; made by :meth:`spawn`.

    >>> child = PtyProcess.spawn(["cat"], echo=False)
    >>> child.write(b"line\\n")
    5
    >>> child.readline()
    b'line\\r\\n'
    >>> child.sendeof()
    (1, b'\\x04')
    >>> child.wait()
    0
    >>> child.close()
    """

    string_type: type = bytes
    linesep: Any = os.linesep.encode("ascii")
    crlf: Any = b"\r\n"
    encoding: Optional[str] = None
    argv: Optional[Sequence[Any]] = None
    env: Optional[Mapping[Any, Any]] = None
    launch_dir: Optional[_Word] = None
    closed = True

    @staticmethod
    def write_to_stdout(data: bytes) -> int:
        """Writes to this process's standard output."""
        binary = getattr(sys.stdout, "buffer", None)
        if binary is not None:
            count: int = binary.write(data)
            return count
        return sys.stdout.write(data.decode("ascii", "replace"))

    def __init__(self, pid: int, fd: int) -> None:
        self.pid = pid
        self.fd = fd
        reading = io.open(fd, "rb", buffering=0)
        writing = io.open(fd, "wb", buffering=0, closefd=False)
        self.fileobj = io.BufferedRWPair(reading, writing)
        self.terminated = False
        self.closed = False
        #: The exit code, once the child has ended by itself.
        self.exitstatus: Optional[int] = None
        #: The signal that has ended the child.
        self.signalstatus: Optional[int] = None
        #: The wait status.
        self.status: Optional[int] = None
        self.flag_eof = False
        #: Seconds for the child to end, after its terminal is closed and after each signal.
        self.delayafterclose = 0.1
        self.delayafterterminate = 0.1

    @classmethod
    def spawn(
        cls: Type[_Self],
        argv: Sequence[_Word],
        cwd: Optional[_Word] = None,
        env: Optional[Mapping[Any, Any]] = None,
        echo: bool = True,
        preexec_fn: Optional[Callable[[], object]] = None,
        dimensions: Tuple[int, int] = (24, 80),
        pass_fds: Iterable[int] = (),
    ) -> _Self:
        """Starts a program on a new terminal of `dimensions` rows and columns.

        The program is searched for along this process's PATH. It gets the descriptors 0, 1, 2 and
        `pass_fds`.

        >>> child = PtyProcess.spawn(["stty", "size"], dimensions=(30, 100))
        >>> child.readline()
        b'30 100\\r\\n'

        `preexec_fn` is called in the child and costs a fork. Raises OSError if the program cannot
        be executed.
        """
        pid, fd, words = start_process(
            argv, cwd, env, echo, preexec_fn, dimensions, tuple(pass_fds)
        )
        process = cls(pid, fd)
        process.argv = words
        if env is not None:
            process.env = env
        if cwd is not None:
            process.launch_dir = cwd
        return process

    def __repr__(self) -> str:
        kind = type(self).__name__
        if self.argv is None:
            return "%s(pid=%r, fd=%r)" % (kind, self.pid, self.fd)
        said = [repr(self.argv)]
        if self.env is not None:
            said.append("env=%r" % (self.env,))
        if self.launch_dir is not None:
            said.append("cwd=%r" % (self.launch_dir,))
        return "%s.spawn(%s)" % (kind, ", ".join(said))

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self.closed:
            # At the interpreter's end anything may be missing.
            try:
                self.close()
            except Exception:
                pass

    def fileno(self) -> int:
        """The terminal's end in this process; -1 after :meth:`close`."""
        return self.fd

    def close(self, force: bool = True) -> None:
        """Closes the terminal, which hangs up, and ends the child: with SIGHUP, SIGCONT, SIGINT
        and, if `force` is true, SIGKILL."""
        if self.closed:
            return
        self.flush()
        self.fileobj.close()
        # Closed, whatever follows: the number may be another file's from here on.
        self.fd = -1
        time.sleep(self.delayafterclose)
        if self.isalive() and not self.terminate(force):
            raise PtyProcessError(
                "process %d lives on after SIGHUP and SIGINT: close(force=True) kills it" % self.pid
            )
        self.closed = True

    def flush(self) -> None:
        """Nothing to do: a write is flushed by itself."""

    def isatty(self) -> bool:
        """Whether the descriptor is a terminal's."""
        return os.isatty(self.fd)

    def waitnoecho(self, timeout: Optional[float] = None) -> bool:
        """Waits until the terminal's echo is off, as a program switches it off that asks for a
        password. False if that takes longer than `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.getecho():
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def getecho(self) -> bool:
        """Whether the terminal shows what is typed."""
        self.echo = bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)
        return self.echo

    def setecho(self, state: bool) -> None:
        """Sets whether the terminal shows what is typed."""
        _set_echo(self.fd, state)
        self.echo = state

    def _read_by(self, read: Callable[[], bytes]) -> bytes:
        try:
            data = read()
        except OSError as error:
            # Linux: no program has the terminal open any more (drivers/tty/pty.c).
            if error.errno != errno.EIO:
                raise
            data = b""
        if not data:
            self.flag_eof = True
            raise EOFError("the terminal of process %d was closed" % self.pid)
        return data

    def read(self, size: int = 1024) -> Any:
        """Reads what is there, at most `size` bytes; waits if there is nothing.

        Raises EOFError once no program has the terminal open."""
        return self._read_by(lambda: self.fileobj.read1(size))

    def readline(self) -> Any:
        """Reads a line. Raises EOFError as :meth:`read` does."""
        return self._read_by(self.fileobj.readline)

    def _write(self, data: bytes, flush: bool = True) -> int:
        count = self.fileobj.write(data)
        if flush:
            self.fileobj.flush()
        return count

    def write(self, s: Any, flush: bool = True) -> int:
        """Types something. Returns the number of bytes."""
        return self._write(s, flush)

    def sendcontrol(self, char: str) -> Tuple[int, bytes]:
        """Types a character with Ctrl held down: ``sendcontrol("c")``. Returns what was written;
        nothing for a key that Ctrl does not change."""
        key = char.upper()
        if key == "`":
            key = "@"
        if key == "?":
            byte = b"\x7f"
        elif len(key) == 1 and "@" <= key <= "_":
            byte = bytes([ord(key) ^ 0x40])
        elif key in ("{", "|", "}", "~"):
            byte = bytes([ord(key) & 0x1F])
        else:
            return 0, b""
        return self._write(byte), byte

    def sendeof(self) -> Tuple[int, bytes]:
        """Types the end of input (Ctrl-D). It counts at the beginning of a line."""
        byte = _control_character(termios.VEOF, b"\x04")
        return self._write(byte), byte

    def sendintr(self) -> Tuple[int, bytes]:
        """Types the interrupt character (Ctrl-C)."""
        byte = _control_character(termios.VINTR, b"\x03")
        return self._write(byte), byte

    def eof(self) -> bool:
        """Whether a read has met the end."""
        return self.flag_eof

    def terminate(self, force: bool = False) -> bool:
        """Ends the child: with SIGHUP, SIGCONT, SIGINT and, if `force` is true, SIGKILL. Returns
        whether it has ended."""
        signals = [signal.SIGHUP, signal.SIGCONT, signal.SIGINT]
        if force:
            signals.append(signal.SIGKILL)
        for number in signals:
            if not self.isalive():
                return True
            self.kill(number)
            time.sleep(self.delayafterterminate)
        if force:
            # It cannot be refused, but a busy machine may need longer.
            for _ in range(100):
                if not self.isalive():
                    return True
                time.sleep(self.delayafterterminate)
        return not self.isalive()

    def wait(self) -> Optional[int]:
        """Waits for the child's end. Returns the exit code, or None if a signal has ended it.

        Output that nobody reads keeps the child from its end."""
        if not self.terminated:
            self._take(0)
        return self.exitstatus

    def isalive(self) -> bool:
        """Whether the child runs."""
        if self.terminated:
            return False
        # After the end of output the child is about to end: its status comes a moment later.
        return not self._take(0 if self.flag_eof else os.WNOHANG)

    def _take(self, options: int) -> bool:
        """Takes the child's status, if it has ended."""
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:
            raise PtyProcessError(
                # As ptyprocess begins it: programs look for these words.
                "isalive() encountered condition where process %d has no status any more: some"
                " other code has waited for it" % self.pid
            ) from None
        if pid == 0:
            return False
        self.status = status
        if os.WIFSIGNALED(status):
            self.exitstatus, self.signalstatus = None, os.WTERMSIG(status)
        else:
            self.exitstatus, self.signalstatus = os.WEXITSTATUS(status), None
        self.terminated = True
        return True

    def kill(self, sig: int) -> None:
        """Sends a signal, if the child runs."""
        if self.isalive():
            os.kill(self.pid, sig)

    def getwinsize(self) -> Tuple[int, int]:
        """The terminal's rows and columns."""
        size = fcntl.ioctl(self.fd, termios.TIOCGWINSZ, bytes(8))
        rows, columns, _, _ = struct.unpack("HHHH", size)
        return rows, columns

    def setwinsize(self, rows: int, cols: int) -> None:
        """Sets the terminal's size. The program gets SIGWINCH."""
        _set_size(self.fd, rows, cols)


class PtyProcessUnicode(PtyProcess):
    """The same for text.

    >>> with PtyProcessUnicode.spawn(["printf", "grün"]) as child:
    ...     child.read()
    'grün'
    """

    string_type = str
    linesep = os.linesep
    crlf = "\r\n"

    def __init__(
        self, pid: int, fd: int, encoding: str = "utf-8", codec_errors: str = "strict"
    ) -> None:
        super().__init__(pid, fd)
        self.encoding: str = encoding
        self.codec_errors = codec_errors
        self.decoder = codecs.getincrementaldecoder(encoding)(errors=codec_errors)

    def read(self, size: int = 1024) -> str:
        """Reads at most `size` bytes."""
        return self.decoder.decode(super().read(size))

    def readline(self) -> str:
        """Reads a line."""
        return self.decoder.decode(super().readline())

    def write(self, s: str, flush: bool = True) -> int:
        """Types a text. Returns the number of bytes."""
        return super().write(s.encode(self.encoding), flush)


def start_process(
    argv: Sequence[_Word],
    cwd: Optional[_Word],
    env: Optional[Mapping[Any, Any]],
    echo: bool,
    preexec_fn: Optional[Callable[[], object]],
    dimensions: Tuple[int, int],
    keep: Sequence[int],
) -> Tuple[int, int, List[_Word]]:
    """Starts what :meth:`PtyProcess.spawn` says. Returns the number, the terminal's end and the
    words with the program's path."""
    if not isinstance(argv, (list, tuple)):
        raise TypeError("argv is a list or tuple, not %r" % (argv,))
    words: List[Any] = list(argv)
    program = shutil.which(words[0])
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
    words[0] = program
    encoded = [os.fsencode(word) for word in words]
    if preexec_fn is not None:
        pid, fd = _start_with_preexec(encoded, preexec_fn, env, cwd, keep, dimensions, echo)
        return pid, fd, words
    variables = None
    if env is not None:
        variables = [os.fsencode(name) + b"=" + os.fsencode(env[name]) for name in env]
    try:
        pid, fd = _start(
            encoded,
            [encoded[0]],
            env=variables,
            cwd=None if cwd is None else os.fsencode(cwd),
            close_fds=True,
            keep=keep,
            dimensions=dimensions,
            echo=echo,
        )
    except StepError as error:
        thing = cwd if error.step == "chdir" else words[0]
        raise OSError(error.errno, os.strerror(error.errno), thing) from None
    return pid, fd, words


def _control_character(which: int, usual: bytes) -> bytes:
    """What this process's terminal has for a control character."""
    for stream in (sys.__stdin__, sys.__stdout__):
        try:
            character = termios.tcgetattr(stream.fileno())[6][which]  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError, termios.error):
            continue
        if isinstance(character, bytes):
            return character
    return usual
