"""`install`, `uninstall` and `python -m forkless`: what is changed, what is not, and that it forks
nothing.

Most of it is done in interpreters of their own, since it changes the whole program.
"""

from __future__ import annotations

import doctest
import os
import pathlib
import subprocess as standard
import sys
import textwrap
import zipfile
from typing import Any

import pytest

from forkless import _install, _run
from _tools import skip

HERE = os.path.dirname(__file__)

#: Calls of these mean a fork, or a start that is not forkless's.
PRELUDE = """
import os, subprocess, sys
sys.path.insert(0, %r)
from _tools import FORKS, c_calls
import forkless
""" % HERE


def python(code: str, *, env: Any = {}, options: Any = (), expect: int = 0) -> str:
    """Runs the code, and returns what it prints."""
    done = standard.run(
        [sys.executable, *options, "-c", PRELUDE + textwrap.dedent(code)],
        stdin=standard.DEVNULL,
        stdout=standard.PIPE,
        stderr=standard.PIPE,
        env=dict(os.environ, **env),
        text=True,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def run(*arguments: str, cwd: Any = None, env: Any = {}) -> Any:
    """``python -m forkless`` with these arguments."""
    return standard.run(
        [sys.executable, "-m", "forkless", *arguments],
        stdin=standard.DEVNULL,
        stdout=standard.PIPE,
        stderr=standard.PIPE,
        cwd=cwd,
        env=dict(os.environ, **env),
        text=True,
    )


def test_the_examples_of_the_documentation() -> None:
    for module in (_install, _run):
        failures, count = doctest.testmod(module)
        assert count > 0 and failures == 0


def test_names_that_were_imported_before_start_without_fork() -> None:
    python(
        """
        from subprocess import PIPE, Popen, check_output, run
        class Mine(Popen):
            pass
        forkless.install()
        with c_calls() as calls:
            assert run(["sh", "-c", "exit 3"]).returncode == 3
            assert check_output(["echo", "x"]) == b"x\\n"
            with Popen(["cat"], stdin=PIPE, stdout=PIPE) as p:
                assert p.communicate(b"y") == (b"y", b"")[:1] + (None,)
            assert Mine(["sleep", "0"], close_fds=False).wait() == 0
            assert run(["sh", "-c", "umask"], umask=0o77, capture_output=True).stdout == b"0077\\n"
            assert run(["sleep", "0"], user=os.getuid(), start_new_session=True).returncode == 0
            with os.popen("sleep 0; echo z") as stream:
                assert stream.read() == "z\\n"
        assert not calls & (FORKS | {"posix_spawn"}), calls
        """
    )


def test_the_result_is_the_standard_one() -> None:
    code = """
        import time
        if %r:
            forkless.install()
        def told(*args, **options):
            try:
                return subprocess.run(*args, **options)
            except subprocess.TimeoutExpired as error:
                # Its seconds are what was left.
                return type(error), error.cmd
            except Exception as error:
                return repr(error)
        print(told(["sh", "-c", "echo out; echo err >&2; exit 5"], capture_output=True))
        print(told(["/does/not/exist"]))
        print(told(["true"], cwd="/does/not/exist"))
        print(told(["sleep", "60"], timeout=0.01))
        print(told("exit 7", shell=True, check=True))
        print(subprocess.getstatusoutput("echo a; exit 8"))
        print(told(["true"], nonsense=1))
        print(told(["a\\0b"]))
    """
    assert python(code % True) == python(code % False)


@pytest.mark.parametrize("way", ["forkless.install()", "from forkless import subprocess"])
def test_a_warning_of_an_encoding_names_the_caller_s_line(way: str) -> None:
    code = """
        %s
        import warnings
        class Mine(subprocess.Popen):
            pass
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            subprocess.run(["true"], text=True)
            subprocess.check_output(["true"], text=True)
            Mine(["true"], universal_newlines=True).wait()
            subprocess.getoutput("true")
        print([(w.category.__name__, w.filename, w.lineno, str(w.message)) for w in seen])
    """
    options = ["-X", "warn_default_encoding"]
    plain = python(code % "pass", options=options)
    assert (sys.version_info < (3, 11)) == (plain == "[]\n")
    assert python(code % way, options=options) == plain


def test_a_failed_start_leaves_what_the_standard_one_leaves() -> None:
    code = """
        from pathlib import Path
        if %r:
            forkless.install()
        class Mine(subprocess.Popen):
            def __init__(self, *args, **options):
                try:
                    super().__init__(*args, **options)
                except OSError as error:
                    print(repr(error), error.filename, type(error.filename).__name__)
                    print(type(self.pid).__name__, self.returncode, self._child_created)
        for program in ("does-not-exist", "/does/not/exist", Path("/does/not/exist")):
            for options in ({}, {"cwd": "/"}, {"close_fds": False}, {"start_new_session": True}):
                Mine([program], **options)
    """
    assert python(code % True) == python(code % False)


def test_uninstall_puts_everything_back() -> None:
    out = python(
        """
        import asyncio, multiprocessing.util, pty
        from asyncio import unix_events
        try:
            import ptyprocess.ptyprocess as pp
            classes = [pp.PtyProcess]
        except ImportError:
            classes = []
        owners = [os, subprocess, subprocess.Popen, multiprocessing.util, pty, asyncio, unix_events]
        owners += [value for value in vars(unix_events).values() if isinstance(value, type)]
        owners += [asyncio.base_subprocess.BaseSubprocessTransport, *classes]
        def look():
            return [dict(vars(owner)) for owner in owners]
        before, path = look(), list(sys.meta_path)
        forkless.install()
        between = look()
        for owner, was, now in zip(owners, before, between):
            if owner in (os, subprocess.Popen, multiprocessing.util, pty):
                assert was != now, owner
        forkless.install()
        assert look() == between
        forkless.uninstall()
        assert look() == before and sys.meta_path == path
        forkless.uninstall()
        forkless.install()
        forkless.uninstall()
        assert look() == before and sys.meta_path == path
        print("done")
        """
    )
    assert out == "done\n"


def test_uninstall_in_the_midst_of_a_call_lets_it_end() -> None:
    """As by another thread. Each value uninstalls when it is used, and the call goes on in it."""
    python(
        """
        import signal

        class Word(os.PathLike):
            def __init__(self, word):
                self.word = word
            def __fspath__(self):
                forkless.uninstall()
                return self.word

        class Seconds(float):
            def __radd__(self, now):
                forkless.uninstall()
                return now + float(self)

        run = subprocess.Popen
        env = dict(os.environ, A=Word("a"))
        calls = {
            "start": lambda: run([Word("true")]).wait(),
            "line": lambda: run("exec sleep 0", shell=True, env=env).wait(),
            "shell": lambda: run("true; exit 0", shell=True, env=env).wait(),
            "options": lambda: run([Word("true")], nice=5, deadline=600).wait(),
            "group": lambda: run([Word("true")], process_group=0).wait(),
            "wait": lambda: run(["true"]).wait(Seconds(600)),
            "wait, deadline": lambda: run(["true"], deadline=600).wait(Seconds(600)),
            "communicate": lambda: run(["true"]).communicate(timeout=Seconds(600)) and 0,
        }
        for name, call in calls.items():
            forkless.install()
            assert call() == 0, name
            assert "_start_exception" not in vars(subprocess.Popen), name
        forkless.install()
        try:
            run([Word("/no/such/program")])
        except FileNotFoundError as error:
            assert os.fspath(error.filename) == "/no/such/program"
        else:
            assert False
        """
    )


def test_a_pipe_that_is_open_at_the_end_is_told_of_as_ever() -> None:
    code = """
        if %r:
            forkless.install()
            assert hasattr(os.system.__self__, "called")
        os.dup2(1, 2)
        p = subprocess.Popen(["sleep", "0"], stdout=subprocess.PIPE)
    """
    ours, theirs = (python(code % installed, options=["-X", "dev"]) for installed in (True, False))
    for said in ours, theirs:
        assert "ResourceWarning: subprocess" in said and "is still running" in said
        assert said.count("ResourceWarning: unclosed file <_io.BufferedReader") == 1, said


def test_what_was_replaced_since_stays() -> None:
    python(
        """
        forkless.install()
        other = os.system = lambda line: 99
        forkless.uninstall()
        assert os.system is other
        """
    )


def test_forkless_off_switches_it_off() -> None:
    code = """
        before = dict(vars(os)), dict(vars(subprocess.Popen)), list(sys.meta_path)
        forkless.install()
        print(before == (dict(vars(os)), dict(vars(subprocess.Popen)), list(sys.meta_path)))
    """
    # The command's words, see `is_off` of crate forkless-run.
    for word in ("off", "OFF", "0", "no", "False"):
        assert python(code, env={"FORKLESS": word}) == "True\n"
    for word in ("on", "", "1", " off"):
        assert python(code, env={"FORKLESS": word}) == "False\n"
    code = "import os; print(hasattr(os.system.__self__, 'called'))"
    assert run("-c", code, env={"FORKLESS": "off"}).stdout == "False\n"
    assert run("-c", code, env={"FORKLESS": ""}).stdout == "True\n"


def test_modules_that_are_imported_later_are_changed_then() -> None:
    python(
        """
        def here(function):
            return function.__globals__["__name__"].startswith("forkless")
        late = ["asyncio", "multiprocessing.util", "pty"]
        assert not any(name in sys.modules for name in late)
        forkless.install()
        assert not any(name in sys.modules for name in late)
        import pty
        import multiprocessing.util
        assert here(pty.spawn) and here(multiprocessing.util.spawnv_passfds)
        # The module has its own loader.
        assert type(pty.__loader__).__name__ == "SourceFileLoader"
        assert pty.__spec__.loader is pty.__loader__
        import inspect
        assert "def openpty" in inspect.getsource(pty)
        import importlib
        importlib.reload(pty)
        assert here(pty.spawn)
        forkless.uninstall()
        importlib.reload(pty)
        assert not here(pty.spawn)
        """
    )


ASYNCIO = """
    import asyncio
    async def main():
        child = await asyncio.create_subprocess_exec("sh", "-c", "exit 3")
        other = await asyncio.create_subprocess_shell("sleep 0; exit 4")
        return await child.wait(), await other.wait()
    with c_calls() as calls:
        assert asyncio.run(main()) == (3, 4)
    assert not calls & FORKS, calls
"""


@pytest.mark.parametrize(
    "before",
    ["", "import asyncio", "from forkless import asyncio as _", "import asyncio.subprocess"],
)
@pytest.mark.parametrize("after", ["", "from forkless import asyncio as _"])
def test_asyncio_starts_without_fork_whenever_it_is_imported(before: str, after: str) -> None:
    python("%s\nforkless.install()\n%s\n" % (before, after) + textwrap.dedent(ASYNCIO))


def test_os_posix_spawn_is_the_standard_one_but_for_the_lock() -> None:
    code = """
        import signal
        installed = %r
        if installed:
            forkless.install()
        r, w = os.pipe()
        os.set_inheritable(w, True)
        env = {"PATH": os.environ["PATH"], "NAME": "value"}
        C, D, O = os.POSIX_SPAWN_CLOSE, os.POSIX_SPAWN_DUP2, os.POSIX_SPAWN_OPEN
        listing = "echo $NAME; for n in 0 1 2 3 4 5 6 7 8 9; do test -e /proc/self/fd/$n && echo $n; done"
        sh = ["sh", "-c", listing]
        def told(function, *args, **options):
            with c_calls() as calls:
                try:
                    pid = function(*args, **options)
                except Exception as error:
                    return repr(error)
            assert ("posix_spawn" in calls or "posix_spawnp" in calls) != (
                installed and not options.get("stays")), calls
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)
        actions = [(D, w, 1), (C, w), (C, r)]
        print(told(os.posix_spawn, "/bin/sh", sh, env, file_actions=actions))
        print(told(os.posix_spawnp, "sh", sh, env, file_actions=actions, setsid=True))
        print(told(os.posix_spawnp, b"sh", tuple(sh), env, file_actions=actions, setpgroup=0))
        print(told(os.posix_spawn, "/bin/sh", ["sh", "-c", "grep SigIgn /proc/self/status >&%%d" %% w],
                   env, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]))
        print(told(os.posix_spawn, "/bin/sh", ["sh", "-c", "grep SigIgn /proc/self/status >&%%d" %% w], env))
        print(told(os.posix_spawn, "/bin/sh", ["sh", "-c", "kill -9 $$"], {}))
        os.close(w)
        # glibc's posix_spawn leaves its own signals, 32 and 33, ignored.
        def known(line):
            name, _, value = line.partition(":")
            return line if name != "SigIgn" else "%%x" %% (int(value, 16) & ~(3 << 31))
        print([known(line) for line in os.read(r, 10000).decode().splitlines()])
        for args in [("/does/not/exist", ["x"], env), ("/etc/passwd", ["x"], env), ("/bin/sh", [], env),
                     ("/bin/sh", [""], env), ("/bin/sh", "sh", env), ("/bin/sh", ["sh"], {"A=B": ""}),
                     ("/bin/s\\0h", ["sh"], env), (1, ["sh"], env), ("/bin/sh", ["sh"]), ()]:
            print(told(os.posix_spawn, *args))
            print(told(os.posix_spawnp, *args))
        print(told(os.posix_spawn, "/bin/sh", ["sh"], env, file_actions=[(C,)]))
        print(told(os.posix_spawn, "/bin/sh", ["sh"], env, nonsense=1))
        # Whoever starts these: from 3.12 on the last four are truth values.
        limit = os.sysconf("SC_OPEN_MAX")
        odd = [(D, 1, limit), (D, 1, 2**31), (C, 2**40), (D, limit - 1, 1), (C, -1)]
        for options in [*({"file_actions": [action]} for action in odd),
                        {"setsid": "x"}, {"setsid": None}, {"resetids": None}, {"resetids": ()}]:
            try:
                pid = os.posix_spawn("/bin/true", ["true"], env, **options)
            except Exception as error:
                print(repr(error), getattr(error, "filename", None))
            else:
                print(os.waitpid(pid, 0)[1])
    """
    assert python(code % True) == python(code % False)


def test_functions_in_place_of_builtin_ones_are_builtin() -> None:
    code = """
        import inspect, types
        from unittest import mock
        names = ["system", "posix_spawn", "posix_spawnp"]
        before = [getattr(os, name) for name in names]
        if %r:
            forkless.install()
            assert all(getattr(os, name) is not old for name, old in zip(names, before))
            assert all(hasattr(getattr(os, name).__self__, "called") for name in names)
        class Shell:
            run, start, find = os.system, os.posix_spawn, os.posix_spawnp
        def told(function, *args, **options):
            try:
                return function(*args, **options)
            except Exception as error:
                return repr(error)
        print(Shell().run("exit 3"))
        for started in Shell().start("/bin/true", ["true"], {}), Shell().find("true", ["true"], {}):
            print(os.waitpid(started, 0)[1])
        for name in names:
            function = getattr(os, name)
            assert type(function) is types.BuiltinFunctionType
            print(function, str(told(inspect.signature, function)), function.__qualname__)
            print(function.__doc__, function.__text_signature__)
            print([told(function, *args) for args in [(), (1,), ("a", "b", "c", "d"), ("a\\0b",)]])
        print(told(os.system, command="exit 4"), told(os.system, line="exit 4"))
        with mock.patch("os.system", autospec=True) as system:
            os.system("x")
            print(system.mock_calls, type(told(os.system, "x", "y")).__name__)
    """
    assert python(code % True) == python(code % False)


def test_posix_spawnp_ends_its_search_where_the_standard_one_does(tmp_path: pathlib.Path) -> None:
    for name, text in ("text", "x"), ("lost", "#!/nowhere/sh"), ("good", "#!/bin/sh\nexit 3\n"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "program").write_text(text)
        (tmp_path / name / "program").chmod(0o755)
    for name in "closed", "folder":
        (tmp_path / name).mkdir()
    (tmp_path / "closed" / "program").write_text("#!/bin/sh\nexit 4\n")
    (tmp_path / "folder" / "program").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    code = """
        installed = %r
        if installed:
            forkless.install()
        os.chdir(%r)
        for first in ("x" * 300, "missing", "text", "lost", "closed", "folder", "loop", "text/program"):
            for path in (first + ":good", "good:" + first, first):
                os.environ["PATH"] = path
                with c_calls() as calls:
                    try:
                        pid = os.posix_spawnp("program", ["program"], {})
                    except OSError as error:
                        print(path, repr(error), error.filename)
                        continue
                print(path, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                # Only a script without its interpreter is left to the standard function.
                assert ("posix_spawnp" in calls) != installed or path == "lost:good", path
    """
    ours, theirs = (python(code % (installed, str(tmp_path))) for installed in (True, False))
    assert ours == theirs
    assert "OSError(36," in ours and "OSError(8," in ours and "lost:good 3" in ours


def test_other_options_of_posix_spawn_are_left_to_it(tmp_path: pathlib.Path) -> None:
    python(
        """
        import signal
        forkless.install()
        env = dict(os.environ)
        path = %r
        action = (os.POSIX_SPAWN_OPEN, 1, path, os.O_WRONLY | os.O_CREAT, 0o600)
        for options in ({"file_actions": [action]}, {"setsigmask": [signal.SIGUSR1]},
                        {"setsigdef": [signal.SIGINT]}, {"resetids": True}):
            with c_calls() as calls:
                pid = os.posix_spawnp("echo", ["echo", "x"], env, **options)
            assert "posix_spawnp" in calls
            assert os.waitpid(pid, 0)[1] == 0
        assert open(path).read() == "x\\n"
        """
        % str(tmp_path / "file")
    )


def test_os_spawn_functions_do_not_fork() -> None:
    code = """
        installed = %r
        if installed:
            forkless.install()
        with c_calls() as calls:
            print(os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", "exit 3"]))
            print(os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", "exit 4"]))
            print(os.spawnlp(os.P_WAIT, "sh", "sh", "-c", "kill -9 $$"))
            print(os.spawnve(os.P_WAIT, "/bin/sh", ["sh", "-c", "exit $N"], {"N": "5"}))
            print(os.spawnlpe(os.P_WAIT, "sh", "sh", "-c", "exit $N",
                              {"N": "6", "PATH": os.environ["PATH"]}))
            pid = os.spawnl(os.P_NOWAIT, "/bin/sh", "sh", "-c", "exit 7")
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        assert bool(calls & FORKS) != installed
        print(os.spawnv(os.P_WAIT, "/does/not/exist", ["x"]))
        print(os.spawnvp(os.P_WAIT, "does-not-exist", ("x",)))
        for env in ({"A": "nul\\0"}, {"nul\\0": "A"}, {"A=B": "C"}, {"": "C"}, None):
            print(os.spawnvpe(os.P_WAIT, "sh", ["sh", "-c", "exit 1"], env))
            print(os.spawnve(os.P_WAIT, "/bin/sh", ["sh", "-c", "exit 1"], env))
        for args in [("/bin/sh", []), ("/bin/sh", [""]), ("/bin/sh", "sh")]:
            try:
                print(os.spawnv(os.P_WAIT, *args))
            except Exception as error:
                print(repr(error))
    """
    assert python(code % True) == python(code % False)


PROCESSES = """
import multiprocessing, os, subprocess, sys
def double(x):
    return 2 * x
def stop():
    sys.exit(3)
if __name__ == "__main__":
    %s
    ours = sys.modules.get("forkless.subprocess")
    if ours:
        ours._fork_exec_is_patched.__code__ = (lambda: False).__code__
    import _posixsubprocess
    def no(*args):
        raise AssertionError("fork_exec was called")
    _posixsubprocess.fork_exec = no
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(pool.map(double, range(3)))
        process = context.Process(target=stop)
        process.start()
        process.join()
        print(process.exitcode)
"""


def test_multiprocessing_starts_by_it(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    said = "[0, 2, 4]\n3\n" * 2
    script.write_text(PROCESSES % "import forkless; forkless.install()")
    done = standard.run([sys.executable, str(script)], stdout=standard.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, said)
    script.write_text(PROCESSES % "pass")
    done = run(str(script))
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    # The check can fail.
    done = standard.run(
        [sys.executable, str(script)], stdout=standard.PIPE, stderr=standard.PIPE, text=True
    )
    assert "fork_exec was called" in done.stderr


def test_a_multiprocessing_start_that_fails_is_told_as_ever() -> None:
    code = """
        import multiprocessing.util
        if %r:
            forkless.install()
        pid = multiprocessing.util.spawnv_passfds(b"/does/not/exist", ["x"], [])
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert python(code % True) == python(code % False)


def test_pty_spawn_does_not_fork_but_where_the_program_is_missing() -> None:
    code = """
        import pty
        installed = %r
        if installed:
            forkless.install()
        told = []
        sys.addaudithook(lambda event, _: told.append(event))
        with c_calls() as calls:
            status = pty.spawn(["sh", "-c", "tty >/dev/null && exit 3"])
        print(os.waitstatus_to_exitcode(status), flush=True)
        assert (told.count("pty.spawn"), told.count("os.forkpty")) == (1, 1), told
        assert bool(calls & FORKS) != installed
        del told[:]
        print(os.waitstatus_to_exitcode(pty.spawn(["does-not-exist"])) != 0)
        # Regression: the fork that it is left to raised the event a second time.
        assert (told.count("pty.spawn"), told.count("os.forkpty")) == (1, 1), told
    """
    for installed in (True, False):
        out = python(code % installed)
        # Between them is the traceback of the fork of this interpreter.
        assert out.startswith("3\n") and out.endswith("True\n") and "FileNotFoundError" in out


def test_pexpect_does_not_fork() -> None:
    try:
        import pexpect  # noqa: F401
    except ImportError:
        skip("pexpect is not installed; suites/pexpect.py runs its own tests")
    code = """
        %s
        forkless.install()
        import pexpect, ptyprocess
        with c_calls() as calls:
            child = pexpect.spawn("cat", echo=False, timeout=60)
        assert not calls & FORKS and type(child.ptyproc) is ptyprocess.PtyProcess
        child.sendline("x")
        child.expect_exact("x")
        child.close()
        with c_calls() as calls:
            child = pexpect.spawn("cat", preexec_fn=lambda: None)
        assert calls & FORKS
        child.close()
        for program in ("/etc", "does-not-exist"):
            try:
                ptyprocess.PtyProcess.spawn([program])
            except FileNotFoundError as error:
                print(error)
    """
    out = python(code % "")
    assert out == python(code % "import pexpect")
    assert "was not found" in out


def test_install_from_many_threads() -> None:
    python(
        """
        import threading
        before = os.system
        for _ in range(50):
            threads = [threading.Thread(target=forkless.install) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert os.system.__self__.called.__module__ == "forkless._os"
            forkless.uninstall()
            assert os.system is before
        """
    )


def test_install_beside_imports_in_another_thread() -> None:
    python(
        """
        import threading
        start = threading.Barrier(3)
        def importing(name):
            start.wait()
            __import__(name)
        names = ("asyncio", "multiprocessing.util")
        threads = [threading.Thread(target=importing, args=(name,)) for name in names]
        [thread.start() for thread in threads]
        start.wait()
        forkless.install()
        [thread.join() for thread in threads]
        import multiprocessing.util
        assert multiprocessing.util.spawnv_passfds.__globals__["__name__"] == "forkless._install"
        """
        + textwrap.dedent(ASYNCIO).replace("\n", "\n        ")
    )


ABOUT = """\
import sys
import __main__
print(__name__, sys.argv[1:], __main__.__dict__ is globals())
print(sorted(name for name in globals() if name not in ("__main__", "sys", "__builtins__",
    "__annotations__", "__conditional_annotations__", "__annotate__")))
print(__file__, sys.argv[0], sys.path[0], __spec__ and __spec__.name, __package__, __cached__)
print(type(__loader__).__name__)
def f(x: int): pass
print(f.__annotations__)
sys.exit(int(sys.argv[-1]))
"""


def both(arguments: Any, cwd: pathlib.Path, options: Any = (), text: str = "") -> Any:
    """What the interpreter makes of these arguments, by itself and by -m forkless. The text is its
    standard input."""
    results = []
    for way in ([], ["-m", "forkless"]):
        command = [sys.executable, *options, *way, *arguments]
        done = standard.run(command, cwd=cwd, input=text, capture_output=True, text=True)
        results.append((done.returncode, done.stdout, done.stderr))
    return results


def test_a_script_runs_as_by_the_interpreter_itself(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "dir" / "script.py"
    script.parent.mkdir()
    script.write_text(ABOUT)
    (script.parent / "neighbour.py").write_text("")
    link = tmp_path / "link.py"
    link.symlink_to(script)
    for path in ("dir/script.py", str(script), "link.py", "./dir/../dir/script.py"):
        plain, ours = both([path, "-a", "b c", "7"], tmp_path)
        assert plain[0] == 7 and ours == plain
    plain, ours = both(["dir/missing.py"], tmp_path)
    assert plain[0] == 2 and ours == plain
    script.write_text("import sys; print(sys.argv); raise SystemExit(9)")
    import py_compile

    py_compile.compile(str(script), cfile=str(tmp_path / "compiled.pyc"))
    plain, ours = both(["compiled.pyc", "a"], tmp_path)
    assert plain[0] == 9 and ours == plain
    script.write_text("import neighbour; raise SystemExit('said')")
    plain, ours = both(["dir/script.py"], tmp_path)
    assert ours == plain == (1, "", "said\n")


@pytest.mark.parametrize(
    "end", ["sys.exit('said')", "1 / 0", "atexit.register(print, 'late', file=sys.stderr)"]
)
def test_output_comes_before_the_words_about_the_end(end: str, tmp_path: pathlib.Path) -> None:
    """Behind a file the interpreter flushes its output first, but not behind -c and -m."""
    text = "import atexit, sys\nprint('begun')\n%s\n" % end
    for name in ("script.py", "dir/__main__.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    import py_compile

    py_compile.compile(str(tmp_path / "script.py"), cfile=str(tmp_path / "compiled.pyc"))
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    first = []
    for arguments in (
        ["script.py"],
        ["compiled.pyc"],
        ["-"],
        ["dir"],
        ["-m", "script"],
        ["-c", text],
    ):
        outputs = []
        for way in ([], ["-m", "forkless"]):
            done = standard.run(
                [sys.executable, *way, *arguments],
                cwd=tmp_path,
                input=text,
                stdout=standard.PIPE,
                stderr=standard.STDOUT,
                env=environment,
                text=True,
            )
            outputs.append(done.stdout)
        assert outputs[0] == outputs[1], arguments
        first.append(outputs[1].startswith("begun"))
    assert first[:3] == [True, True, True]


def test_a_script_may_be_a_pipe() -> None:
    done = standard.run(
        [sys.executable, "-m", "forkless", "/dev/stdin", "a"],
        input="import sys; print(sys.argv)",
        stdout=standard.PIPE,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "['/dev/stdin', 'a']\n")


def test_a_module_runs_as_by_the_interpreter_itself(tmp_path: pathlib.Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    for name in ("package/__main__.py", "package/part.py", "module.py"):
        (tmp_path / name).write_text(ABOUT)
    for name in ("package", "package.part", "module"):
        plain, ours = both(["-m", name, "-a", "3"], tmp_path)
        assert plain[0] == 3 and ours == plain
    plain, ours = both(["-m", "no_such_module"], tmp_path)
    assert plain[0] == 1 and ours == plain


def test_directories_and_zip_files_run_as_by_the_interpreter_itself(tmp_path: pathlib.Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "__main__.py").write_text(ABOUT)
    (tmp_path / "dir" / "neighbour.py").write_text("")
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", ABOUT)
    (tmp_path / "empty").mkdir()
    for name in ("dir", "app.zip"):
        plain, ours = both([name, "4"], tmp_path)
        assert plain[0] == 4 and ours == plain
    plain, ours = both(["empty"], tmp_path)
    assert plain[0] == 1 and ours == plain


def test_code_runs_as_by_the_interpreter_itself(tmp_path: pathlib.Path) -> None:
    code = "import sys; print(sys.argv, sys.path[0], sorted(vars()), __loader__); sys.exit(5)"
    plain, ours = both(["-c", code, "a"], tmp_path)
    assert plain[0] == 5 and ours == plain


def test_standard_input_runs_as_by_the_interpreter_itself(tmp_path: pathlib.Path) -> None:
    plain, ours = both(["-", "a", "6"], tmp_path, text=ABOUT)
    assert plain[0] == 6 and ours == plain
    # All of it is the program.
    code = "import sys; print(ascii('\u00e4'), sys.stdin.read())\ndef f():\n    1 / 0\nf()"
    plain, ours = both(["-"], tmp_path, text=code)
    assert plain[0] == 1 and ours[1] == plain[1] and "ZeroDivisionError" in ours[2]


def test_an_empty_name_is_the_directory(tmp_path: pathlib.Path) -> None:
    plain, ours = both([""], tmp_path)
    assert plain[0] == 1 and ours == plain
    (tmp_path / "__main__.py").write_text(ABOUT)
    for name in ("", "."):
        plain, ours = both([name, "4"], tmp_path)
        assert plain[0] == 4 and ours == plain


def test_the_first_line_is_skipped_as_by_the_interpreter_itself(tmp_path: pathlib.Path) -> None:
    texts = {
        "script.py": "@echo (\nimport sys\nprint(sys.argv, __doc__)\nraise SystemExit('words')\n",
        "coded.py": "\ufeff(\n# coding: latin-1\nprint(ascii('\u00e4'))\n",
        "fails.py": ")\n\n1 / 0\n",
        "short.py": "(",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in texts:
        plain, behind = both(["-x", name, "a"], tmp_path)
        assert behind == plain != both([name, "a"], tmp_path)[0]
        for options in (["-x"], ["-W", "error", "-Bx"]):
            before = both([name, "a"], tmp_path, options=options)
            assert before == [plain, plain]
    # Of something else than a script it skips nothing, and its argument is not an option.
    for arguments in (["-x", "-c", "print(1)"], ["-x", "-"], ["script.py", "-x"]):
        plain, ours = both(arguments, tmp_path, text="print(2)")
        assert ours == plain
    for options in (["-W", "x"], ["-X", "x"]):
        plain, ours = both(["fails.py"], tmp_path, options=options)
        assert "unmatched" in plain[2] and ours == plain


def test_an_isolated_interpreter_stays_so(tmp_path: pathlib.Path) -> None:
    if standard.call([sys.executable, "-I", "-c", "import forkless"], stderr=standard.DEVNULL):
        skip("forkless is not installed for this interpreter, only found by PYTHONPATH")
    (tmp_path / "script.py").write_text("import sys; print(sys.path)")
    plain, ours = both(["script.py"], tmp_path, options=["-I"])
    assert plain[0] == 0 and ours == plain


def test_a_traceback_ends_as_by_the_interpreter_itself(tmp_path: pathlib.Path) -> None:
    (tmp_path / "script.py").write_text("def f():\n    return 1 / 0\nf()\n")
    plain, ours = both(["script.py"], tmp_path)
    assert plain[0] == ours[0] == 1
    assert ours[2].endswith(plain[2].split("\n", 1)[1])


def test_lines_of_code_are_shown_as_by_the_interpreter_itself(tmp_path: pathlib.Path) -> None:
    for code in (
        "1 / 0",
        "\n\ndef f():\n    return 1 / 0\nf()",
        "try: 1 / 0\nexcept Exception: raise KeyError(1)",
        "import warnings; warnings.warn('x')",
        "x = (",
        "import sys; print(list(globals()), sys.argv)",
    ):
        plain, ours = both(["-c", code, "a"], tmp_path)
        assert ours == plain
        plain, ours = both(["-c" + code, "a"], tmp_path)
        assert ours == plain
    (tmp_path / "module.py").write_text(ABOUT)
    plain, ours = both(["-mmodule", "5"], tmp_path)
    assert plain[0] == 5 and ours == plain


def test_a_script_that_does_not_compile_is_told_of_as_by_python(tmp_path: pathlib.Path) -> None:
    scripts = {
        "open.py": b"x = (\n",
        "open2.py": b"if x:\n",
        "open3.py": b'x = """a\nb',
        "byte.py": b"import sys\nprint('\xff')\n",
        "first.py": b"'\xe9'",
        "nul.py": b"\0",
        "unknown.py": b"# coding: no-such-coding\n",
        "wrong.py": b"# coding: utf-8\n\n'\xff'\n",
        "warns.py": b"'\\d'\nx = )\n",
        "warns2.py": b"'\\d'\nx = 1\n",
        "fine.py": b"# coding: latin-1\nprint(ascii('\xe4'))\n",
    }
    for name, data in scripts.items():
        (tmp_path / name).write_bytes(data)
        for options in ([], ["-BW", "ignore", "-x"], ["-X", "utf8"]):
            plain, ours = both([name, "-m", "forkless"], tmp_path, options=options)
            assert ours == plain, name
    for way in (["-Bm", "forkless"], ["-Bmforkless"], ["-m", "forkless", "-x"]):
        done = standard.run(
            [sys.executable, *way, "open2.py"], cwd=tmp_path, stderr=standard.PIPE, text=True
        )
        plain = both(["-x"] * ("-x" in way) + ["open2.py"], tmp_path)[0]
        assert (done.returncode, done.stderr) == (plain[0], plain[2])


def test_an_error_of_the_program_is_shown_as_by_python(tmp_path: pathlib.Path) -> None:
    programs = {
        "raises.py": "def f():\n    1 / 0\nf()\n",
        "chained.py": "try:\n    {}[1]\nexcept KeyError as e:\n    raise ValueError(2) from e\n",
        "wrong.py": "x = )\n",
        "interrupted.py": "raise KeyboardInterrupt\n",
        "hook.py": "import sys\nsys.excepthook = lambda *a: print(a[2].tb_lineno)\n1 / 0\n",
        "leaves.py": "raise SystemExit('words')\n",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        theirs = standard.run(
            [sys.executable, name],
            cwd=tmp_path,
            stdout=standard.PIPE,
            stderr=standard.PIPE,
            text=True,
        )
        ours = run(name, cwd=tmp_path)
        assert ours.returncode == theirs.returncode, name
        assert (ours.stdout, ours.stderr) == (theirs.stdout, theirs.stderr), name
    (tmp_path / "__main__.py").write_text("import sys; print(__file__, sys.path[0], sys.argv)")
    theirs = standard.run([sys.executable, "./"], cwd=tmp_path, stdout=standard.PIPE, text=True)
    assert run("./", cwd=tmp_path).stdout == theirs.stdout


def test_a_script_that_is_not_there_is_told_of_by_the_typed_name(tmp_path: pathlib.Path) -> None:
    directory, name = os.path.split(sys.executable)
    said = []
    for words in ([name, "nope.py"], [name, "-m", "forkless", "nope.py"]):
        done = standard.run(
            words,
            cwd=str(tmp_path),
            env=dict(os.environ, PATH=directory),
            stderr=standard.PIPE,
            text=True,
        )
        said.append((done.returncode, done.stderr))
    assert said[0] == said[1]
    assert said[0][1].startswith(name + ": can't open file ")


def test_the_usage(tmp_path: pathlib.Path) -> None:
    assert run("--help").stdout.startswith("usage: python -m forkless")
    for arguments in ([], ["-x"], ["-m"], ["-c"]):
        done = run(*arguments)
        assert done.returncode == 2 and "python -m forkless" in done.stderr
