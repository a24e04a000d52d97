"""The command `forkless`, which the wheel brings along: where it is, and a run of it for a result.

It is a native program in the directory of the environment's commands, with the library that
``forkless run`` preloads in ``lib`` beside that directory. Nothing of Python runs in it.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
from typing import Any, List, Optional, Sequence, Tuple

__all__ = ["CommandError", "path", "read_json"]

# Exit codes of the command: a finding or a regression is a result.
_FINDING = 1


class CommandError(RuntimeError):
    """The command ended without a result. The text is the command's own line.

    `returncode` is its exit code: 2 for wrong options, 3 where memory, a privilege or a facility is
    missing, 1 for another failure.
    """

    def __init__(self, text: str, returncode: int) -> None:
        super().__init__(text)
        self.returncode = returncode


def path() -> str:
    """The command's file.

    Raises FileNotFoundError where there is none: a package built from the source distribution has
    no command.

    >>> from forkless import _command
    >>> import os
    >>> os.path.basename(_command.path())
    'forkless'
    """
    for file in _candidates():
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return os.path.realpath(file)
    raise FileNotFoundError(
        "the command forkless is neither in this environment nor on PATH: install the wheel"
        " (a package built from source has no command)"
    )


def _candidates() -> List[str]:
    found: List[str] = []
    # Where the installer says that it has put it.
    from importlib import metadata

    try:
        recorded = metadata.files("forkless") or []
    except metadata.PackageNotFoundError:
        recorded = []
    for file in recorded:
        if file.name == "forkless" and file.parent.name == "bin":
            found.append(str(file.locate()))
    import sysconfig

    found.append(os.path.join(sysconfig.get_path("scripts"), "forkless"))
    # pip install --target DIRECTORY
    package = os.path.dirname(os.path.abspath(__file__))
    found.append(os.path.join(os.path.dirname(package), "bin", "forkless"))
    import shutil

    on_path = shutil.which("forkless")
    if on_path is not None:
        found.append(on_path)
    return found


def read_json(before: Sequence[str], output: str, after: Sequence[str], **more: Any) -> Any:
    """Runs the command for the JSON that it writes into a file; see :class:`Run`.

    An interrupt (Ctrl-C, or a notebook's stop button) ends the command as Ctrl-C ends it at a
    terminal, so that what it has changed is put back. If it has a result all the same, that is
    returned; otherwise KeyboardInterrupt goes on.
    """
    with Run(before, output, after, **more) as run:
        try:
            run.wait()
        except KeyboardInterrupt:
            run.stop()
            if not run.has_result():
                raise
        return run.result()


class Run:
    """One run of the command, which writes JSON into a file of this object's.

    Between the words `before` and `after` stands the option `output` with that file. Further
    keyword arguments are Popen's.
    """

    def __init__(
        self, before: Sequence[str], output: str, after: Sequence[str], **more: Any
    ) -> None:
        from . import subprocess

        command = path()
        self._directory = tempfile.TemporaryDirectory(prefix="forkless-")
        self._file = os.path.join(self._directory.name, "result.json")
        self._said = open(os.path.join(self._directory.name, "said"), "w+b")
        try:
            self._process = subprocess.Popen(
                [command, *before, output, self._file, *after],
                stdin=subprocess.DEVNULL,
                stderr=self._said,
                **more,
            )
        except BaseException:
            self._clean()
            raise

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._process.poll() is None:
                self.stop()
        finally:
            self._clean()

    def _clean(self) -> None:
        self._said.close()
        self._directory.cleanup()

    def wait(self) -> None:
        """Until the command has ended."""
        self._process.wait()

    def has_ended(self) -> bool:
        """Whether the command has ended. It is reaped then."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Interrupts the command, and waits until it has put back what it changed."""
        self._process.send_signal(signal.SIGINT)
        while True:
            try:
                self._process.wait()
                return
            except KeyboardInterrupt:
                # Once is enough for the command; a killed one would put nothing back.
                continue

    def said(self) -> str:
        """What the command has written to its standard error so far."""
        # Not by read(): the command writes at the offset that both share.
        length = os.fstat(self._said.fileno()).st_size
        return os.pread(self._said.fileno(), length, 0).decode("utf-8", "replace")

    def has_result(self) -> bool:
        """Whether the command, which has ended, left a result."""
        try:
            return os.path.getsize(self._file) > 0
        except OSError:
            return False

    def result(self, quiet: bool = False) -> Any:
        """What the command, which has ended, has written. Raises CommandError where it failed.

        Its notes, such as what could not be measured, go to standard error unless `quiet`.
        """
        code: int = self._process.returncode
        text = self.said().strip()
        if code not in (0, _FINDING) or not self.has_result():
            raise CommandError(_line(text, code), code)
        if text and not quiet:
            print(text, file=sys.stderr)
        import json

        with open(self._file, encoding="utf-8") as file:
            return json.load(file)


def _line(text: str, code: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return "forkless: ended with exit code %d and said nothing" % code
    for number, line in enumerate(lines):
        if line.startswith(("forkless:", "error:")):
            # What is missing stands in lines of its own behind it.
            behind = itertools.takewhile(lambda line: line[:1] == " ", lines[number + 1 :])
            things = ", ".join(map(str.strip, behind)) if line.endswith(":") else ""
            return "%s %s" % (line, things) if things else line
    return lines[-1]


def options(given: Sequence[Tuple[str, Any]]) -> List[str]:
    """Keyword arguments as options of the command: None and False are left out, True has no value,
    and a list is joined with commas.

    >>> from forkless import _command
    >>> _command.options([("rss", "1G"), ("threads", [1, 8]), ("quick", True), ("pin", None)])
    ['--rss=1G', '--threads=1,8', '--quick']
    """
    words: List[str] = []
    for name, value in given:
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple, set, frozenset)):
            words.append("%s=%s" % (option, ",".join(map(str, value))))
        else:
            words.append("%s=%s" % (option, value))
    return words


def version() -> Optional[str]:
    """The command's version, or None where there is no command."""
    from . import subprocess

    try:
        said: str = subprocess.check_output([path(), "--version"], text=True)
    except FileNotFoundError:
        return None
    return said.split()[-1]
