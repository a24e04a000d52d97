"""Lines without a shell: the same results as with it, and which of the two it was."""

from __future__ import annotations

import doctest
import errno
import inspect
import os
import pathlib
import pickle
import signal
import subprocess as standard
import sys
import threading

import pytest

import forkless
from forkless import _popen, _shell, subprocess
from _tools import FORKS, c_calls, python, skip

#: A program that is in no shell.
KILLED = "%s -c 'import os, signal; os.kill(os.getpid(), signal.%%s)'" % sys.executable


def sh_is_known() -> bool:
    with subprocess.Popen("exec sleep 0", shell=True) as process:
        return process._line is not None


@pytest.fixture(autouse=True)
def known_shell() -> None:
    if not sh_is_known():
        skip("this machine's /bin/sh is none whose lines can be run without it")


def sh_waits() -> bool:
    """Whether this /bin/sh stays as the parent of a line's only program, as Debian 12's dash."""
    line = "%s -c 'import os; print(os.getppid())'" % sys.executable
    done = standard.run(line, shell=True, stdout=standard.PIPE, text=True)
    return int(done.stdout) != os.getpid()


def test_the_examples_of_the_documentation() -> None:
    failures, count = doctest.testmod(_shell)
    assert count > 0 and failures == 0


def test_a_simple_line_runs_as_the_child_itself() -> None:
    line = "%s -c 'import os; print(os.getppid())'" % sys.executable
    with c_calls() as calls:
        process = subprocess.Popen(line, shell=True, stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate()
    assert process._line is not None
    assert int(out) == os.getpid()
    assert "shell_start" in calls and "spawn" not in calls and not calls & FORKS


LINES = [
    "exec sleep 0",
    "sleep 0",
    "/bin/echo one  'two  three' \"$HOME\"",
    "cat < /etc/passwd",
    "cat /etc/passwd >/dev/null",
    "cat /nonexistent",
    "cat /nonexistent 2>&1",
    "cat < /nonexistent",
    "/nonexistent",
    "/etc/passwd",
    "no-such-program-anywhere --option",
    "NAME=value printenv NAME",
    "cd / && pwd",
    "cd / && env pwd",
    "cd /nonexistent && env pwd",
    "sleep 0 && exit 3",
    "test -d /nowhere || exit 4",
    "printenv HOME | cat",
    "echo *",
    "echo $$ >/dev/null",
    "! sleep 0",
    "exit 7",
    "",
    "# nothing",
    "sleep 0;",
    "sleep 0\n",
    "'",
    "( sleep 0 )",
    "-x",
    "+x",
    "ls\x00",
]
LINES += [KILLED % name for name in ("SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGPIPE")]
LINES += ["exec " + KILLED % "SIGKILL", KILLED % "SIGKILL" + " 2>/dev/null"]


def outcome(module, line, **options):
    try:
        done = module.run(line, shell=True, **options)
    except Exception as error:
        return type(error), str(error)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("line", LINES)
def test_outcomes_are_the_standard_ones(line: str, tmp_path: pathlib.Path) -> None:
    for options in (
        {"capture_output": True},
        {"stdout": standard.PIPE},
        {"stdout": standard.PIPE, "stderr": standard.STDOUT, "text": True},
        {"stdout": standard.PIPE, "stderr": standard.DEVNULL, "cwd": str(tmp_path)},
        {"capture_output": True, "env": {"HOME": "/x y", "PATH": os.environ["PATH"]}},
        {"capture_output": True, "env": {}},
        {"capture_output": True, "close_fds": False, "restore_signals": False},
        {"capture_output": True, "input": b"given"},
    ):
        assert outcome(subprocess, line, **options) == outcome(standard, line, **options), options


@pytest.mark.parametrize("line", LINES)
def test_getoutput_is_the_standard_one(line: str) -> None:
    def told(module):
        try:
            return module.getstatusoutput(line)
        except ValueError as error:
            return str(error)

    assert told(subprocess) == told(standard)


def test_a_file_gets_the_shells_words(tmp_path: pathlib.Path) -> None:
    said = []
    for module in (standard, subprocess):
        path = tmp_path / module.__name__
        with open(path, "wb") as file:
            code = module.call(KILLED % "SIGKILL", shell=True, stderr=file)
        said.append((code, path.read_bytes()))
    assert said[0] == said[1]


def test_the_environment_is_what_the_shell_hands_on() -> None:
    env = {"PATH": os.environ["PATH"], "B": "2", "A": "1", "a.b": "dropped by dash", "OLDPWD": "/"}
    ours = subprocess.run("env", shell=True, env=env, stdout=subprocess.PIPE)
    assert ours.stdout == standard.run("env", shell=True, env=env, stdout=standard.PIPE).stdout


def test_a_changed_environment_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORKLESS_TEST", "seen")
    with subprocess.Popen("printenv FORKLESS_TEST", shell=True, stdout=subprocess.PIPE) as process:
        assert process.stdout.read() == b"seen\n"
        assert process._line is not None


def test_a_script_without_an_interpreter_is_the_shells(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo by the shell: $1\n")
    script.chmod(0o755)
    done = subprocess.run("%s word" % script, shell=True, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, b"by the shell: word\n")


@pytest.mark.parametrize(
    "options",
    [
        {"executable": "/bin/sh"},
        {"start_new_session": True},
        {"umask": 0o22},
        {"pass_fds": (0,)},
        {"nice": 1},
        {"process_group": 0},
    ],
    ids=lambda options: next(iter(options)),
)
def test_attributes_that_a_shell_would_notice_keep_it(options: dict) -> None:
    with subprocess.Popen("exec sleep 0", shell=True, **options) as process:
        assert process._line is None
    assert process.returncode == 0


def test_the_shells_own_arguments_keep_it() -> None:
    with subprocess.Popen(["exec sleep 0", "name", "1"], shell=True) as process:
        assert process._line is None


def test_a_handler_for_a_signal_that_ends_processes_keeps_a_waiting_shell() -> None:
    if not sh_waits():
        skip("this /bin/sh executes a line's only program in its own place")
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with subprocess.Popen("sleep 0", shell=True) as process:
            assert process._line is None
        with subprocess.Popen("exec sleep 0", shell=True) as process:
            assert process._line is not None
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_pipe_that_is_read_first_keeps_a_shell_with_something_to_say() -> None:
    if not sh_waits():
        skip("this /bin/sh executes a line's only program in its own place")
    with subprocess.Popen(KILLED % "SIGKILL", shell=True, stderr=subprocess.PIPE) as process:
        # The end comes, though nobody has waited.
        assert process.stderr.read() != b""
        assert process._line is None
    read, write = os.pipe()
    process = subprocess.Popen("sleep 0", shell=True, stderr=write)
    os.close(write)
    assert process._line is None
    assert os.read(read, 1) == b""
    os.close(read)
    process.wait()
    with subprocess.Popen("sleep 0 2>/dev/null", shell=True, stderr=subprocess.PIPE) as process:
        assert process._line is not None


def test_the_question_to_the_shell_is_no_child_that_the_program_sees() -> None:
    """A process asks once, so each part has one of its own."""
    python(
        "-c",
        """if True:
        import signal
        from forkless import subprocess
        seen = []
        signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))
        process = subprocess.Popen("exec sleep 0", shell=True)
        process.wait()
        assert process._line is not None
        assert seen == [1], seen
        """,
    )
    python(
        "-c",
        """if True:
        import os, threading
        from forkless import subprocess
        other, seen = subprocess.Popen(["cat"], stdin=subprocess.PIPE), []
        def wait():
            while True:
                try:
                    seen.append(os.wait()[0])
                except ChildProcessError:
                    return
        thread = threading.Thread(target=wait)
        thread.start()
        line = subprocess.Popen("exec sleep 0", shell=True)
        other.stdin.close()
        thread.join()
        line.wait()
        assert set(seen) <= {other.pid, line.pid}, seen
        """,
    )


def test_run_has_no_shell_though_it_reads_standard_error() -> None:
    with c_calls() as calls:
        done = subprocess.run(KILLED % "SIGKILL", shell=True, capture_output=True)
    same = standard.run(KILLED % "SIGKILL", shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (same.returncode, same.stderr)
    assert "shell_start" in calls and "spawn" not in calls


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_of_the_callers_is_the_status(number: signal.Signals) -> None:
    process = subprocess.Popen("sleep 600", shell=True)
    assert process._line is not None
    process.send_signal(number)
    assert process.wait() == -number


def test_a_timeout_ends_the_program_and_the_wait() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        # The standard one waits for the program, which holds the pipe, and is not killed.
        subprocess.run("sleep 600", shell=True, stdout=subprocess.PIPE, timeout=0.05)


@pytest.mark.parametrize("installs", [False, True])
def test_a_communicate_of_the_programs_own_reads_the_shells_words(installs: bool) -> None:
    """Regression: run() put them behind the output of its own communicate alone."""
    python(
        "-c",
        """if True:
        import sys
        import subprocess as standard
        import forkless
        line = sys.argv[1]
        plain = standard.run(line, shell=True, capture_output=True)
        if sys.argv[2] == "True":
            forkless.install()
            subprocess = standard
        else:
            from forkless import subprocess
        class Own(subprocess.Popen):
            def communicate(self, input=None, timeout=None):
                out, err = self.stdout.read(), self.stderr.read()
                self.wait()
                return out, err
        class Asking(subprocess.Popen):
            def communicate(self, input=None, timeout=None):
                answer.append(super().communicate(input, timeout))
                return answer[-1]
        first = subprocess.Popen
        for subprocess.Popen in (Own, Asking, first):
            answer = []
            done = subprocess.run(line, shell=True, capture_output=True)
            assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr), done
            assert answer in ([], [(done.stdout, done.stderr)]), answer
        """,
        KILLED % "SIGKILL",
        str(installs),
    )


def test_a_caller_that_ignores_or_blocks_sigchld_sees_what_the_shell_shows() -> None:
    """Regression: the program had SIGCHLD ignored, as none that dash starts, and so lost the ends
    of its own children; and nobody told of a death."""
    python(
        "-c",
        """if True:
        import os, signal, sys
        import subprocess as standard
        import forkless
        from forkless import subprocess
        def seen(module, system, popen, line):
            with module.Popen(line, shell=True, stdout=-1, stderr=-1) as process:
                said = process.stdout.read(), process.stderr.read()
            with popen(line) as stream:
                said += stream.read(),
            done = module.run(line + " >&2", shell=True, capture_output=True)
            read, write = os.pipe()
            before = os.dup(2)
            os.dup2(write, 2)
            os.close(write)
            system(line)
            os.dup2(before, 2)
            with open(read, "rb") as file:
                return said + (done.stderr, file.read())
        lines = [
            "exec grep 'Sig[BI]' /proc/self/status",
            "grep 'Sig[BI]' /proc/self/status",
            "grep 'Sig[BI]' /proc/self/status | cat",
            sys.argv[1],
        ]
        ours = subprocess, forkless.system, forkless.popen
        for line in lines:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            assert seen(*ours, line) == seen(standard, os.system, os.popen, line)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
            assert seen(*ours, line) == seen(standard, os.system, os.popen, line)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with subprocess.Popen(lines[0], shell=True, stdout=-1) as process:
            assert process._line is not None
        """,
        KILLED % "SIGKILL",
    )


@pytest.mark.parametrize("left", [0, 1, 2, 3])
def test_a_death_is_told_though_no_descriptor_is_left(left: int) -> None:
    """Regression: the shell's words need a descriptor here, and were lost without one."""
    code = """if True:
        import os, resource, sys
        import subprocess as standard
        import forkless
        from forkless import subprocess
        forkless.system("exec sleep 0")
        way, left, line = sys.argv[1:]
        system = forkless.system if way == "ours" else os.system
        call = (subprocess if way == "ours" else standard).call
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        for number in taken[: int(left)]:
            os.close(number)
        for start in (system, lambda line: call(line, shell=True)):
            try:
                print(start(line), flush=True)
            except OSError as error:
                print(error, flush=True)
        """

    def said(way: str, left: int) -> tuple:
        words = [sys.executable, "-c", code, way, str(left), "sh -c 'kill -KILL $$'; exit"]
        done = standard.run(words, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    # A standard start may need some for a pipe of its own.
    assert said("ours", left) == said("standard", 20)


def test_many_lines_leave_no_descriptor() -> None:
    subprocess.call("sleep 0", shell=True)
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(20):
        subprocess.call("sleep 0", shell=True)
        subprocess.getoutput("sleep 0")
    assert sorted(os.listdir("/proc/self/fd")) == before


def _polled(process: subprocess.Popen) -> None:
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.poll() == 0


def _polled_behind_another(process: subprocess.Popen) -> None:
    os.waitpid(process.pid, 0)
    assert process.poll() == 0


def _awaited_behind_another(process: subprocess.Popen) -> None:
    os.waitpid(process.pid, 0)
    assert process.wait() == 0


ENDS = {
    "wait": lambda process: process.wait(),
    "poll": _polled,
    "communicate": lambda process: process.communicate(),
    "a timeout": lambda process: process.wait(timeout=600),
    "a signal": lambda process: (process.kill(), process.wait()),
    "poll, where another has the status": _polled_behind_another,
    "wait, where another has the status": _awaited_behind_another,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_line_that_has_ended_keeps_no_file_open(end: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "errors"

    def open_copies() -> int:
        links = ["/proc/self/fd/" + number for number in os.listdir("/proc/self/fd")]
        return sum(os.path.realpath(link) == str(path) for link in links)

    with open(path, "w") as errors:
        process = subprocess.Popen("sleep 0", shell=True, stderr=errors)
    assert process._line is not None
    # A shell that waits would have something to say: a copy is kept for it.
    assert open_copies() == sh_waits()
    ENDS[end](process)
    assert open_copies() == 0


def test_a_stream_that_is_closed_keeps_no_descriptor() -> None:
    _popen.popen("sleep 0").close()
    before = len(os.listdir("/proc/self/fd"))
    streams = [_popen.popen("sleep 0") for _ in range(5)]
    for stream in streams:
        assert stream._proc._line is not None
        stream.close()
    assert len(os.listdir("/proc/self/fd")) == before


SYSTEM_LINES = [line for line in LINES if "\x00" not in line]


@pytest.mark.parametrize("line", SYSTEM_LINES)
def test_system_returns_the_standard_status(line: str) -> None:
    quiet = "{ %s\n} >/dev/null 2>&1" % line if "'" != line else line
    assert _shell.system(quiet) == os.system(quiet)
    assert _shell.system(line) == os.system(line)


def test_system_takes_what_the_standard_one_takes(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 5\n")
    program.chmod(0o755)
    assert _shell.system(program) == 5 << 8
    assert _shell.system(os.fsencode(program)) == 5 << 8
    assert _shell.system(command="exit 6") == 6 << 8
    for wrong in ("a\0b", 3, None):
        with pytest.raises(Exception) as ours:
            _shell.system(wrong)
        with pytest.raises(Exception) as theirs:
            os.system(wrong)
        assert (ours.type, str(ours.value)) == (theirs.type, str(theirs.value))


def test_system_where_no_process_can_be_made_returns_the_standard_status() -> None:
    out = python(
        "-c",
        """if True:
        import os, resource, forkless
        # Before root is given up: what is imported may be root's alone.
        system = forkless.system
        if os.getuid() == 0:
            os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        # A line that would need no shell, and one that would.
        for line in ("sleep 0", "echo *"):
            print(os.system(line), system(line))
        """,
    )
    for line in out.splitlines():
        theirs, ours = line.split()
        # musl's own is -1.
        assert ours == theirs and theirs in ("32512", "-1")
    assert len(out.splitlines()) == 2


def test_a_line_that_no_shell_can_be_given_is_an_error() -> None:
    """Regression: a line of 131,072 bytes ran directly, and its shell could not be executed."""
    for length, is_direct in (131_071, True), (131_072, False):
        line = "cat /dev/null".ljust(length)
        assert _shell.system(line) == os.system(line) == (0 if is_direct else 127 << 8)
        outcomes = []
        for module in subprocess, standard:
            try:
                child = module.Popen(line, shell=True)
            except OSError as error:
                outcomes.append(error.errno)
            else:
                outcomes.append(child.wait())
                assert module is standard or (child._line is not None) == is_direct
        assert outcomes == [0 if is_direct else errno.E2BIG] * 2


def test_system_puts_the_signals_back() -> None:
    def dispositions() -> list:
        with open("/proc/thread-self/status") as status:
            return [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]

    before = dispositions()
    assert _shell.system("grep -q 'SigBlk.*0000000000000000' /proc/self/status") == 0
    assert dispositions() == before


def test_system_ignores_the_keyboard_while_it_waits() -> None:
    got = []
    before = signal.signal(signal.SIGINT, lambda *_: got.append("SIGINT"))
    try:
        line = "%s -c 'import os, signal; os.kill(os.getppid(), signal.SIGINT)'" % sys.executable
        assert _shell.system(line) == 0
        # A line with a shell is no child's child here, so the signal goes to this process.
        assert got == []
        os.kill(os.getpid(), signal.SIGINT)
        assert got == ["SIGINT"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_system_lets_other_threads_run(tmp_path: pathlib.Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    done = []
    thread = threading.Thread(target=lambda: done.append(_shell.system("exec cat <%s" % fifo)))
    thread.start()
    # It waits for the line's end of the pipe, so it gets here only if the thread does not hold the
    # interpreter.
    with open(fifo, "w"):
        pass
    thread.join()
    assert done == [0]


def test_system_is_a_builtin_function_as_the_standard_one() -> None:
    class Shell:
        ours, standard = forkless.system, os.system

    assert Shell().ours("exit 3") == Shell().standard("exit 3")
    assert type(forkless.system) is type(os.system)
    assert inspect.signature(forkless.system) == inspect.signature(os.system)
    assert pickle.loads(pickle.dumps(forkless.system)) is forkless.system
    assert forkless.system(command="exit 4") == os.system(command="exit 4")


def test_system_is_audited() -> None:
    code = (
        "import sys; from forkless import _shell\n"
        "sys.addaudithook(lambda event, args: event == 'os.system' and print(event, args))\n"
        "_shell.system('exit 0')"
    )
    out = standard.run([sys.executable, "-c", code], stdout=standard.PIPE, text=True).stdout
    assert out == "os.system (b'exit 0',)\n"


def test_popen_reads_and_writes(tmp_path: pathlib.Path) -> None:
    with _popen.popen("/bin/echo one") as stream:
        assert stream.read() == "one\n"
    path = tmp_path / "written"
    with _popen.popen("cat >%s" % path, "w") as stream:
        stream.write("text\n")
    assert path.read_text() == "text\n"
    assert _popen.popen("exit 3").close() == 3 << 8
    assert _popen.popen("sleep 0").close() is None
    assert _popen.popen("sleep 0")._proc._line is not None


@pytest.mark.parametrize("arguments", [(b"x",), ("x", "rw"), ("x", "r", 0), ("x", "r", None)])
def test_popen_refuses_what_the_standard_one_refuses(arguments: tuple) -> None:
    with pytest.raises(Exception) as ours:
        _popen.popen(*arguments)
    with pytest.raises(Exception) as theirs:
        os.popen(*arguments)
    assert (ours.type, str(ours.value)) == (theirs.type, str(theirs.value))


@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_pipes_may_have_the_numbers_of_closed_streams(closed: str) -> None:
    code = """
import os, sys
module = __import__(sys.argv[1], fromlist=["run"])
kept = os.dup(1)
for number in map(int, sys.argv[2]):
    os.close(number)
results = []
for line in ("cat", "cat >&2", "cat 2>&1", "exec ls /proc/self/fd"):
    for options in (
        {"input": b"given", "capture_output": True},
        {"stdin": module.DEVNULL, "stdout": module.PIPE},
        {"input": b"given", "stdout": module.PIPE, "stderr": module.STDOUT},
    ):
        # Without a timeout: a reader that misses its end would hang.
        done = module.run(line, shell=True, **options)
        results.append((done.returncode, done.stdout, done.stderr))
os.write(kept, repr(results).encode())
"""
    said = [
        standard.run(
            [sys.executable, "-c", code, name, closed], stdout=standard.PIPE, timeout=120
        ).stdout
        for name in ("subprocess", "forkless.subprocess")
    ]
    assert said[0] == said[1] != b""
