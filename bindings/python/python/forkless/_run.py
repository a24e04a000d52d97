"""``python -m forkless``: runs a program with :func:`forkless.install`, without a change to it."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import sys
import warnings
from importlib.machinery import BuiltinImporter
from types import CodeType, TracebackType
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

__all__ = ["main"]

_USAGE = """\
usage: python -m forkless [-x] [-m MODULE | -c CODE | SCRIPT | -] [ARGUMENT ...]

Runs a Python program whose subprocess, asyncio, os and multiprocessing start children without fork.
FORKLESS=off in the environment runs it as it is.
"""


def main(arguments: List[str]) -> None:
    """Runs what the arguments name as `__main__`, as the interpreter would.

    >>> import subprocess
    >>> line = [sys.executable, "-m", "forkless", "-c", "import sys; print(sys.argv)", "a"]
    >>> subprocess.run(line, capture_output=True, text=True).stdout
    "['-c', 'a']\\n"
    """
    if arguments[:1] in (["-h"], ["--help"]):
        sys.stdout.write(_USAGE)
        sys.exit(0)
    skips = "-x" in arguments[:1] or _interpreter_skips()
    if "-x" in arguments[:1]:
        arguments = arguments[1:]
    if arguments and arguments[0][:2] in ("-c", "-m") and len(arguments[0]) > 2:
        # As the interpreter takes them: -cCODE, -mMODULE.
        arguments = [arguments[0][:2], arguments[0][2:], *arguments[1:]]
    # The name of a script may be empty: the interpreter takes the current directory then.
    chosen = arguments[0] if arguments else "-?"
    if chosen.startswith("-") and chosen not in ("-m", "-c", "-"):
        sys.stderr.write(_USAGE)
        sys.exit(2)
    if chosen in ("-m", "-c") and len(arguments) < 2:
        sys.stderr.write("%s needs an argument: python -m forkless --help\n" % chosen)
        sys.exit(2)

    from ._install import install

    install()
    try:
        if chosen == "-m":
            _run_module(arguments[1], arguments[2:])
        elif chosen == "-c":
            sys.argv[:] = ["-c", *arguments[2:]]
            _set_first_path("")
            code = compile(arguments[1], "<string>", "exec", dont_inherit=True)
            _register_lines(code, arguments[1])
            _execute(code, {"__loader__": BuiltinImporter})
        elif chosen == "-":
            sys.argv[:] = arguments
            _set_first_path("")
            code = compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True)
            own = {"__file__": "<stdin>", "__cached__": None, "__loader__": BuiltinImporter}
            _execute_file(code, own)
        else:
            _run_script(chosen, arguments[1:], skips)
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook = _without_own_frames(sys.excepthook)
        raise


def _interpreter_skips() -> bool:
    """Whether the interpreter itself was told to skip a script's first line: ``python -x -m``."""
    words = _command_line()
    return any(words[word][letter] == "x" for word, letter in _interpreter_options(words))


def _interpreter_options(words: List[str]) -> Iterator[Tuple[int, int]]:
    """Where the interpreter's options are, up to -c or -m: the word, and the letter in it."""
    word = 1
    while word < len(words):
        # Behind --check-hash-based-pycs, and that alone, is an argument.
        if words[word].startswith("-") and not words[word].startswith("--"):
            for letter in range(1, len(words[word])):
                yield word, letter
                if words[word][letter] in "cm":
                    return
                if words[word][letter] in "WX":
                    if letter + 1 == len(words[word]):
                        word += 1
                    break
        word += 1


def _plain_command() -> Optional[List[str]]:
    """This process's command without ``-m forkless``; None where another way has led here."""
    words = _command_line()
    for word, letter in _interpreter_options(words):
        if words[word][letter] == "m":
            before, joined = words[1:word], words[word][letter + 1 :]
            if letter > 1:
                before.append(words[word][:letter])
            behind = [joined] * (joined != "") + words[word + 1 :]
            if behind[:1] == [__package__]:
                return [sys.executable, *before, *behind[1:]]
    return None


def _let_the_interpreter_tell(file: str) -> None:
    """Executes the interpreter without this module, for a script that cannot be compiled.

    It reads a script line by line, and compile() reads it whole: their errors differ in text and
    line, in each version otherwise. Nothing of the program has run yet.
    """
    command = _plain_command()
    # Another file may not be read twice.
    if command is None or not sys.executable or not os.path.isfile(file):
        return
    for option in sys.warnoptions:
        # Of an unknown one this interpreter has told already.
        action = option.split(":")[0].strip()
        if not any(known.startswith(action) for known in _WARNING_ACTIONS):
            return
    with contextlib.suppress(OSError):
        os.execv(sys.executable, command)


#: Of -W, see the module `warnings`.
_WARNING_ACTIONS = ("default", "always", "ignore", "module", "once", "error", "all")


