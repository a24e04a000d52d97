# What a type checker sees of subprocess.py, whose names are the running version's.
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from subprocess import (
    _CMD as _CMD,
    _ENV as _ENV,
    _FILE as _FILE,
    _USE_POSIX_SPAWN as _USE_POSIX_SPAWN,
    DEVNULL as DEVNULL,
    PIPE as PIPE,
    STDOUT as STDOUT,
    CalledProcessError as CalledProcessError,
    CompletedProcess as CompletedProcess,
    SubprocessError as SubprocessError,
    TimeoutExpired as TimeoutExpired,
    _InputString as _InputString,
    getoutput as getoutput,
    getstatusoutput as getstatusoutput,
    list2cmdline as list2cmdline,
)
from subprocess import Popen as _StandardPopen
from typing import Any, AnyStr, Literal, Optional, Protocol, TypedDict, Union, overload

from _typeshed import ReadableBuffer, StrOrBytesPath
from typing_extensions import Unpack

from ._native import Child, StepError

if sys.version_info >= (3, 11):
    from subprocess import _USE_VFORK as _USE_VFORK

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

class _HasFileno(Protocol):
    def fileno(self) -> int: ...

# By keyword alone.
class _Options(TypedDict, total=False):
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
    cgroup: Optional[StrOrBytesPath]
    nice: Optional[int]
    affinity: Optional[Iterable[int]]
    scheduler: Union[None, int, tuple[int, int]]
    setctty: Union[None, bool, int]
    fds: Optional[Mapping[int, Union[None, int, _HasFileno]]]
    deadline: Optional[float]
    kill_group: Optional[bool]

class _Run(_Options, total=False):
    capture_output: bool
    check: bool
    timeout: Optional[float]

class _CheckOutput(_Options, total=False):
    timeout: Optional[float]

