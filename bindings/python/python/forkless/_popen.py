"""`popen`: that of `os`, on a `Popen` that does without a shell where that is the same."""

from __future__ import annotations

import os

from .subprocess import PIPE, Popen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["popen"]


def popen(cmd: str, mode: str = "r", buffering: int = -1) -> os._wrap_close:
    """`os.popen`: a stream from a line, or with mode "w" to it. Its `close` waits for the line, and
    returns the status, or None for 0.

    >>> with popen("printf 'a\\\\nb\\\\n' | sort -r") as stream:
    ...     stream.read()
    'b\\na\\n'
    """
    if not isinstance(cmd, str):
        raise TypeError("invalid cmd type (%s, expected string)" % type(cmd))
    if mode not in ("r", "w"):
        raise ValueError("invalid mode %r" % mode)
    if buffering == 0 or buffering is None:
        raise ValueError("popen() does not support unbuffered streams")
    reads = mode == "r"
    process = Popen(
        cmd,
        shell=True,
        text=True,
        stdin=None if reads else PIPE,
        stdout=PIPE if reads else None,
        bufsize=buffering,
    )
    stream: Any = process.stdout if reads else process.stdin
    return os._wrap_close(stream, process)
