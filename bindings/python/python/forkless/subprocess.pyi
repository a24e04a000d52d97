# What a type checker sees of subprocess.py, whose names are the running version's.
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from subprocess import (
    DEVNULL as DEVNULL,
    PIPE as PIPE,
    STDOUT as STDOUT,
    CalledProcessError as CalledProcessError,
    CompletedProcess as CompletedProcess,
    SubprocessError as SubprocessError,
    TimeoutExpired as TimeoutExpired,
    getoutput as getoutput,
    getstatusoutput as getstatusoutput,
    list2cmdline as list2cmdline,
)
from subprocess import Popen as _StandardPopen
from typing import IO, Any, AnyStr, Literal, Optional, Protocol, TypedDict, Union, overload

from typing_extensions import TypeAlias, Unpack

from ._native import Child, StepError

__all__ = [
    "Popen",
    "PIPE",
    "STDOUT",
    "call",
    "check_call",
    "getstatusoutput",
    "getoutput",
    "check_output",
    "run",
    "CalledProcessError",
    "DEVNULL",
    "SubprocessError",
    "TimeoutExpired",
    "CompletedProcess",
]

class _PathLikeStr(Protocol):
    def __fspath__(self) -> str: ...

class _PathLikeBytes(Protocol):
    def __fspath__(self) -> bytes: ...

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

_Path: TypeAlias = Union[str, bytes, _PathLikeStr, _PathLikeBytes]
_Command: TypeAlias = Union[_Path, Sequence[_Path]]
_File: TypeAlias = Union[None, int, IO[Any]]
_Environment: TypeAlias = Union[Mapping[str, _Path], Mapping[bytes, _Path]]

class _WithoutPipes(TypedDict, total=False):
    bufsize: int
    executable: Optional[_Path]
    preexec_fn: Optional[Callable[[], Any]]
    close_fds: bool
    shell: bool
    cwd: Optional[_Path]
    env: Optional[_Environment]
    startupinfo: None
    creationflags: Literal[0]
    restore_signals: bool
    start_new_session: bool
    pass_fds: Collection[int]
    user: Union[None, str, int]
    group: Union[None, str, int]
    extra_groups: Optional[Iterable[Union[str, int]]]
    umask: int
    pipesize: int
    process_group: Optional[int]
    # Those of forkless.
    rlimits: Optional[Mapping[int, Union[int, tuple[int, int]]]]
    pdeathsig: Optional[int]
    no_new_privs: Optional[bool]
    cgroup: Optional[_Path]
    nice: Optional[int]
    affinity: Optional[Iterable[int]]
    scheduler: Union[None, int, tuple[int, int]]
    setctty: Union[None, bool, int]
    fds: Optional[Mapping[int, Union[None, int, _HasFileno]]]
    deadline: Optional[float]
    kill_group: Optional[bool]

class _Options(_WithoutPipes, total=False):
    stdin: _File
    stdout: _File
    stderr: _File

class _Run(_Options, total=False):
    capture_output: bool
    check: bool
    timeout: Optional[float]

class _CheckOutput(_WithoutPipes, total=False):
    stdin: _File
    stderr: _File
    timeout: Optional[float]

class Popen(_StandardPopen[AnyStr]):
    @overload
    def __init__(
        self: Popen[str],
        args: _Command,
        *,
        text: Literal[True],
        universal_newlines: Optional[bool] = None,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[str],
        args: _Command,
        *,
        encoding: str,
        text: Optional[bool] = None,
        universal_newlines: Optional[bool] = None,
        errors: Optional[str] = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[str],
        args: _Command,
        *,
        errors: str,
        text: Optional[bool] = None,
        universal_newlines: Optional[bool] = None,
        encoding: Optional[str] = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[str],
        args: _Command,
        *,
        universal_newlines: Literal[True],
        text: Optional[bool] = None,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[bytes],
        args: _Command,
        *,
        text: Literal[False, None] = None,
        universal_newlines: Literal[False, None] = None,
        encoding: None = None,
        errors: None = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[Any],
        args: _Command,
        *,
        text: Optional[bool] = None,
        universal_newlines: Optional[bool] = None,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        **options: Unpack[_Options],
    ) -> None: ...

    # For the event loops of this package.
    _blocking: bool
    _child: Optional[Child]
    _deadline: Optional[float]
    _child_created: bool
    def _start_exception(self, error: StepError) -> Exception: ...
    def _kill_all(self) -> None: ...
    def _handle_exitstatus(self, sts: int, *rest: Any) -> None: ...

def call(args: _Command, *, timeout: Optional[float] = None, **options: Unpack[_Options]) -> int: ...
def check_call(
    args: _Command, *, timeout: Optional[float] = None, **options: Unpack[_Options]
) -> int: ...
@overload
def run(
    args: _Command,
    *,
    text: Literal[True],
    input: Optional[str] = None,
    universal_newlines: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[str]: ...
@overload
def run(
    args: _Command,
    *,
    encoding: str,
    input: Optional[str] = None,
    text: Optional[bool] = None,
    universal_newlines: Optional[bool] = None,
    errors: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[str]: ...
@overload
def run(
    args: _Command,
    *,
    errors: str,
    input: Optional[str] = None,
    text: Optional[bool] = None,
    universal_newlines: Optional[bool] = None,
    encoding: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[str]: ...
@overload
def run(
    args: _Command,
    *,
    universal_newlines: Literal[True],
    input: Optional[str] = None,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[str]: ...
@overload
def run(
    args: _Command,
    *,
    input: Union[None, bytes, bytearray, memoryview] = None,
    text: Literal[False, None] = None,
    universal_newlines: Literal[False, None] = None,
    encoding: None = None,
    errors: None = None,
    **options: Unpack[_Run],
) -> CompletedProcess[bytes]: ...
@overload
def run(
    args: _Command,
    *,
    input: Any = None,
    text: Optional[bool] = None,
    universal_newlines: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[Any]: ...
@overload
def check_output(
    args: _Command,
    *,
    text: Literal[True],
    input: Optional[str] = None,
    universal_newlines: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_CheckOutput],
) -> str: ...
@overload
def check_output(
    args: _Command,
    *,
    encoding: str,
    input: Optional[str] = None,
    text: Optional[bool] = None,
    universal_newlines: Optional[bool] = None,
    errors: Optional[str] = None,
    **options: Unpack[_CheckOutput],
) -> str: ...
@overload
def check_output(
    args: _Command,
    *,
    universal_newlines: Literal[True],
    input: Optional[str] = None,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_CheckOutput],
) -> str: ...
@overload
def check_output(
    args: _Command,
    *,
    input: Union[None, bytes, bytearray, memoryview] = None,
    text: Literal[False, None] = None,
    universal_newlines: Literal[False, None] = None,
    encoding: None = None,
    errors: None = None,
    **options: Unpack[_CheckOutput],
) -> bytes: ...
@overload
def check_output(
    args: _Command,
    *,
    input: Any = None,
    text: Optional[bool] = None,
    universal_newlines: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_CheckOutput],
) -> Any: ...
def _fork_exec_is_patched() -> bool: ...
def _patches() -> list[tuple[object, str, object]]: ...
