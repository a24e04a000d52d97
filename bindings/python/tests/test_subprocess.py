"""forkless.subprocess against the standard module: the same where both can, and what is ours."""

import doctest
import errno
import gc
import io
import os
import pickle
import resource
import select
import signal
import socket
import subprocess as standard
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path

import pytest

import forkless
from forkless import _native, subprocess
from held_program import open_descriptors

PYTHON = sys.executable
IS_ROOT = os.geteuid() == 0

needs_root = pytest.mark.skipif(not IS_ROOT, reason="skipped: needs root")


def status_of(child, field, **options):
    """A field of the child's /proc/self/status."""
    out = subprocess.check_output(["cat", "/proc/self/status"], text=True, **options)
    return dict(line.split(":\t", 1) for line in out.splitlines())[field].strip()


def outcome(function, *args, **kwargs):
    """What a call gives: a value, or an exception's type, text and file."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error), str(error), getattr(error, "filename", None)


# The names and the classes.


def test_every_name_of_the_standard_module_is_there():
    missing = [name for name in dir(standard) if not hasattr(subprocess, name)]
    assert missing == []
    assert subprocess.__all__ == standard.__all__


def test_exceptions_and_results_are_the_standard_classes():
    for name in ("CalledProcessError", "CompletedProcess", "SubprocessError", "TimeoutExpired"):
        assert getattr(subprocess, name) is getattr(standard, name)
    with pytest.raises(standard.CalledProcessError):
        subprocess.check_call(["false"])
    result = subprocess.run(["true"])
    assert pickle.loads(pickle.dumps(result)).returncode == 0


def test_popen_is_a_subclass_and_shows_itself_alike():
    child = subprocess.Popen(["true"])
    assert isinstance(child, standard.Popen)
    assert repr(child) == "<Popen: returncode: None args: ['true']>"
    assert child.wait() == 0
    assert subprocess.Popen.__module__ == "forkless.subprocess"


def test_functions_use_what_is_put_in_place_of_a_name_here(monkeypatch):
    seen = []

    class Mine(subprocess.Popen):
        def wait(self, timeout=None):
            seen.append("wait")
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Mine)
    assert subprocess.call(["true"]) == 0
    assert seen
    monkeypatch.setattr(subprocess, "_args_from_interpreter_flags", lambda: ["-Q"])
    assert subprocess._args_from_interpreter_flags() == ["-Q"]


def test_a_patched_method_is_used(monkeypatch):
    monkeypatch.setattr(subprocess.Popen, "wait", lambda self, timeout=None: 77)
    child = subprocess.Popen(["true"])
    try:
        assert child.wait() == 77
    finally:
        os.waitpid(child.pid, 0)
        child.returncode = 0


def test_a_subclass_may_change_execute_child(no_fork):
    class Loud(subprocess.Popen):
        def _execute_child(self, args, *rest):
            self.seen = args
            return super()._execute_child(args, *rest)

    with Loud(["true"]) as child:
        assert child.seen == ["true"]


@pytest.mark.honours_patches
def test_a_debuggers_fork_exec_is_used(monkeypatch):
    import _posixsubprocess

    genuine = _posixsubprocess.fork_exec
    seen = []

    def traced(*args):
        seen.append(args[0])
        return genuine(*args)

    monkeypatch.setattr(_posixsubprocess, "fork_exec", traced)
    monkeypatch.setattr(standard, "_fork_exec", traced, raising=False)
    monkeypatch.setattr(subprocess, "_fork_exec", traced, raising=False)
    assert subprocess.call(["/bin/true"], close_fds=True, cwd="/") == 0
    assert [list(argv) for argv in seen] == [["/bin/true"]]


# Starts: each by our mechanism, with the standard result.


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cwd": "/usr"},
        {"env": {"A": "1", "PATH": "/usr/bin:/bin"}},
        {"env": {b"A": b"\xff"}},
        {"env": {}},
        {"start_new_session": True},
        {"umask": 0o27},
        {"restore_signals": False},
        {"close_fds": False},
        {"stdin": standard.DEVNULL},
        {"text": True, "input": "x"},
        {"errors": "replace", "encoding": "ascii"},
        {"bufsize": 1, "text": True},
        {"executable": "/bin/sh"},
    ],
    ids=str,
)
def test_a_start_gives_what_the_standard_one_gives(no_fork, monkeypatch, options):
    line = (
        "cat; pwd; umask; echo $A; ulimit -a; ls /proc/self/fd; "
        "grep -E 'SigBlk|Uid|Groups' /proc/self/status; ps -o sid= -p $$ | wc -l"
    )
    options.setdefault("stdin", standard.DEVNULL) if "input" not in options else None
    args = ["/bin/sh", "-c", line]
    ours = subprocess.run(args, stdout=subprocess.PIPE, **options)
    monkeypatch.undo()
    theirs = standard.run(args, stdout=standard.PIPE, **options)
    assert ours.returncode == theirs.returncode == 0
    assert ours.stdout == theirs.stdout


class WithoutItems:
    """A mapping as far as `os.posix_spawn` asks for one."""

    def keys(self):
        return ["A"]

    def values(self):
        return ["1"]

    def __getitem__(self, name):
        return "1"

    def __len__(self):
        return 1


FAILURES = [
    (["/nowhere"], {}),
    (["nowhere-at-all"], {}),
    ([b"/nowhere"], {}),
    (["/etc/passwd"], {}),
    (["/etc"], {}),
    (["true"], {"cwd": "/nowhere"}),
    (["true"], {"cwd": b"/nowhere"}),
    (["true"], {"cwd": ""}),
    (["/nowhere"], {"executable": "/also/nowhere"}),
    ([], {}),
    (["a\0b"], {}),
    (["true", "a\0b"], {}),
    (["true"], {"cwd": "a\0b"}),
    (["true"], {"env": {"A": "b\0"}}),
    (["true"], {"env": {"A=B": "c"}}),
    (["true"], {"env": {"A": 1}}),
    (["true"], {"env": {"PATH": "/a", b"PATH": b"/b"}}),
    (["true"], {"executable": 7}),
    ([7], {}),
    (7, {}),
    (["true"], {"pass_fds": (-1,)}),
    (["true"], {"pass_fds": (999,)}),
    (["true"], {"stdin": 999}),
    (["true"], {"stdout": 999}),
    (["true"], {"stdout": -7}),
    (["true"], {"stdin": 2**31}),
    (["true"], {"stderr": 2**64}),
    (["true"], {"stderr": -8}),
    (["true"], {"stdin": "x"}),
    (["true"], {"env": [("A", "b")]}),
    (["true"], {"cwd": object}),
    (["true"], {"pass_fds": ["x"]}),
    (["true"], {"pass_fds": 7}),
    (["true"], {"user": "no-such-user"}),
    (["true"], {"extra_groups": [1.5]}),
    (["true"], {"preexec_fn": 7, "user": -3}),
    (["true"], {"user": -1}),
    (["true"], {"user": 2**64}),
    (["true"], {"group": 2**64}),
    (["true"], {"extra_groups": [2**64]}),
    (["true"], {"extra_groups": list(range(70000))}),
    (["true"], {"umask": 2**40}),
    (["true"], {"umask": -(2**70)}),
    (["true"], {"extra_groups": [2**32 - 1]}),
    (["true"], {"stdin": 999, "cwd": "/usr"}),
    (["true"], {"user": -5, "cwd": "/nowhere"}),
    (["true"], {"bufsize": "x"}),
    (["true"], {"text": True, "universal_newlines": False}),
    (["true"], {"startupinfo": 1}),
    (["true"], {"nonsense": 1}),
    (["true", "x" * (4 << 20)], {}),
    (["x" * 5000], {}),
    (["x" * 300], {}),
    (["/bin/true"], {"stdout": 999}),
    (["/bin/true"], {"stdout": 999, "close_fds": False}),
    (["/bin/true", "x" * (4 << 20)], {}),
    (["/nowhere"], {"close_fds": False}),
    (["/nowhere"], {"umask": 0}),
    (["nowhere"], {"stdin": -1, "stdout": -1, "stderr": -3, "text": True}),
    (["/nowhere"], {"stdin": -1, "stdout": -1, "stderr": -2}),
    ([Path("/nowhere")], {}),
    ([Path("/nowhere")], {"cwd": "/"}),
    (["x"], {"executable": Path("/nowhere")}),
    (["true"], {"cwd": Path("/nowhere")}),
    (["true"], {"user": 2**40}),
    (["true"], {"group": 2**63 - 1}),
    (["true"], {"umask": "x"}),
    (["true"], {"pass_fds": None}),
    (["true"], {"pass_fds": 0}),
    (["true"], {"pass_fds": None, "close_fds": False}),
    ("true", {"pass_fds": None, "shell": True}),
    # The standard module leaves some of these to posix_spawn: from 3.13 on, before without
    # close_fds.
    (["/bin/true"], {"pass_fds": None}),
    (["/bin/true"], {"env": {"": "x"}}),
    (["/bin/true"], {"env": {"=C:": "x"}}),
    (["/bin/true"], {"env": {"=C:": "x"}, "close_fds": False}),
    (["/bin/true"], {"env": {"A=B": "x"}}),
    (["/bin/true"], {"env": {"A": 1}}),
    (["/bin/true"], {"env": {7: "x"}}),
    (["/bin/true"], {"env": {"A": "b\0"}}),
    (["/bin/true"], {"env": 0}),
    (["/bin/true"], {"env": 7, "close_fds": False}),
    (["/bin/true"], {"env": []}),
    (["/bin/true"], {"env": [("A", "b")]}),
    (["/bin/true"], {"env": WithoutItems()}),
    (["/bin/true", 7], {}),
    (["/bin/true", "a\0b"], {}),
    (["a\0/b"], {}),
    ([Path("/bin/true"), b"x", Path("y")], {}),
    (["/bin/true"], {"stdin": 2**31}),
    (["/bin/true"], {"stdout": 2**64}),
    (["/bin/true"], {"stdin": 10**9, "close_fds": False}),
    (["/bin/true"], {"stderr": 10**9}),
    ([], {"executable": "/bin/true"}),
    ([""], {"executable": "/bin/true"}),
    ([b""], {"executable": "/bin/true", "close_fds": False}),
    ("true", {"shell": True, "env": {"=C:": "x"}}),
    ("true", {"shell": True, "env": {"": "x"}}),
    ("true", {"shell": True, "cwd": "/nowhere"}),
    ("true", {"shell": True, "executable": "/nowhere"}),
    ("true", {"shell": True, "stdout": 999}),
]


@pytest.mark.parametrize("args, options", FAILURES, ids=lambda value: repr(value)[:40])
def test_an_error_is_the_standard_one(no_fork, monkeypatch, args, options):
    def start(module):
        # Some versions take what others refuse.
        with module.Popen(args, **options) as process:
            return process.wait()

    ours = outcome(start, subprocess)
    monkeypatch.undo()
    theirs = outcome(start, standard)
    assert ours == theirs


def left_of_a_failed_start(module, args, options):
    """What can be seen of the Popen after an error, and what it has called of itself."""
    calls = []

    class Watched(module.Popen):
        def _handle_exitstatus(self, *args, **kwargs):
            calls.append(("_handle_exitstatus", args[0]))
            super()._handle_exitstatus(*args, **kwargs)

        def _close_pipe_fds(self, *args):
            calls.append("_close_pipe_fds")
            super()._close_pipe_fds(*args)

        def __setattr__(self, name, value):
            calls.append(name)
            super().__setattr__(name, value)

    popen = Watched.__new__(Watched)
    try:
        popen.__init__(args, **options)
    except Exception as error:
        seen = [repr(error), error.args, repr(error.__cause__), repr(error.__context__)]
    else:
        # It has no such argument, or takes what it is given.
        popen.communicate()
        seen = ["started"]
    values = {name: repr(value).split(" name=")[0] for name, value in vars(popen).items()}
    values["_waitpid_lock"] = None
    # A descriptor that is not open is found out before there is a child.
    wrong = os.strerror(errno.EBADF) in seen[0]
    values["pid"] = wrong or type(vars(popen).get("pid"))
    for name in ("poll", "wait", "kill", "communicate", "__repr__"):
        try:
            seen.append(getattr(popen, name)())
        except Exception as error:
            seen.append(repr(error))
    return seen, calls, values


@pytest.mark.parametrize("args, options", FAILURES, ids=lambda value: repr(value)[:40])
def test_a_failed_start_leaves_the_popen_as_the_standard_one(no_fork, monkeypatch, args, options):
    ours = left_of_a_failed_start(subprocess, args, options)
    monkeypatch.undo()
    theirs = left_of_a_failed_start(standard, args, options)
    for mine, standard_one in zip(ours, theirs):
        assert mine == standard_one


def test_an_exec_format_error_is_not_run_by_a_shell(tmp_path, no_fork):
    script = tmp_path / "script"
    script.write_text("exit 3\n")
    script.chmod(0o755)
    with pytest.raises(OSError) as raised:
        subprocess.run([script])
    assert raised.value.errno == errno.ENOEXEC
    # As text where the standard module uses posix_spawn.
    assert os.fspath(raised.value.filename) == str(script)


def test_the_search_goes_on_past_a_file_that_does_not_run(tmp_path):
    bad, good = tmp_path / "bad", tmp_path / "good"
    for folder, text in ((bad, "nothing\n"), (good, "#!/bin/sh\nexit 5\n")):
        folder.mkdir()
        (folder / "tool").write_text(text)
        (folder / "tool").chmod(0o755)
    env = {"PATH": "%s:%s" % (bad, good)}
    assert subprocess.call(["tool"], env=env) == standard.call(["tool"], env=env) == 5
    (good / "tool").unlink()
    assert outcome(subprocess.call, ["tool"], env=env) == outcome(standard.call, ["tool"], env=env)


def test_the_environment_keeps_its_order(no_fork):
    env = {"B": "1", "A": "2", "C": "3"}
    out = subprocess.check_output(["/usr/bin/env"], env=env)
    assert out == b"B=1\nA=2\nC=3\n"


def test_a_variable_put_beside_os_environ_reaches_the_child(no_fork):
    os.putenv("FORKLESS_TEST", "put")
    try:
        out = subprocess.check_output(["sh", "-c", "echo $FORKLESS_TEST"])
        assert out == b"put\n"
    finally:
        os.unsetenv("FORKLESS_TEST")


def test_pass_fds_are_inherited_and_no_others(no_fork):
    read, write = os.pipe()
    other = os.dup(read)
    os.set_inheritable(other, True)
    try:
        code = (
            "import os\n"
            "def is_open(fd):\n"
            "    try: os.fstat(fd)\n"
            "    except OSError: return False\n"
            "    return True\n"
            "print(is_open(%d), is_open(%d))" % (write, other)
        )
        run = subprocess.check_output
        assert run([PYTHON, "-c", code], pass_fds=(write,), text=True) == "True False\n"
        assert run([PYTHON, "-c", code], close_fds=False, text=True) == "False True\n"
    finally:
        for fd in (read, write, other):
            os.close(fd)


def test_low_descriptors_may_be_closed_in_the_parent():
    """With 0, 1 and 2 closed, pipes get those numbers."""
    code = textwrap.dedent(
        """
        import os, sys
        from forkless import subprocess
        report = os.dup(2)
        for closed in ((0,), (1,), (0, 1), (0, 1, 2)):
            for fd in closed:
                os.close(fd)
            child = subprocess.Popen(["sh", "-c", "cat; echo err >&2"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            out = child.communicate(b"in")
            os.write(report, repr(out).encode() + b"\\n")
            null = os.open("/dev/null", os.O_RDWR)
            for fd in closed:
                if fd != null:
                    os.dup2(null, fd)
        """
    )
    done = standard.run([PYTHON, "-c", code], stderr=standard.PIPE, text=True)
    assert done.stderr.splitlines() == ["(b'in', b'err\\n')"] * 4


def test_crossed_standard_descriptors(no_fork):
    first, second = os.pipe(), os.pipe()
    child = subprocess.Popen(
        ["sh", "-c", "echo out; echo err >&2"], stdout=first[1], stderr=second[1]
    )
    assert child.wait() == 0
    os.close(first[1])
    os.close(second[1])
    assert os.read(first[0], 10) == b"out\n"
    assert os.read(second[0], 10) == b"err\n"
    os.close(first[0])
    os.close(second[0])


def test_text_bytes_and_paths_as_arguments(no_fork, tmp_path):
    args = ["printf", b"%s.", "\udcff", tmp_path]
    out = subprocess.check_output(args)
    assert out == b"\xff." + os.fsencode(tmp_path) + b"."
    assert subprocess.call(tmp_path.__class__("/bin/true")) == 0
    with pytest.raises(TypeError, match="path-like args is not allowed when shell is true"):
        subprocess.call(tmp_path, shell=True)


def test_shell_lines_and_their_arguments():
    assert subprocess.check_output("echo $0 $1", shell=True) == b"/bin/sh\n"
    assert subprocess.check_output(["echo $0 $1", "a", "b"], shell=True) == b"a b\n"
    assert subprocess.call("exit 3", shell=True) == 3
    out = subprocess.check_output("echo $0", shell=True, executable="/bin/bash")
    assert out == standard.check_output("echo $0", shell=True, executable="/bin/bash")
    assert subprocess.getstatusoutput("echo a; exit 4") == (4, "a")
    assert subprocess.getoutput("echo b >&2") == "b"


def test_a_timeout_kills_and_tells_the_output(no_fork):
    with pytest.raises(standard.TimeoutExpired) as raised:
        subprocess.run(["sh", "-c", "echo first; exec sleep 60"], stdout=subprocess.PIPE, timeout=1)
    assert raised.value.timeout == 1
    assert raised.value.output == b"first\n"


def test_the_audit_event_is_the_standard_one():
    code = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        seen = []
        names = ("subprocess.Popen", "os.posix_spawn")
        sys.addaudithook(lambda name, args: seen.append((name, args)) if name in names else 0)
        import subprocess as standard
        from forkless import subprocess
        for module in (standard, subprocess):
            module.call(["/bin/true", "x"], cwd="/", env={"A": "1"})
            module.call("true", shell=True)
            # The standard module leaves these to posix_spawn.
            module.call(["/bin/true", "x"], close_fds=False, env={"A": "1"})
            module.call("/bin/true", close_fds=False)
            module.call("true", shell=True, close_fds=False)
            module.call([Path("/bin/true"), Path("x")], close_fds=False)
            true = {"args": "/bin/true", "close_fds": False}
            for refused in (
                {"env": {"": "x"}},
                {"stdin": 10**9},
                {"env": {"A": "\\0"}},
                {"args": ["/bin/true", "\\0"]},
                {"args": "true\\0", "shell": True},
                {"args": "true\\0", "shell": True, "close_fds": True},
            ):
                try:
                    module.call(**dict(true, **refused))
                except (OSError, ValueError):
                    pass
        half = len(seen) // 2
        assert seen[:half] == seen[half:], seen
        by_posix_spawn = [name for name, _ in seen[:half]].count("os.posix_spawn")
        assert half - by_posix_spawn == 12 and by_posix_spawn >= 4 * standard._USE_POSIX_SPAWN, seen
        """
    )
    assert standard.call([PYTHON, "-c", code]) == 0


def test_an_audit_hook_may_refuse():
    code = textwrap.dedent(
        """
        import sys
        def refuse(name, args):
            if name == "subprocess.Popen":
                raise PermissionError("refused")
        from forkless import subprocess
        sys.addaudithook(refuse)
        try:
            subprocess.call(["true"], stdout=subprocess.PIPE)
        except PermissionError as error:
            print(error)
        """
    )
    assert standard.check_output([PYTHON, "-c", code]) == b"refused\n"


def test_signals_are_restored_or_not(no_fork):
    def ignored(**options):
        return int(status_of(None, "SigIgn", **options), 16)

    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        bit = 1 << (number - 1)
        assert not ignored() & bit
        assert ignored(restore_signals=False) & bit


def test_nothing_of_a_failed_start_is_left(no_fork):
    def descriptors():
        return sorted(os.listdir("/proc/self/fd"))

    before = descriptors()
    for _ in range(50):
        with pytest.raises(FileNotFoundError):
            subprocess.Popen(
                ["/nowhere"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        with pytest.raises(NotADirectoryError):
            subprocess.Popen(["true"], cwd="/etc/passwd", stdout=subprocess.PIPE)
    gc.collect()
    assert descriptors() == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_no_descriptor_is_left_of_children_that_ran(no_fork):
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(20):
        subprocess.run(["true"], capture_output=True)
        subprocess.run(["true"], deadline=60, kill_group=True)
        subprocess.run("true", shell=True)
    gc.collect()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_child_that_nobody_waited_for_is_warned_of_and_reaped(no_fork):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        child = subprocess.Popen(["sleep", "60"])
        pid = child.pid
        child_ref = child
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        del child, child_ref
        gc.collect()
    assert any(w.category is ResourceWarning for w in caught)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_the_lock_of_the_interpreter_is_released(tmp_path):
    """A start that takes long, since its program waits for a writer, lets other threads run."""
    program = tmp_path / "program"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        with open(program, "ab"):
            before = time.monotonic()
            # The native module waits up to 63 ms for the file's writer.
            with pytest.raises(OSError) as raised:
                subprocess.Popen([program])
            after = time.monotonic()
        assert raised.value.errno == errno.ETXTBSY
    finally:
        stop.set()
        thread.join()
    assert any(before < tick < after for tick in ticks)


@pytest.mark.parametrize("options", [{}, {"bufsize": 0}, {"text": True}], ids=str)
def test_both_outputs_are_read_whole(no_fork, options):
    code = "import sys; sys.stdout.write('o' * 3000001); sys.stderr.write('e' * 2000001)"
    child = subprocess.Popen([PYTHON, "-c", code], stdout=-1, stderr=-1, **options)
    out, err = child.communicate()
    kind = str if options.get("text") else bytes
    assert type(out) is type(err) is kind
    assert (len(out), len(err)) == (3000001, 2000001)
    assert child.stdout.closed and child.stderr.closed
    # As of an ended communication.
    assert child.communicate() == (out, err)


@pytest.mark.parametrize("closed", [["stdout"], ["stderr"], ["stdout", "stderr"]], ids=str)
@pytest.mark.parametrize("text", [False, True])
def test_communicate_leaves_out_a_pipe_that_was_closed(closed, text):
    """Regression: ValueError, as of a read from the closed file."""

    def talk(module):
        # What it writes into the other comes as it would.
        line = {"stdout": "echo err >&2; ", "stderr": "echo out; "}.get("".join(closed), "")
        child = module.Popen(["sh", "-c", line + "exit 3"], stdout=-1, stderr=-1, text=text)
        for name in closed:
            getattr(child, name).close()
        return child.communicate(), child.returncode

    assert talk(subprocess) == talk(standard)


def test_an_interrupted_communicate_loses_nothing(no_fork):
    class Stop(Exception):
        pass

    raised = threading.Event()

    def handler(number, frame):
        if not raised.is_set():
            raised.set()
            raise Stop

    main = threading.get_ident()

    def interrupt():
        while sys._current_frames()[main].f_code.co_name != "_communicate":
            time.sleep(0.001)
        # Again and again: one that comes just before the read would not end it.
        while not raised.wait(0.05):
            signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    go, gone = os.pipe()
    thread = threading.Thread(target=interrupt)
    try:
        line = "echo one; cat <&7; echo two; echo err >&2"
        child = subprocess.Popen(["sh", "-c", line], fds={7: go}, stdout=-1, stderr=-1, text=True)
        thread.start()
        with pytest.raises(Stop):
            child.communicate()
        os.close(gone)
        gone = None
        assert child.communicate() == ("one\ntwo\n", "err\n")
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
        os.close(go)
        if gone is not None:
            os.close(gone)


# Credentials.


@needs_root
def test_user_and_groups_are_those_of_the_standard_module(no_fork, monkeypatch):
    cases = [
        {"user": 65534},
        {"group": 65534},
        {"extra_groups": [7, 9]},
        {"extra_groups": []},
        {"user": "nobody", "group": "nogroup", "extra_groups": ["nogroup", 7]},
        {"user": 65534, "group": 65534, "extra_groups": []},
    ]
    line = ["grep", "-E", "^(Uid|Gid|Groups)", "/proc/self/status"]
    ours = [subprocess.check_output(line, **case) for case in cases]
    monkeypatch.undo()
    assert ours == [standard.check_output(line, **case) for case in cases]


@needs_root
def test_the_directory_is_entered_before_the_user_changes(tmp_path, no_fork):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    out = subprocess.check_output(["/bin/pwd"], cwd=private, user=65534)
    assert out.strip() == os.fsencode(private)


@needs_root
def test_a_refused_user_names_no_file_where_the_standard_module_names_none():
    code = textwrap.dedent(
        """
        import os, sys, subprocess as standard
        from forkless import subprocess
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        for options in ({"user": 0}, {"group": 0}, {"extra_groups": [0]}):
            seen = []
            for module in (standard, subprocess):
                try:
                    module.call(["/bin/true"], **options)
                except PermissionError as error:
                    seen.append((str(error), error.filename))
            assert len(seen) == 2 and seen[0] == seen[1], seen
        """
    )
    done = standard.run([PYTHON, "-c", code], env=dict(os.environ, PYTHONPATH=_path()))
    assert done.returncode == 0


def _path():
    return os.path.dirname(os.path.dirname(forkless.__file__))


@needs_root
def test_without_privilege_no_saved_id_keeps_a_way_back():
    code = textwrap.dedent(
        """
        import os, subprocess as standard
        from forkless import subprocess
        os.setgroups([]); os.setresuid(1001, 1000, 1000)
        line = ["grep", "^Uid", "/proc/self/status"]
        ours = subprocess.check_output(line, user=1001)
        assert ours == standard.check_output(line, user=1001), ours
        print(ours.split())
        """
    )
    out = standard.check_output([PYTHON, "-c", code], env=dict(os.environ, PYTHONPATH=_path()))
    assert out.decode().count("1001") == 4


# preexec_fn.


def test_preexec_fn_works_and_is_warned_of_once():
    code = textwrap.dedent(
        """
        import os, resource, signal, warnings
        warnings.simplefilter("always")
        from forkless import subprocess
        def limits():
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert subprocess.call(["true"], preexec_fn=limits) == 0
            assert subprocess.call(["true"], preexec_fn=limits) == 0
        seen = [w for w in caught if issubclass(w.category, RuntimeWarning)]
        assert len(seen) == 1, seen
        print(seen[0].category.__name__, seen[0].filename, seen[0].message)
        try:
            subprocess.call(["true"], preexec_fn=lambda: 1 / 0)
        except subprocess.SubprocessError as error:
            print(error)
        """
    )
    out = standard.check_output([PYTHON, "-c", code], text=True)
    first, second = out.splitlines()
    assert first.startswith("ForklessWarning <string> preexec_fn makes this start fork")
    assert "start_new_session=True" in first and "rlimits={...}" in first
    assert second == "Exception occurred in preexec_fn."


def test_preexec_fn_and_our_options_exclude_each_other():
    with pytest.raises(ValueError, match="cannot go together with nice"):
        subprocess.Popen(["true"], preexec_fn=os.setsid, nice=3)


# Our own keyword arguments.


def test_limits(no_fork):
    limits = {resource.RLIMIT_NOFILE: (50, 60), resource.RLIMIT_CORE: 0}
    code = (
        "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE))"
    )
    out = subprocess.check_output([PYTHON, "-c", code], rlimits=limits, text=True)
    assert out == "(50, 60) (0, 0)\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    code = "import resource as r; print(r.getrlimit(r.RLIMIT_STACK) == (%d, %d))" % (soft, hard)
    again = {resource.RLIMIT_STACK: (soft, hard)}
    assert subprocess.check_output([PYTHON, "-c", code], rlimits=again) == b"True\n"


def test_nice_affinity_scheduler_and_no_new_privs(no_fork):
    cpu = min(os.sched_getaffinity(0))
    code = (
        "import os; print(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0),"
        " os.sched_getscheduler(0) == os.SCHED_BATCH)"
    )
    out = subprocess.check_output(
        [PYTHON, "-c", code], nice=7, affinity={cpu}, scheduler=os.SCHED_BATCH, text=True
    )
    assert out == "7 {%d} True\n" % cpu
    assert status_of(None, "NoNewPrivs", no_new_privs=True) == "1"
    assert status_of(None, "NoNewPrivs", no_new_privs=False) == "0"


def test_a_death_signal_comes_when_the_process_dies_not_the_thread():
    code = textwrap.dedent(
        """
        import os, signal, sys, threading
        from forkless import subprocess
        def start():
            global child
            child = subprocess.Popen(["sleep", "60"], pdeathsig=signal.SIGTERM)
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
        assert child.poll() is None
        print(child.pid, flush=True)
        sys.stdin.read()
        os._exit(0)
        """
    )
    parent = standard.Popen([PYTHON, "-c", code], stdin=standard.PIPE, stdout=standard.PIPE)
    pid = int(parent.stdout.readline())
    pidfd = os.pidfd_open(pid)
    assert select.select([pidfd], [], [], 0.05)[0] == []
    parent.stdin.close()
    assert select.select([pidfd], [], [], 30)[0] == [pidfd]
    parent.stdout.close()
    parent.wait()
    os.close(pidfd)


def test_descriptors_at_any_number(no_fork, tmp_path):
    read, write = os.pipe()
    with open(tmp_path / "file", "w+b") as file:
        code = (
            "import os\n"
            "os.write(7, b'seven\\n')\n"
            "os.write(%d, b'ten\\n')\n"
            "try: os.fstat(3)\n"
            "except OSError: os._exit(5)\n" % read
        )
        fds = {7: write, read: file, 3: None}
        assert subprocess.call([PYTHON, "-c", code], fds=fds) == 5
        os.close(write)
        assert os.read(read, 100) == b"seven\n"
        os.close(read)
        file.seek(0)
        assert file.read() == b"ten\n"


def test_descriptors_may_change_places(no_fork):
    first, second = socket.socketpair(), socket.socketpair()
    a, b = first[1].fileno(), second[1].fileno()
    with pytest.raises(ValueError, match="number 1 is given by another argument"):
        subprocess.run(["true"], fds={1: a}, stdout=subprocess.PIPE)
    code = "import os; os.write(%d, b'A'); os.write(%d, b'B')" % (a, b)
    assert subprocess.call([PYTHON, "-c", code], fds={a: b, b: a}) == 0
    assert first[0].recv(10) == b"B"
    assert second[0].recv(10) == b"A"
    for pair in (first, second):
        for end in pair:
            end.close()


def test_a_controlling_terminal(no_fork):
    main, tty = os.openpty()
    try:
        child = subprocess.Popen(
            ["sh", "-c", "echo ok >/dev/tty"], stdin=tty, stdout=tty, stderr=tty, setctty=True
        )
        assert child.wait() == 0
        assert os.read(main, 100) == b"ok\r\n"
    finally:
        os.close(main)
        os.close(tty)


def test_kill_group_reaches_grandchildren(no_fork):
    read, write = os.pipe()
    child = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo started; sleep 60"],
        kill_group=True,
        stdout=write,
    )
    os.close(write)
    with os.fdopen(read, "rb") as output:
        assert output.readline() == b"started\n"
        assert os.getpgid(child.pid) == child.pid
        child.terminate()
        assert child.wait() == -signal.SIGTERM
        # The end comes only when the grandchild is gone, too.
        assert output.read() == b""


def test_kill_group_reaches_grandchildren_after_the_child_has_ended(no_fork):
    if _kernel() < (6, 9):
        pytest.skip("skipped: signals to a group by its pidfd need Linux 6.9")
    child = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo started"], kill_group=True, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"started\n"
    assert child.wait() == 0
    child.kill()
    assert child.stdout.read() == b""
    child.stdout.close()


def test_a_leader_that_has_ended_alone_keeps_no_descriptor(no_fork):
    subprocess.run(["true"], kill_group=True)
    before = open_descriptors()
    children = [
        subprocess.Popen(["true"], **options)
        for options in ({"kill_group": True}, {"deadline": 600}, {"deadline": float("inf")})
    ]
    for child in children:
        assert child.wait() == 0
        child.kill()
    assert open_descriptors() == before


def test_a_leader_whose_status_another_has_taken_is_signalled_no_more(no_fork):
    child = subprocess.Popen(["true"], kill_group=True)
    os.waitpid(child.pid, 0)
    assert child.poll() == 0
    # Its number may be another process's by now.
    assert child._leader.reaped and not child._leader.signal(0)


def _kernel():
    return tuple(int(part) for part in os.uname().release.split(".")[:2])


def test_a_timeout_of_run_reaches_grandchildren(no_fork):
    with pytest.raises(standard.TimeoutExpired):
        subprocess.run(
            ["sh", "-c", "sleep 600 & wait"], kill_group=True, timeout=0.2, capture_output=True
        )


def test_a_deadline_holds_over_grandchildren(no_fork):
    with pytest.raises(standard.TimeoutExpired) as raised:
        subprocess.run(
            ["sh", "-c", "echo first; sleep 600 & exit 0"],
            deadline=0.5,
            stdout=subprocess.PIPE,
        )
    assert raised.value.timeout == 0.5
    assert raised.value.output == b"first\n"


def test_a_deadline_holds_while_nobody_waits(no_fork):
    child = subprocess.Popen(["sleep", "600"], deadline=0.1, stdout=subprocess.PIPE)
    # No wait of Popen's: the end of the pipe shows the end of the child.
    assert child.stdout.read() == b""
    with pytest.raises(standard.TimeoutExpired) as raised:
        child.wait()
    assert str(raised.value) == "Command '['sleep', '600']' timed out after 0.1 seconds"
    assert child.wait() == child.returncode == -signal.SIGKILL
    child.stdout.close()


def test_a_child_that_ends_before_its_deadline_is_as_any_other(no_fork):
    done = subprocess.run(["sh", "-c", "echo a; exit 3"], deadline=60, capture_output=True)
    assert (done.returncode, done.stdout) == (3, b"a\n")
    child = subprocess.Popen(["sh", "-c", "exit 4"], deadline=60)
    assert child.wait(timeout=30) == 4


def test_a_timeout_before_the_deadline_is_the_standard_one(no_fork):
    child = subprocess.Popen(["sleep", "600"], deadline=300)
    with pytest.raises(standard.TimeoutExpired) as raised:
        child.wait(timeout=0.05)
    assert raised.value.timeout == 0.05
    assert child.poll() is None
    child.kill()
    assert child.wait() == -signal.SIGKILL


def test_deadlines_of_many_children_come_in_their_order(no_fork):
    children = [subprocess.Popen(["sleep", "600"], deadline=n / 50) for n in (9, 1, 5, 3, 7)]
    for child in children:
        with pytest.raises(standard.TimeoutExpired):
            child.wait()


def _ended(child):
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.poll() == 0


def _dropped(child):
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("see", [subprocess.Popen.wait, _ended, _dropped])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_thread_of_the_deadlines_ends_with_the_last_of_them(no_fork, monkeypatch, see):
    from forkless import _group

    monkeypatch.setattr(_group, "_watch", _group._Watch())
    children = [subprocess.Popen(["true"], deadline=seconds) for seconds in (600, 400, 500)]
    thread = _group._watch.thread
    assert thread.name == "forkless deadlines" and thread.is_alive()
    while children:
        see(children.pop())
    thread.join(60)
    assert not thread.is_alive() and not _group.is_watching()
    # The next one has a thread again.
    with pytest.raises(standard.TimeoutExpired):
        subprocess.Popen(["sleep", "600"], deadline=0.1).wait()


def test_a_deadline_that_two_threads_see_is_told(no_fork):
    from forkless import _group

    child = subprocess.Popen(["sleep", "600"], deadline=500)
    # The watch, and then a wait that was about to do the same.
    child._leader.expire()
    assert _group._readable(child._leader.child.pidfd, 30)
    child._leader.expire()
    with pytest.raises(standard.TimeoutExpired):
        child.wait()


def test_a_deadline_holds_for_whoever_waits_where_no_thread_can_be_had(no_fork, monkeypatch):
    """As in a subinterpreter."""

    def refuse(*args, **kwargs):
        raise RuntimeError("daemon threads are disabled")

    from forkless import _group

    monkeypatch.setattr(_group, "_watch", _group._Watch())
    monkeypatch.setattr(_group.threading, "Thread", refuse)
    with pytest.raises(standard.TimeoutExpired):
        subprocess.Popen(["sleep", "600"], deadline=0.1).wait()
    with pytest.raises(standard.TimeoutExpired) as raised:
        subprocess.run(
            ["sh", "-c", "echo a; sleep 600 & exit 0"], deadline=0.2, capture_output=True
        )
    assert raised.value.output == b"a\n"
    with pytest.raises(standard.TimeoutExpired) as raised:
        subprocess.run(["sleep", "600"], deadline=0.2, timeout=0.1, input=b"x" * 1000000)
    assert raised.value.timeout == 0.1
    assert subprocess.run(["cat"], input=b"x", deadline=60, capture_output=True).stdout == b"x"


def test_a_deadline_holds_without_a_pidfd(no_fork, monkeypatch):
    spawn = subprocess._forkless.spawn

    def without(*args, **kwargs):
        # The capsule is dropped, and so the pidfd closed.
        pid = spawn(*args, **kwargs)[0]
        return pid, -1, -1, None

    monkeypatch.setattr(subprocess._forkless, "spawn", without)
    with pytest.raises(standard.TimeoutExpired):
        subprocess.run(["sh", "-c", "sleep 600"], deadline=0.2, capture_output=True)
    child = subprocess.Popen(["sleep", "600"], kill_group=True)
    thread = threading.Thread(target=child.wait)
    thread.start()
    # Though the other thread waits.
    child.kill()
    thread.join()
    assert child.returncode == -signal.SIGKILL


def test_options_are_checked_before_anything_starts(no_fork):
    wrong = [
        ({"rlimits": 5}, TypeError),
        ({"rlimits": {resource.RLIMIT_CORE: (1, 2, 3)}}, ValueError),
        ({"rlimits": {resource.RLIMIT_CORE: -5}}, ValueError),
        ({"rlimits": {99: 5}}, ValueError),
        ({"nice": 20}, ValueError),
        ({"nice": "x"}, TypeError),
        ({"affinity": []}, ValueError),
        ({"affinity": [-1]}, ValueError),
        ({"scheduler": 77}, ValueError),
        ({"scheduler": (os.SCHED_BATCH, 5)}, ValueError),
        ({"scheduler": (1, 2, 3)}, ValueError),
        ({"pdeathsig": 65}, ValueError),
        ({"fds": [1]}, TypeError),
        ({"fds": {-1: 0}}, ValueError),
        ({"deadline": -1}, ValueError),
        ({"deadline": "1"}, TypeError),
        ({"deadline": float("nan")}, ValueError),
        ({"deadline": 10**400}, ValueError),
        ({"fds": {7: -1}}, ValueError),
        ({"rlimits": {resource.RLIMIT_CORE: (5, 3)}}, ValueError),
        ({"setctty": -2}, ValueError),
        ({"cgroup": 5}, TypeError),
        ({"deadline": 5, "process_group": 1}, ValueError),
    ]
    for options, error in wrong:
        with pytest.raises(error) as raised:
            subprocess.Popen(["true"], **options)
        assert "\n" not in str(raised.value), options


def test_an_option_that_is_none_counts_as_not_given(no_fork):
    none = dict.fromkeys(subprocess._OPTIONS)
    assert subprocess.call(["true"], **none) == 0


NOTHING = [
    {**dict.fromkeys(sorted(subprocess._OPTIONS)), "process_group": None, "pipesize": None},
    {"kill_group": False, "no_new_privs": False, "setctty": False},
    {"fds": {}, "rlimits": {}, "pdeathsig": 0, "process_group": -1},
]


@pytest.mark.parametrize("options", NOTHING, ids=repr)
def test_options_that_ask_for_nothing_go_with_everything(options):
    if "pipesize" in options and subprocess._KNOWS_PIPESIZE:
        del options["pipesize"]
    if "process_group" in options and subprocess._KNOWS_PROCESS_GROUP:
        options["process_group"] = -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert subprocess.call(["true"], preexec_fn=os.getpid, **options) == 0
    # As without them, a line needs no shell.
    plain = subprocess.Popen("exec sleep 0", shell=True)
    with subprocess.Popen("exec sleep 0", shell=True, **options) as process:
        assert (process._line is None) == (plain._line is None)
    plain.wait()


@pytest.mark.parametrize(
    "options, named",
    [
        ({"nice": 0, "fds": {}, "deadline": None}, "nice"),
        ({"setctty": 0, "kill_group": False}, "setctty"),
        ({"deadline": float("inf"), "pdeathsig": signal.SIGTERM}, "deadline, pdeathsig"),
    ],
)
def test_the_error_beside_preexec_fn_names_what_was_asked_for(options, named):
    with pytest.raises(ValueError, match="cannot go together with %s:" % named):
        subprocess.Popen(["true"], preexec_fn=os.getpid, **options)


def test_a_refused_option_says_what_to_do(no_fork):
    with pytest.raises(OSError) as raised:
        subprocess.call(["true"], cgroup="/nowhere/at/all")
    assert raised.value.errno == errno.ENOENT
    assert raised.value.filename == "/nowhere/at/all"
    assert "must be a cgroup's" in str(raised.value)
    assert isinstance(raised.value.__cause__, _native.StepError)
    assert raised.value.__cause__.step == "cgroup"
    with pytest.raises(OSError) as raised:
        subprocess.call(["true"], fds={5: 999})
    assert raised.value.errno == errno.EBADF
    assert "(fds: descriptor 999, for the child's 5, is not open)" in str(raised.value)
    with pytest.raises(OSError) as raised:
        subprocess.call(["true"], fds={5: 1, 2**30 - 1: 0})
    assert "(fds: the child's %d must be below RLIMIT_NOFILE)" % (2**30 - 1) in str(raised.value)
    # Another option's is as ever.
    with pytest.raises(OSError) as raised:
        subprocess.call(["true"], fds={5: 1}, stdin=999)
    assert str(raised.value) == "[Errno 9] Bad file descriptor"
    with pytest.raises(OSError) as raised:
        subprocess.call(["true"], stdin=subprocess.DEVNULL, setctty=0)
    assert raised.value.errno == errno.ENOTTY


def test_a_process_group_and_a_pipe_size_in_every_version(no_fork):
    child = subprocess.Popen(["cat"], process_group=0, stdin=subprocess.PIPE, pipesize=1 << 17)
    import fcntl

    assert os.getpgid(child.pid) == child.pid
    assert fcntl.fcntl(child.stdin, 1032) == 1 << 17
    child.communicate()


# The children of threads, and after a fork.


def test_threads_start_and_wait_at_once(no_fork):
    wrong = []

    def work(number):
        for i in range(20):
            text = "%d-%d" % (number, i)
            out = subprocess.run(["echo", text], capture_output=True, text=True).stdout
            if out != text + "\n":
                wrong.append((text, out))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_process_may_start_children_and_has_its_own_deadlines():
    code = textwrap.dedent(
        """
        import os
        from forkless import subprocess
        mine = subprocess.Popen(["sleep", "600"], deadline=500)
        pid = os.fork()
        if pid == 0:
            ok = subprocess.call(["true"]) == 0
            try:
                subprocess.call(["sleep", "600"], deadline=0.1)
                ok = False
            except subprocess.TimeoutExpired:
                pass
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert mine.poll() is None
        mine.kill()
        mine.wait()
        """
    )
    assert standard.call([PYTHON, "-c", code]) == 0


def test_the_native_spawn_tells_of_a_failure_after_it_has_returned(no_fork):
    child = _native.spawn(
        [b"x"],
        executables=[b"/nowhere"],
        env=None,
        cwd=None,
        fds=[],
        close_fds=True,
        keep=[],
        restore_signals=True,
        setsid=False,
        blocking=False,
    )
    select.select([child.exec_fd], [], [], 30)
    deadline = time.monotonic() + 30
    while child.start_error() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    error = child.start_error()
    assert (error.step, error.errno) == ("exec", errno.ENOENT)
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, 0)


def test_the_documentation_is_right():
    # Of subprocess its own text alone: the functions' texts are the standard module's.
    finder = doctest.DocTestFinder(recurse=False)
    tests = finder.find(subprocess, "forkless.subprocess") + finder.find(forkless, "forkless")
    tests += doctest.DocTestFinder().find(_native, "forkless._native")
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test)
    assert runner.failures == 0
    assert runner.tries > 3


def test_the_file_of_a_stream_may_be_given(no_fork, tmp_path):
    with open(tmp_path / "out", "w+b") as file:
        assert subprocess.call(["echo", "x"], stdout=file) == 0
        file.seek(0)
        assert file.read() == b"x\n"
    with pytest.raises(io.UnsupportedOperation):
        subprocess.call(["echo"], stdout=io.BytesIO())