def _register_lines(code: CodeType, text: str) -> None:
    """From 3.13 on tracebacks show the lines of -c (pythonrun.c, _PyRun_StringFlagsWithName)."""
    if sys.version_info < (3, 13):
        return
    import linecache

    # A name of its own in 3.13.0, a code object later.
    key: Any = code if hasattr(linecache, "_interactive_cache") else code.co_filename
    # Without it a traceback has the lines' numbers alone.
    register = getattr(linecache, "_register_code", None)
    if register is not None:
        with contextlib.suppress(AttributeError, TypeError):
            register(key, text, code.co_filename)


def _command_line() -> List[str]:
    if sys.version_info >= (3, 10):
        return sys.orig_argv
    with contextlib.suppress(OSError), open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")]
    return []


def _without_own_frames(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The program's hook, given a traceback that begins where the program does."""

    def shown(kind: Any, value: Any, traceback: Optional[TracebackType]) -> None:
        own, entry = None, traceback
        while entry is not None:
            if entry.tb_frame.f_code.co_filename == __file__:
                own = entry
            entry = entry.tb_next
        if own is not None:
            # None where the program could not be compiled.
            traceback = own.tb_next
            value = value.with_traceback(traceback)
        hook(kind, value, traceback)

    return shown


def _clean() -> Dict[str, Any]:
    """The namespace of `__main__`, without what python -m forkless has put there."""
    names = vars(sys.modules["__main__"])
    names.clear()
    names.update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=None,
        __spec__=None,
    )
    # From 3.14 on a module's annotations are made when they are asked for.
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    names["__builtins__"] = builtins
    return names


def _execute(code: CodeType, own: Dict[str, Any]) -> None:
    names = _clean()
    names.update(own)
    exec(code, names)


def _execute_file(code: CodeType, own: Dict[str, Any]) -> None:
    """As `_execute`. Behind a file, but not behind -c or -m, the interpreter flushes both streams
    before it tells of an error (`flush_io` of Python/pythonrun.c)."""
    try:
        _execute(code, own)
    finally:
        for stream in ("stderr", "stdout"):
            # As there, whatever goes wrong is not told.
            with contextlib.suppress(BaseException):
                vars(sys)[stream].flush()


def _set_first_path(entry: str) -> None:
    """Replaces the directory that `python -m` has put in front of the path, if it has one."""
    if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        sys.path[0] = entry


def _run_module(name: str, arguments: List[str]) -> None:
    import runpy

    # The interpreter's own way for -m.
    sys.argv[:] = ["-m", *arguments]
    _clean()
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]


def _run_script(path: str, arguments: List[str], skips: bool) -> None:
    from pkgutil import get_importer

    sys.argv[:] = [path, *arguments]
    # The interpreter makes it absolute in all but sys.argv.
    file = os.path.join(os.getcwd(), path)
    if path in ("", ".") and sys.version_info >= (3, 11):
        file = os.getcwd()
    if get_importer(file) is not None:
        # A directory or zip file with a __main__.py.
        import runpy

        if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, file)
        else:
            sys.path[0] = file
        _clean()
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    try:
        code = _read(file, skips)
    except OSError as error:
        # The interpreter names itself as it was called.
        name = (_command_line() or [sys.executable])[0]
        text = "%s: can't open file %r: [Errno %s] %s"
        sys.stderr.write(text % (name, file, error.errno, error.strerror) + "\n")
        sys.exit(2)
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    _execute_file(code, {"__file__": file, "__cached__": None, "__loader__": _loader(file)})


def _read(file: str, skips: bool) -> CodeType:
    from importlib.util import MAGIC_NUMBER

    # Once: it may be a pipe (/dev/stdin, or a shell's <(...)).
    with io.open_code(file) as opened:
        data = opened.read()
    if skips:
        # Its end stays, and so do the numbers of the lines.
        end = data.find(b"\n")
        data = b"" if end == -1 else data[end:]
    if data.startswith(MAGIC_NUMBER):
        import marshal

        # Behind a header of 16 bytes (PEP 552).
        code: CodeType = marshal.loads(data[16:])
        return code
    # Of an invalid escape, say: the interpreter that tells of an error tells of this, too.
    with warnings.catch_warnings(record=True) as told:
        try:
            code = compile(data, file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            _let_the_interpreter_tell(file)
            raise
    for warning in told:
        _show(warning)
    return code


def _show(told: warnings.WarningMessage) -> None:
    warnings.showwarning(
        told.message, told.category, told.filename, told.lineno, told.file, told.line
    )


def _loader(file: str) -> object:
    from importlib.machinery import SourceFileLoader, SourcelessFileLoader

    kind = SourcelessFileLoader if file.endswith(".pyc") else SourceFileLoader
    return kind("__main__", file)
