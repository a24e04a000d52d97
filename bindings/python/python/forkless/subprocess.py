"""The standard module `subprocess`, without fork.

All names, behaviour, exceptions and messages are those of the running version's own module. The
exceptions and `CompletedProcess` are the very same classes, and `Popen` is a subclass of the
standard one. Only the start of a child is different: forkless creates it in this process's memory,
with the interpreter's lock released, at a cost that does not grow with that memory.

>>> import resource
>>> from forkless import subprocess
>>> subprocess.run(["sh", "-c", "ulimit -n; umask"], rlimits={resource.RLIMIT_NOFILE: 99},
...                umask=0o27, capture_output=True, text=True).stdout.split()
['99', '0027']

`Popen`, and with it `run`, `call`, `check_call` and `check_output`, take more keyword arguments:

==================  ================================================================================
`rlimits`           ``{resource.RLIMIT_CPU: (soft, hard), ...}``, or one number for both; set before
                    the user changes
`pdeathsig`         the signal that the child gets when this process (not thread) ends
`no_new_privs`      no program that the child executes gains privileges
`cgroup`            directory of the cgroup that the child is born in
`nice`              nice value, -20 to 19, absolute
`affinity`          the CPUs that the child may run on
`scheduler`         ``os.SCHED_BATCH``, or with a priority ``(os.SCHED_FIFO, 10)``
`setctty`           the child's number of the terminal that becomes its controlling one; True for 0;
                    makes a new session
`fds`               ``{child's number: descriptor or file}``, any to any; None closes the number
`deadline`          seconds from the start until SIGKILL for the child and all that it has started,
                    as far as they stay in its process group, whether anybody waits or not
`kill_group`        `kill`, `terminate` and `send_signal`, and so each timeout, reach the child's
                    whole process group
==================  ================================================================================

With `deadline` or `kill_group` the child leads a process group of its own (as with
``process_group=0``), so Ctrl-C at the terminal reaches only this process. `run`, `wait` and
`communicate` raise `TimeoutExpired` when the deadline has killed the child.

`preexec_fn` works as ever, by a fork of the standard module's, with a `ForklessWarning` the first
time. A program under a debugger that patches `_posixsubprocess.fork_exec` starts its children by
that, too.
"""

# Every import is here and none in a function: when a start comes, the program may have changed its
# root or its user, or have no descriptor left.
import contextlib
import operator
import select
import selectors
import subprocess as _standard
import sys
import types

import _posixsubprocess
# Not from `os`, where `forkless.install` puts another one.
from posix import posix_spawn as _posix_spawn

from . import ForklessWarning as _ForklessWarning
from . import _forkless, _group, _shell
from ._native import Child as _Child
from ._native import StepError as _StepError
from ._options import NAMES as _OPTIONS
from ._options import own_error as _own_error
from ._options import take as _take_options
from ._preexec import advice as _advice

__all__ = list(_standard.__all__)


