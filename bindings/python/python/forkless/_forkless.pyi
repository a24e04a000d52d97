"""The native half: it carries out what it is told. Use the Python modules beside it.

It keeps no Python object, so that each subinterpreter can load it. Its answers are tuples, numbers
and capsules; `_native` and `_shell` make classes of them.
"""

from collections.abc import Sequence
from typing import Any, Literal, Optional, Union

# A start that has failed: the step's name, the thing, the errno, the number that its child had.
_Failed = tuple[str, Optional[str], int, Optional[int]]

def spawn(
    argv: Sequence[bytes],
    executables: Sequence[bytes],
    env: Optional[Sequence[bytes]],
    cwd: Optional[bytes],
    fds: Sequence[tuple[int, int]],
    close_fds: bool,
    keep: Sequence[int],
    restore_signals: bool,
    setsid: bool,
    process_group: int = -1,
    gid: Optional[int] = None,
    groups: Optional[Sequence[int]] = None,
    uid: Optional[int] = None,
    umask: int = -1,
    rlimits: Optional[Sequence[tuple[int, int, int]]] = None,
    pdeathsig: int = 0,
    no_new_privs: bool = False,
    cgroup: Optional[bytes] = None,
    nice: Optional[int] = None,
    affinity: Optional[Sequence[int]] = None,
    scheduler: Optional[tuple[int, int]] = None,
    setctty: int = -1,
    blocking: bool = True,
    owner: Optional[object] = None,
    keep_pidfd: bool = True,
) -> tuple[Any, ...]:
    """Starts a child: `(pid, pidfd, exec_fd, owned)`, or what `_Failed` has of a failed start.

    `owned` is a capsule that closes the two descriptors when it is dropped; None where there is
    none. -1 stands for a descriptor that is not there."""

def builtin(of: object, name: str, doc: str, module: str) -> Any:
    """A builtin function that calls `of.called`; `of` is its `__self__`."""

def executed(owned: object) -> Union[None, Literal[True], _Failed]:
    """Whether a start that did not wait has executed its program; None while that is not known."""

def detach_pidfd(owned: object) -> None:
    """From here on the caller closes the pidfd."""

def reaches_group(pidfd: int) -> bool:
    """Whether a signal to the process group of a pidfd's process reaches somebody."""

def close_exec_fd(owned: object) -> None:
    """Closes the descriptor that shows the exec."""

def shell_start(
    line: bytes,
    env: Optional[list[bytes]],
    cwd: Optional[bytes],
    stdin: int,
    stdout: int,
    stderr: int,
    close_fds: bool,
    restore_signals: bool,
    reads_stdout: bool,
    reads_stderr: bool,
    owner: Optional[object],
) -> Optional[tuple[int, Optional[int], object]]:
    """Starts a line of one program that needs no shell: its pid, the number of the output that gets
    the shell's words from the caller, and its end; else None."""

def shell_end(end: object, status: int) -> int:
    """The wait status that the line's shell would have had for the program's."""

def shell_message(end: object, status: int) -> Optional[str]:
    """The shell's words about a program that ended with this status."""

def drain(first: int, second: int, into_first: list[bytes], into_second: list[bytes]) -> None:
    """Reads two pipes to their ends, and appends what they give."""

def shell_system(line: bytes) -> int:
    """system(3): runs a line; its wait status, or -1."""