class Popen(_StandardPopen[AnyStr]):
    @overload
    def __init__(
        self: Popen[str],
        args: _CMD,
        bufsize: int = -1,
        executable: Optional[StrOrBytesPath] = None,
        stdin: _FILE = None,
        stdout: _FILE = None,
        stderr: _FILE = None,
        preexec_fn: Optional[Callable[[], object]] = None,
        close_fds: bool = True,
        shell: bool = False,
        cwd: Optional[StrOrBytesPath] = None,
        env: Optional[_ENV] = None,
        universal_newlines: Optional[Literal[True]] = None,
        startupinfo: Any = None,
        creationflags: int = 0,
        restore_signals: bool = True,
        start_new_session: bool = False,
        pass_fds: Collection[int] = (),
        *,
        text: Literal[True],
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[str],
        args: _CMD,
        bufsize: int = -1,
        executable: Optional[StrOrBytesPath] = None,
        stdin: _FILE = None,
        stdout: _FILE = None,
        stderr: _FILE = None,
        preexec_fn: Optional[Callable[[], object]] = None,
        close_fds: bool = True,
        shell: bool = False,
        cwd: Optional[StrOrBytesPath] = None,
        env: Optional[_ENV] = None,
        universal_newlines: Optional[bool] = None,
        startupinfo: Any = None,
        creationflags: int = 0,
        restore_signals: bool = True,
        start_new_session: bool = False,
        pass_fds: Collection[int] = (),
        *,
        text: Optional[bool] = None,
        encoding: str,
        errors: Optional[str] = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[str],
        args: _CMD,
        bufsize: int = -1,
        executable: Optional[StrOrBytesPath] = None,
        stdin: _FILE = None,
        stdout: _FILE = None,
        stderr: _FILE = None,
        preexec_fn: Optional[Callable[[], object]] = None,
        close_fds: bool = True,
        shell: bool = False,
        cwd: Optional[StrOrBytesPath] = None,
        env: Optional[_ENV] = None,
        universal_newlines: Optional[bool] = None,
        startupinfo: Any = None,
        creationflags: int = 0,
        restore_signals: bool = True,
        start_new_session: bool = False,
        pass_fds: Collection[int] = (),
        *,
        text: Optional[bool] = None,
        encoding: Optional[str] = None,
        errors: str,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[str],
        args: _CMD,
        bufsize: int = -1,
        executable: Optional[StrOrBytesPath] = None,
        stdin: _FILE = None,
        stdout: _FILE = None,
        stderr: _FILE = None,
        preexec_fn: Optional[Callable[[], object]] = None,
        close_fds: bool = True,
        shell: bool = False,
        cwd: Optional[StrOrBytesPath] = None,
        env: Optional[_ENV] = None,
        *,
        universal_newlines: Literal[True],
        startupinfo: Any = None,
        creationflags: int = 0,
        restore_signals: bool = True,
        start_new_session: bool = False,
        pass_fds: Collection[int] = (),
        text: Optional[Literal[True]] = None,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[bytes],
        args: _CMD,
        bufsize: int = -1,
        executable: Optional[StrOrBytesPath] = None,
        stdin: _FILE = None,
        stdout: _FILE = None,
        stderr: _FILE = None,
        preexec_fn: Optional[Callable[[], object]] = None,
        close_fds: bool = True,
        shell: bool = False,
        cwd: Optional[StrOrBytesPath] = None,
        env: Optional[_ENV] = None,
        universal_newlines: Optional[Literal[False]] = None,
        startupinfo: Any = None,
        creationflags: int = 0,
        restore_signals: bool = True,
        start_new_session: bool = False,
        pass_fds: Collection[int] = (),
        *,
        text: Optional[Literal[False]] = None,
        encoding: None = None,
        errors: None = None,
        **options: Unpack[_Options],
    ) -> None: ...
    @overload
    def __init__(
        self: Popen[Any],
        args: _CMD,
        bufsize: int = -1,
        executable: Optional[StrOrBytesPath] = None,
        stdin: _FILE = None,
        stdout: _FILE = None,
        stderr: _FILE = None,
        preexec_fn: Optional[Callable[[], object]] = None,
        close_fds: bool = True,
        shell: bool = False,
        cwd: Optional[StrOrBytesPath] = None,
        env: Optional[_ENV] = None,
        universal_newlines: Optional[bool] = None,
        startupinfo: Any = None,
        creationflags: int = 0,
        restore_signals: bool = True,
        start_new_session: bool = False,
        pass_fds: Collection[int] = (),
        *,
        text: Optional[bool] = None,
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

def call(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stdout: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[bool] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    timeout: Optional[float] = None,
    **options: Unpack[_Options],
) -> int: ...
def check_call(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stdout: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[bool] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    timeout: Optional[float] = None,
    **options: Unpack[_Options],
) -> int: ...
@overload
def run(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stdout: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[Literal[True]] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[str] = None,
    text: Literal[True],
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[str]: ...
@overload
def run(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stdout: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[bool] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[str] = None,
    text: Optional[bool] = None,
    encoding: str,
    errors: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[str]: ...
@overload
def run(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stdout: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[bool] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[str] = None,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: str,
    **options: Unpack[_Run],
) -> CompletedProcess[str]: ...
@overload
def run(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stdout: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    *,
    universal_newlines: Literal[True],
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    input: Optional[str] = None,
    text: Optional[Literal[True]] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[str]: ...
@overload
def run(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stdout: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[Literal[False]] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[ReadableBuffer] = None,
    text: Optional[Literal[False]] = None,
    encoding: None = None,
    errors: None = None,
    **options: Unpack[_Run],
) -> CompletedProcess[bytes]: ...
@overload
def run(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stdout: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[bool] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[_InputString] = None,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_Run],
) -> CompletedProcess[Any]: ...
@overload
def check_output(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[Literal[True]] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[_InputString] = None,
    text: Literal[True],
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_CheckOutput],
) -> str: ...
@overload
def check_output(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[bool] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[_InputString] = None,
    text: Optional[bool] = None,
    encoding: str,
    errors: Optional[str] = None,
    **options: Unpack[_CheckOutput],
) -> str: ...
@overload
def check_output(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[bool] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[_InputString] = None,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: str,
    **options: Unpack[_CheckOutput],
) -> str: ...
@overload
def check_output(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    *,
    universal_newlines: Literal[True],
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    input: Optional[_InputString] = None,
    text: Optional[Literal[True]] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_CheckOutput],
) -> str: ...
@overload
def check_output(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[Literal[False]] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[_InputString] = None,
    text: Optional[Literal[False]] = None,
    encoding: None = None,
    errors: None = None,
    **options: Unpack[_CheckOutput],
) -> bytes: ...
@overload
def check_output(
    args: _CMD,
    bufsize: int = -1,
    executable: Optional[StrOrBytesPath] = None,
    stdin: _FILE = None,
    stderr: _FILE = None,
    preexec_fn: Optional[Callable[[], object]] = None,
    close_fds: bool = True,
    shell: bool = False,
    cwd: Optional[StrOrBytesPath] = None,
    env: Optional[_ENV] = None,
    universal_newlines: Optional[bool] = None,
    startupinfo: Any = None,
    creationflags: int = 0,
    restore_signals: bool = True,
    start_new_session: bool = False,
    pass_fds: Collection[int] = (),
    *,
    input: Optional[_InputString] = None,
    text: Optional[bool] = None,
    encoding: Optional[str] = None,
    errors: Optional[str] = None,
    **options: Unpack[_CheckOutput],
) -> Any: ...
def _fork_exec_is_patched() -> bool: ...
def _patches() -> list[tuple[object, str, object]]: ...