def _rebind(function):
    """The function with this module's names in place of the standard module's.

    So what a program puts in place of a name here (`forkless.subprocess.Popen`, say) is what the
    functions here use.
    """
    new = types.FunctionType(
        function.__code__,
        globals(),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    new.__kwdefaults__ = function.__kwdefaults__
    new.__doc__ = function.__doc__
    new.__qualname__ = function.__qualname__
    new.__annotations__ = function.__annotations__
    new.__dict__.update(function.__dict__)
    return new


# Those of the standard module's functions: of the module itself, and of `_original` where that is
# needed.
_NAMESPACES = [vars(_standard)]


def _is_standard(value):
    """Whether it is a function of the standard module's file."""
    return type(value) is types.FunctionType and any(
        value.__globals__ is names for names in _NAMESPACES
    )


def _standard_popen():
    """The standard class: what the module has by this name, or the base of that. None if something
    unrelated, such as gevent's class, has taken its place."""
    for cls in getattr(_standard.Popen, "__mro__", ()):
        if any(map(_is_standard, vars(cls).values())):
            return cls
    return None


def _is_as_its_file_has_it(popen):
    functions = "call check_call check_output getoutput getstatusoutput list2cmdline run".split()
    return (
        popen is not None
        and all(_is_standard(vars(_standard).get(name)) for name in functions)
        and all(_is_standard(vars(popen).get(name)) for name in ("__init__", "_execute_child"))
    )


def _original():
    """A second copy of the standard module. What gevent, a tracer or a test has put into the first
    one hides the code that is needed here."""
    module = types.ModuleType(_standard.__name__)
    module.__file__, module.__spec__ = _standard.__file__, _standard.__spec__
    _standard.__spec__.loader.exec_module(module)
    _NAMESPACES.append(vars(module))
    return module


_model, _Base = _standard_popen(), _standard.Popen
_source = _standard
if not _is_as_its_file_has_it(_model):
    _source = _original()
    if _model is None:
        _Base = _source.Popen
    _model = _source.Popen


def _adopt():
    """Takes over every name of the standard module, private ones included."""
    own = globals()
    for name, value in vars(_standard).items():
        if name not in own:
            original = vars(_source).get(name)
            own[name] = _rebind(original) if _is_standard(original) else value


_adopt()

# The names that the functions below use.
os = _standard.os
signal = _standard.signal
PIPE = _standard.PIPE
SubprocessError = _standard.SubprocessError
TimeoutExpired = _standard.TimeoutExpired

_code = vars(_model)["_execute_child"].__code__
# Of Popen._execute_child in the order of the running version.
_STANDARD_PARAMETERS = _code.co_varnames[1 : _code.co_argcount]
_OWN_PARAMETERS = (
    "args executable preexec_fn close_fds pass_fds cwd env startupinfo creationflags shell"
    " p2cread p2cwrite c2pread c2pwrite errread errwrite"
    " restore_signals gid gids uid umask start_new_session process_group"
).split()
_KNOWS_PROCESS_GROUP = "process_group" in _STANDARD_PARAMETERS
_KNOWS_PIPESIZE = "pipesize" in vars(_model)["__init__"].__code__.co_varnames
if not _KNOWS_PIPESIZE:
    import fcntl as _fcntl
# From 3.10 and 3.11 on the standard module has these itself.
_LATER_OPTIONS = frozenset(
    name
    for name, known in (("process_group", _KNOWS_PROCESS_GROUP), ("pipesize", _KNOWS_PIPESIZE))
    if not known
)

# Before 3.13 every error before the exec names the directory, and None if none was given.
# Text alone is compared: there are bytes among the constants, and python -bb forbids to compare
# them with it.
_NAMES_DIRECTORY_ALWAYS = "noexec:chdir" not in [
    constant for constant in _code.co_consts if type(constant) is str
]

# Steps of a start before its child.
_WITHOUT_CHILD = ("command", "pipe", "stack", "clone")
_NO_FDS = ()
_PATH_SEPARATOR = ord("/")
_ID_MAX = 2**32 - 1
_SINCE_3_12 = sys.version_info >= (3, 12)
_SINCE_3_13 = sys.version_info >= (3, 13)
_genuine_get_exec_path = os.get_exec_path
# Of a pipe: buffered or not, and text.
_FILES = (_standard.io.BufferedReader, _standard.io.FileIO, _standard.io.TextIOWrapper)
_C_FUNCTION = type(_posixsubprocess.fork_exec)


def _is_patch(function):
    # The pytest plugin only looks on.
    # A mock has every attribute, but none that is True.
    watches = getattr(function, "_forkless_watches", False)
    return type(function) is not _C_FUNCTION and watches is not True


def _fork_exec_is_patched():
    """Whether a debugger, a tracer or a test has put something in fork_exec's place."""
    if _is_patch(_posixsubprocess.fork_exec):
        return True
    for names in (globals(), vars(_standard)):
        function = names.get("_fork_exec")
        if function is not None and _is_patch(function):
            return True
    return False


def _is_cooperative():
    """Whether gevent, eventlet or the like have put their own waits into the standard modules. Then
    a wait here must let other greenlets run."""
    return type(select.select) is not types.BuiltinFunctionType


def _with_present_selector(function):
    """A standard `_communicate` with the selector that the program has now."""
    if type(function) is not types.FunctionType:
        return function
    names = dict(function.__globals__, _PopenSelector=selectors.DefaultSelector)
    new = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def _environment(env):
    entries = []
    encode = os.fsencode
    for name, value in env.items():
        name = encode(name)
        if b"=" in name:
            raise ValueError("illegal environment variable name")
        entries.append(name + b"=" + encode(value))
    return entries


class _Reached(Exception):
    pass


class _Unread:
    """File actions that end a call of `posix_spawn` when it comes to read them."""

    def __iter__(self):
        raise _Reached


def _posix_spawn_environment(executable, args, env):
    """The environment as `os.posix_spawn` takes it; raises what that says of these arguments."""
    entries = [] if env is not None else None
    encode = os.fsencode
    is_usual = False
    # Behind the clause, so that an error has no other for a context.
    with contextlib.suppress(Exception):
        is_usual = encode(args[0]) != b""
        is_usual = is_usual and not any(b"\0" in encode(text) for text in (executable, *args))
        for name, value in () if env is None else env.items():
            name = encode(name)
            entry = name + b"=" + encode(value)
            is_usual = is_usual and name != b"" and b"=" not in name and b"\0" not in entry
            entries.append(entry)
        if is_usual:
            return entries
    # It reads the program, the arguments, the environment and then the file actions.
    with contextlib.suppress(_Reached):
        _posix_spawn(executable, args, os.environ if env is None else env, file_actions=_Unread())
    if env is None:
        return None
    return [encode(name) + b"=" + encode(value) for name, value in zip(env.keys(), env.values())]


def _executables(program, env):
    """The files to try, in their order."""
    if _PATH_SEPARATOR in program:
        return (program,)
    if env is None and os.get_exec_path is _genuine_get_exec_path:
        # The same without its handling of warnings, which takes as long as all the rest here.
        path = os.environ.get("PATH")
        path = (os.defpath if path is None else path).split(os.pathsep)
    else:
        path = os.get_exec_path(env)
    return [os.path.join(os.fsencode(directory), program) for directory in path]


def _kept(pass_fds):
    numbers = sorted(map(int, set(pass_fds)))
    # Twice the same number is only possible if it was not an int.
    for before, number in zip([-1] + numbers, numbers):
        if not before < number < 2**31:
            raise ValueError("bad value(s) in fds_to_keep")
    return numbers


def _id(number, kind):
    if number > _ID_MAX:
        # A C long that loses bits is taken for a negative number (_Py_Uid_Converter).
        where = "less than minimum" if number < 2**63 else "greater than maximum"
        raise OverflowError("%s is %s" % (kind, where))
    # (uid_t)-1: leave it as it is.
    return None if number == _ID_MAX else number


def _c_int(number):
    if sys.version_info < (3, 10) and not hasattr(type(number), "__index__"):
        if isinstance(number, float):
            raise TypeError("integer argument expected, got float")
        raise TypeError("an integer is required (got type %s)" % type(number).__name__)
    number = operator.index(number)
    if -(2**31) <= number < 2**31:
        return number
    # What the conversions of the running version say (Python/getargs.c).
    if _SINCE_3_12:
        raise OverflowError("Python int too large to convert to C int")
    return _argument_int(number)


def _posix_spawn_number(descriptor):
    """A descriptor in a file action of `posix_spawn`."""
    number = _argument_int(operator.index(descriptor))
    if number >= os.sysconf("SC_OPEN_MAX"):
        # libc refuses it when the action is noted: without the program's name.
        raise OSError(_standard.errno.EBADF, os.strerror(_standard.errno.EBADF))
    return number


def _argument_int(number):
    """A C int by the format unit "i"."""
    if -(2**31) <= number < 2**31:
        return number
    if not -(2**63) <= number < 2**63:
        raise OverflowError("Python int too large to convert to C long")
    which = "greater than maximum" if number > 0 else "less than minimum"
    raise OverflowError("signed integer is " + which)


def _groups(numbers):
    if len(numbers) > os.sysconf("SC_NGROUPS_MAX"):
        raise ValueError("too many extra_groups" if _SINCE_3_12 else "too many groups")
    for number in numbers:
        if number > _ID_MAX:
            raise ValueError("invalid group id")
    return numbers


_warned_of_preexec_fn = False


def _warn_of_preexec_fn(function):
    global _warned_of_preexec_fn
    if _warned_of_preexec_fn:
        return
    _warned_of_preexec_fn = True
    # To the first line that is neither here nor in a library that starts children by this class.
    level = _level_outside("forkless", "subprocess", "asyncio", "trio", "anyio")
    _standard.warnings.warn(_advice(function), _ForklessWarning, level)


def _level_outside(*packages):
    """The `stacklevel`, for a warning of the caller's, of the first line outside these packages."""
    level, frame = 1, sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in packages:
        level, frame = level + 1, frame.f_back
    return level


class _WarningsOfTheCaller:
    """The module `warnings` to the standard `_text_encoding`.

    That looks for the first line outside its own file. It would find this file.
    """

    @staticmethod
    def warn(message, category, stacklevel):
        level = _level_outside("forkless", "subprocess")
        _standard.warnings.warn(message, category, level)


def _telling_the_caller(text_encoding):
    names = dict(text_encoding.__globals__, warnings=_WarningsOfTheCaller)
    return types.FunctionType(text_encoding.__code__, names, text_encoding.__name__)


# From 3.11 on; the function of another package is its own matter.
if _is_standard(vars(_source).get("_text_encoding")):
    _text_encoding = _telling_the_caller(vars(_source)["_text_encoding"])


#: Attributes of an instance, and what they are where it has none. They are read by `getattr`: an
#: instance may be older than `forkless.install`, and a method may still run behind
#: `forkless.uninstall`, which leaves nothing of ours in the class.
_DEFAULTS = {
    # What was given of the options of ours.
    "_options": None,
    # False in a subclass of an event loop's: `_execute_child` then returns as soon as the child
    # exists, and `_child` tells of its exec.
    "_blocking": True,
    # The native child, where it is still needed: without `_blocking`, or to signal a group.
    "_child": None,
    # The process group that the child leads, where it is to be signalled.
    "_leader": None,
    # The deadline by time.monotonic().
    "_deadline": None,
    # A shell line that runs without its shell.
    "_line": None,
}


def _method(popen, name):
    """The method as a function, be it the class's own, an inherited one, or what a tracer or a test
    has put in its place."""
    value = vars(popen).get(name)
    if type(value) is types.FunctionType:
        return value
    if value is None:

        def method(self, *args, **kwargs):
            # Looked up anew: a test's mock goes again.
            return getattr(super(popen, self), name)(*args, **kwargs)

        value = getattr(popen, name)
    else:
        bind = getattr(type(value), "__get__", None)

        def method(self, *args, **kwargs):
            bound = value if bind is None else bind(value, self, type(self))
            return bound(*args, **kwargs)

    method.__doc__ = getattr(value, "__doc__", None)
    method.__wrapped__ = value
    return method


def _methods(popen):
    """The methods of Popen that differ from those of the class, around these."""
    standard_init = _method(popen, "__init__")
    standard_execute_child = _method(popen, "_execute_child")
    standard_internal_poll = _method(popen, "_internal_poll")
    standard_handle_exitstatus = _method(popen, "_handle_exitstatus")
    standard_send_signal = _method(popen, "send_signal")
    standard_wait = _method(popen, "wait")
    standard_wait_within = _method(popen, "_wait")
    standard_communicate = _method(popen, "communicate")
    standard_communicate_by_selector = _method(popen, "_communicate")

    def __init__(self, *args, **kwargs):
        if not _OPTIONS.isdisjoint(kwargs):
            options = _take_options(kwargs)
            if options.given:
                self._options = options
        if _LATER_OPTIONS and not _LATER_OPTIONS.isdisjoint(kwargs):
            _take_later_options(self, kwargs)
        standard_init(self, *args, **kwargs)

    # For inspect.signature() and help().
    __init__.__wrapped__ = standard_init
    __init__.__doc__ = standard_init.__doc__

    def _execute_child(
        self,
        args,
        executable,
        preexec_fn,
        close_fds,
        pass_fds,
        cwd,
        env,
        startupinfo,
        creationflags,
        shell,
        p2cread,
        p2cwrite,
        c2pread,
        c2pwrite,
        errread,
        errwrite,
        restore_signals,
        gid,
        gids,
        uid,
        umask,
        start_new_session,
        process_group=-1,
    ):
        options = getattr(self, "_options", None)
        if options is not None and options.process_group is not None:
            process_group = options.process_group
        if preexec_fn is not None or (options is None and _fork_exec_is_patched()):
            if options is not None:
                raise ValueError(
                    "preexec_fn forks, and cannot go together with %s: see the options in place of"
                    " it in the documentation of forkless.subprocess"
                    % ", ".join(options.given)
                )
            if preexec_fn is not None:
                _warn_of_preexec_fn(preexec_fn)
            given = locals()
            return standard_execute_child(self, *[given[name] for name in _STANDARD_PARAMETERS])

        user_executable = executable
        args, executable = _words(args, executable, shell)

        sys.audit("subprocess.Popen", executable, args, cwd, env)
        by_posix_spawn = options is None and _goes_by_posix_spawn(locals())

        encode = os.fsencode
        if by_posix_spawn:
            entries = _posix_spawn_environment(executable, args, env)
        else:
            entries = None if env is None else _environment(env)
        files = _executables(encode(executable), env)
        # The standard module looks at it in any case, unless it leaves the start to posix_spawn.
        keep = _NO_FDS if by_posix_spawn or pass_fds == () else _kept(pass_fds)
        argv = [encode(arg) for arg in args]
        directory = None if cwd is None else encode(cwd)
        if gids is not None:
            gids = _groups(gids)
        if not _SINCE_3_12:
            restore_signals = _c_int(restore_signals)
            start_new_session = _c_int(start_new_session)
        process_group = _c_int(process_group)
        umask = _c_int(umask)
        if gid is not None:
            gid = _id(gid, "gid")
        if uid is not None:
            uid = _id(uid, "uid")

        number = _posix_spawn_number if by_posix_spawn else _c_int
        ends = ((0, p2cread), (1, c2pwrite), (2, errwrite))
        fds = [(own, number(end)) for own, end in ends if end != -1]

        if by_posix_spawn:
            is_told = env is not None or _SINCE_3_13
            told = os.fspath(executable), args, env if is_told else os.environ
            sys.audit("os.posix_spawn", *told)

        more = {}
        if options is not None:
            more = options.native
            process_group = _group_for(options, start_new_session, process_group)
            _connect(options.fds, fds, keep)
            if options.setctty >= 0:
                more = dict(more, setctty=options.setctty)

        if shell and len(args) == 3:
            line = _direct_line(
                self,
                argv,
                user_executable,
                pass_fds,
                start_new_session
                or process_group >= 0
                or gid is not None
                or gids is not None
                or uid is not None
                or umask >= 0
                or options is not None,
                env=entries,
                cwd=directory,
                stdin=p2cread,
                stdout=c2pwrite,
                stderr=errwrite,
                close_fds=bool(close_fds),
                restore_signals=bool(restore_signals),
                owner=self,
                tells=type(self).communicate is communicate and "communicate" not in vars(self),
            )
            if line is not None:
                self._line = line
                self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
                return

        blocking = getattr(self, "_blocking", True)
        leads = options is not None and options.leads_group
        started = _forkless.spawn(
            argv,
            files,
            entries,
            directory,
            fds,
            bool(close_fds),
            keep,
            bool(restore_signals),
            bool(start_new_session),
            process_group,
            gid,
            gids,
            uid,
            umask,
            blocking=blocking,
            owner=self,
            keep_pidfd=leads or not blocking,
            **more,
        )
        if type(started[0]) is str:
            error = _StepError(*started)
            _tidy_failed(self, error, locals())
            raise _start_exception(self, error, executable, cwd, by_posix_spawn)
        _result(self, started, (executable, cwd, by_posix_spawn), options, blocking)
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    if tuple(_OWN_PARAMETERS[: len(_STANDARD_PARAMETERS)]) != _STANDARD_PARAMETERS:
        # Another order in a version to come: by name, as far as the names are known.
        by_name = _execute_child

        def _execute_child(self, *args):
            given = dict(zip(_STANDARD_PARAMETERS, args))
            return by_name(self, **given)

    def _start_exception(self, error, executable, cwd, by_posix_spawn):
        """The exception that the standard module raises where a start has failed at this step."""
        own = _own_error(error, getattr(self, "_options", None))
        if own is not None:
            own.__cause__ = error
            return own
        message = os.strerror(error.errno)
        if error.step == "command":
            return ValueError(str(error.what))
        if by_posix_spawn:
            # It names the program whatever has failed.
            return OSError(error.errno, message, os.fspath(executable))
        if error.step in _WITHOUT_CHILD:
            return OSError(error.errno, message)
        if error.step == "exec":
            return OSError(error.errno, message, executable)
        if _NAMES_DIRECTORY_ALWAYS or (cwd is not None and error.step == "chdir"):
            return OSError(error.errno, message, cwd)
        return OSError(error.errno, message)

    def _kill_all(self):
        """SIGKILL to the child's group where it leads one for that, else to the child."""
        leader = getattr(self, "_leader", None)
        if leader is None:
            standard_send_signal(self, signal.SIGKILL)
        else:
            leader.signal(signal.SIGKILL)

    # The two are called by a finalizer: at the interpreter's end the module's names may be gone.
    def _internal_poll(self, *args, **kwargs):
        code = standard_internal_poll(self, *args, **kwargs)
        if code is not None:
            # Where another has taken the status, no _handle_exitstatus has told them.
            line, leader = getattr(self, "_line", None), getattr(self, "_leader", None)
            if line is not None:
                line.let_go()
            if leader is not None and not leader.reaped:
                leader.reap()
        return code

    _internal_poll.__doc__ = standard_internal_poll.__doc__

    def _handle_exitstatus(self, sts, *rest):
        line = getattr(self, "_line", None)
        if line is not None:
            sts = line.end(sts)
        standard_handle_exitstatus(self, sts, *rest)
        leader = getattr(self, "_leader", None)
        if leader is not None:
            leader.reap()

    def send_signal(self, sig):
        leader = getattr(self, "_leader", None)
        if leader is not None and self._options.kill_group:
            self.poll()
            leader.signal(sig)
            return
        line = getattr(self, "_line", None)
        if line is not None:
            line.sent(sig)
        standard_send_signal(self, sig)

    send_signal.__doc__ = standard_send_signal.__doc__

    def _wait(self, timeout):
        leader = getattr(self, "_leader", None)
        if self.returncode is None:
            if leader is not None:
                ended = leader.wait_without_lock(timeout)
            else:
                ended = not _is_cooperative() or _group.wait_for_end(self.pid, timeout)
            if not ended:
                raise TimeoutExpired(self.args, timeout)
        return standard_wait_within(self, timeout)

    def wait(self, timeout=None):
        code = standard_wait(self, timeout)
        leader = getattr(self, "_leader", None)
        if leader is not None and leader.expired and code == -9 and not leader.quiet:
            _tell_deadline(self, leader, None, None)
        return code

    wait.__doc__ = standard_wait.__doc__

    def talk(self, input, timeout):
        """The standard communicate(). It reads a single pipe without its selector, and then no
        other greenlet would run meanwhile."""
        while timeout is None and _is_cooperative():
            try:
                return standard_communicate(self, input, _group.LONGEST_WAIT)
            except TimeoutExpired:
                input = None
        return standard_communicate(self, input, timeout)

    def communicate(self, input=None, timeout=None):
        leader = getattr(self, "_leader", None)
        if leader is None or leader.seconds is None:
            answer = talk(self, input, timeout)
            line = getattr(self, "_line", None)
            if line is not None and line.quiet:
                answer = _shell.finish(line, *answer)
            return answer
        leader.quiet = True
        try:
            # Without a thread that kills the child at its deadline, this does.
            while not _group.is_watching():
                left = leader.left()
                if left is None or (timeout is not None and timeout <= left):
                    break
                part = min(left, _group.LONGEST_WAIT)
                try:
                    return standard_communicate(self, input, part)
                except TimeoutExpired:
                    input, timeout = None, None if timeout is None else timeout - part
                if part == left:
                    leader.expire()
                    break
            output, errors = talk(self, input, timeout)
        finally:
            leader.quiet = False
        if leader.expired:
            _tell_deadline(self, leader, output, errors)
        return output, errors

    communicate.__doc__ = standard_communicate.__doc__

    def _communicate(self, input, endtime, orig_timeout):
        out, err = self.stdout, self.stderr
        if _is_cooperative():
            by_selector = _with_present_selector(standard_communicate_by_selector)
            return by_selector(self, input, endtime, orig_timeout)
        if (
            endtime is not None
            or input
            or self._communication_started
            or self.stdin is not None
            or type(out) not in _FILES
            or type(err) not in _FILES
            # The standard method leaves out a pipe that the program has closed.
            or out.closed
            or err.closed
        ):
            return standard_communicate_by_selector(self, input, endtime, orig_timeout)
        # The most usual case without a selector. What is read before an interruption is where the
        # standard method looks for it.
        self._fileobj2output = {out: [], err: []}
        parts = self._fileobj2output[out], self._fileobj2output[err]
        self._save_input(input)
        _forkless.drain(out.fileno(), err.fileno(), *parts)
        out.close()
        err.close()
        self.wait()
        output, errors = map(b"".join, parts)
        if self.text_mode:
            output = self._translate_newlines(output, out.encoding, out.errors)
            errors = self._translate_newlines(errors, err.encoding, err.errors)
        return output, errors

    if not _KNOWS_PIPESIZE:
        standard_get_handles = _method(popen, "_get_handles")

        def _get_handles(self, stdin, stdout, stderr):
            handles = standard_get_handles(self, stdin, stdout, stderr)
            size = vars(self).get("pipesize", -1)
            if size > 0:
                for asked, end in zip((stdin, stdout, stderr), (1, 3, 5)):
                    if asked == PIPE:
                        _fcntl.fcntl(handles[end], 1031, size)  # F_SETPIPE_SZ
            return handles

    methods = locals()
    return {
        name: methods[name]
        for name in (
            "__init__",
            "_execute_child",
            "_start_exception",
            "_kill_all",
            "_internal_poll",
            "_handle_exitstatus",
            "send_signal",
            "_wait",
            "wait",
            "communicate",
            "_communicate",
            "_get_handles",
        )
        if name in methods
    }


def _tell_deadline(self, leader, output, errors):
    if not leader.told:
        leader.told = True
        raise TimeoutExpired(self.args, leader.seconds, output, errors)


def _take_later_options(self, kwargs):
    if not _KNOWS_PROCESS_GROUP:
        group = kwargs.pop("process_group", None)
        if group is not None and group != -1:
            options = self._options = getattr(self, "_options", None) or _take_options({})
            options.process_group = group
            options.given.append("process_group")
    if not _KNOWS_PIPESIZE:
        size = kwargs.pop("pipesize", None)
        if size is None:
            size = -1
        if not isinstance(size, int):
            raise TypeError("pipesize must be an integer")
        self.pipesize = size


def _tidy_failed(popen, error, given):
    """Leaves a Popen as the standard module leaves one whose start has failed."""
    # With posix_spawn the standard Popen has no child then.
    if not given["by_posix_spawn"] and error.step not in _WITHOUT_CHILD:
        # Its child has ended by _exit(255), and was reaped.
        popen.pid = error.pid
        popen._child_created = True
        popen._close_pipe_fds(
            *[given[pipe] for pipe in "p2cread p2cwrite c2pread c2pwrite errread errwrite".split()]
        )
        popen._handle_exitstatus(255 << 8)


def _words(args, executable, shell):
    """The command as a list of its own, and the program: that of a line is a shell."""
    if type(args) is list:
        args = args[:]
    elif isinstance(args, (str, bytes)):
        args = [args]
    elif isinstance(args, os.PathLike):
        if shell:
            raise TypeError("path-like args is not allowed when shell is true")
        args = [args]
    else:
        args = list(args)
    if shell:
        args[:0] = [executable or "/bin/sh", "-c"]
    return args, args[0] if executable is None else executable


def _result(self, started, names, options, blocking):
    """Takes a start that has succeeded into a Popen. `names` are those of its later errors."""
    if not blocking:
        self._names = names
        self._child = _Child(*started)
    if options is not None and options.leads_group:
        # The pidfd has one owner.
        child = getattr(self, "_child", None) or _Child(*started)
        self._leader = leader = _group.Leader(child, self._waitpid_lock, options.deadline)
        self._deadline = leader.moment
        if leader.moment is not None and blocking:
            _group.watch(leader)


def _goes_by_posix_spawn(given):
    """Whether the standard `_execute_child` leaves a start with these arguments to
    `os.posix_spawn`."""
    names = globals()
    return bool(
        names.get("_USE_POSIX_SPAWN")
        and vars(_standard).get("_USE_POSIX_SPAWN")
        and os.path.dirname(given["executable"])
        and (not given["close_fds"] or names.get("_HAVE_POSIX_SPAWN_CLOSEFROM"))
        and not given["pass_fds"]
        and all(given[name] is None for name in ("cwd", "gid", "gids", "uid"))
        and all(given[end] == -1 or given[end] > 2 for end in ("p2cread", "c2pwrite", "errwrite"))
        and not given["start_new_session"]
        and given["process_group"] == -1
        and given["umask"] < 0
    )


def _group_for(options, start_new_session, process_group):
    """The process group, where the child may have to lead one."""
    if not options.leads_group or start_new_session or options.setctty >= 0 or process_group == 0:
        return process_group
    if process_group > 0:
        raise ValueError(
            "process_group: a child with a deadline or kill_group leads a group of its own:"
            " leave process_group out, or give 0"
        )
    return 0


def _connect(mapping, fds, keep):
    taken = {number for number, _ in fds}.union(keep)
    for number, parent in mapping:
        if number in taken:
            raise ValueError(
                "fds: number %d is given by another argument as well (stdin, stdout, stderr or"
                " pass_fds): leave one of them out" % number
            )
        fds.append((number, parent))


def _direct_line(self, argv, executable, pass_fds, other_options, **rest):
    """Starts the line without its shell, where that is the same: else None."""
    if not _shell.may_be_direct(
        preexec_fn=None,
        pass_fds=pass_fds,
        executable=executable,
        line_count=1,
        other_options=other_options or not getattr(self, "_blocking", True),
    ):
        return None
    return _shell.start(argv[2], **rest)


class Popen(_Base):
    __doc__ = (_Base.__doc__ or "") + (
        "\n    More keyword arguments: see the module forkless.subprocess.\n    "
    )


def _complete(popen):
    """Gives our Popen the standard methods with this module's names, and its own."""
    inherited = {}
    for cls in reversed(popen.__mro__[1:]):
        inherited.update(vars(cls))
    for name, value in inherited.items():
        if _is_standard(value):
            setattr(popen, name, _rebind(value))
    for name, value in _DEFAULTS.items():
        setattr(popen, name, value)
    for name, value in _methods(popen).items():
        value.__qualname__ = "Popen." + name
        setattr(popen, name, value)


_complete(Popen)


def _running(standard):
    """`run` around the standard one."""

    def run(*popenargs, **kwargs):
        if not kwargs.get("shell"):
            return standard(*popenargs, **kwargs)
        # It talks to the child by communicate() alone.
        with _shell.read_to_end():
            return standard(*popenargs, **kwargs)

    run.__wrapped__ = standard
    run.__doc__ = standard.__doc__
    run.__qualname__ = "run"
    # Where pickle looks for it, and where it is.
    run.__module__ = standard.__module__
    run.__kwdefaults__ = getattr(standard, "__kwdefaults__", None)
    return run


run = _running(run)


def _patches():
    """What turns the standard module into ours, in place: (owner, name, new value) each.

    It raises AttributeError where another package has put a class of its own in Popen's place.
    """
    owner = _standard_popen()
    if owner is None:
        raise AttributeError("%r has taken the place of its Popen" % (_standard.Popen,))
    patches = []
    for name, value in _methods(owner).items():
        value.__qualname__ = "Popen." + name
        value.__module__ = owner.__module__
        patches.append((owner, name, value))
    patches.append((_standard, "run", _running(_standard.run)))
    text_encoding = vars(_standard).get("_text_encoding")
    if _is_standard(text_encoding):
        patches.append((_standard, "_text_encoding", _telling_the_caller(text_encoding)))
    return patches
