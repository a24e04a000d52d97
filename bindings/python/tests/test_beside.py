"""Beside other packages: tracers, gevent, eventlet, mocks, pickle, and a program that has given up
its files.

Each runs in an interpreter of its own, since it changes the standard modules.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess as standard
import sys
import textwrap
from typing import Tuple

import pytest
from _tools import skip

HERE = os.path.dirname(__file__)

PRELUDE = """
import faulthandler, os, sys
# A wait without an end is to fail, and to say where it waits.
faulthandler.dump_traceback_later(200, exit=True)
sys.path.insert(0, %r)
from _tools import FORKS, c_calls
""" % HERE

WAYS = {
    "import": "from forkless import subprocess",
    "install": "import forkless; forkless.install(); import subprocess",
}


def python(code: str, *options: str) -> str:
    """Runs the code, and returns what it prints."""
    done = standard.run(
        [sys.executable, *options, "-c", PRELUDE + textwrap.dedent(code)],
        stdin=standard.DEVNULL,
        stdout=standard.PIPE,
        stderr=standard.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


WRAPPED = """
    import functools, subprocess
    called = []
    class Descriptor:
        # As wrapt has it: no function, but it makes a method.
        def __init__(self, function):
            self.function = function
        def __get__(self, instance, owner):
            return functools.partial(self.count, instance)
        def count(self, instance, *args, **kwargs):
            called.append(self.function.__name__)
            return self.function(instance, *args, **kwargs)
    def wrapped(function):
        @functools.wraps(function)
        def wrapper(self, *args, **kwargs):
            called.append(function.__name__)
            return function(self, *args, **kwargs)
        return wrapper
    names = ["__init__", "_execute_child", "wait", "_wait", "communicate", "send_signal", "poll"]
    for name in names:
        setattr(subprocess.Popen, name, %s(getattr(subprocess.Popen, name)))
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("by", ["wrapped", "Descriptor"])
def test_methods_that_a_tracer_has_wrapped_are_kept_and_nothing_forks(way: str, by: str) -> None:
    out = python(
        textwrap.dedent(WRAPPED % by)
        + WAYS[way]
        + textwrap.dedent(
            """
            with c_calls() as calls:
                done = subprocess.run(["sh", "-c", "echo a; exit 3"], stdout=-1, nice=5)
                assert (done.stdout, done.returncode) == (b"a\\n", 3), done
                child = subprocess.Popen(["sleep", "99"], process_group=0)
                child.kill()
                assert child.wait() == -9
                try:
                    subprocess.run(["/nowhere"])
                except FileNotFoundError as error:
                    assert error.filename == "/nowhere"
            assert not calls & FORKS, calls
            assert {"__init__", "communicate", "wait", "send_signal"} <= set(called), called
            # The start is ours: the tracer's is asked where there is a preexec_fn.
            assert "_execute_child" not in called, called
            import warnings
            warnings.simplefilter("ignore")
            assert subprocess.call(["true"], preexec_fn=lambda: None) == 0
            assert "_execute_child" in called
            print("done")
            """
        )
    )
    assert out == "done\n"


@pytest.mark.parametrize("what", ["run", "check_output", "Popen", "Popen.wait"])
def test_a_mock_at_the_time_of_the_import_does_not_stay(what: str) -> None:
    out = python(
        """
        from unittest import mock
        with mock.patch("subprocess.%s"):
            from forkless import subprocess
        with c_calls() as calls:
            assert subprocess.run(["sh", "-c", "exit 3"], nice=5).returncode == 3
            assert subprocess.check_output(["echo", "a"]) == b"a\\n"
        assert not calls & FORKS, calls
        print("done")
        """
        % what
    )
    assert out == "done\n"


def library(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        skip("%s is not installed" % name)


PATCHES = {
    "gevent": "import gevent.monkey; gevent.monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
}

# Each child waits for the next one's start: only children that run side by side come to an end.
SIDE_BY_SIDE = """
import os
pipes = [os.pipe() for _ in range(3)]
def start(number, **options):
    mine, other = pipes[number][0], pipes[(number + 1) % 3][1]
    line = "echo >&%d; read word <&%d; exit %d" % (other, mine, number)
    return subprocess.run(["sh", "-c", line], pass_fds=[mine, other], **options).returncode
def all_of(**options):
    if "gevent" in sys.modules:
        import gevent
        return [one.get() for one in [gevent.spawn(start, n, **options) for n in range(3)]]
    import eventlet
    return [one.wait() for one in [eventlet.spawn(start, n, **options) for n in range(3)]]
with c_calls() as calls:
    assert all_of() == [0, 1, 2]
    assert all_of(stdout=subprocess.PIPE) == [0, 1, 2]
    assert all_of(stdout=subprocess.PIPE, stderr=subprocess.PIPE) == [0, 1, 2]
    assert all_of(stdout=subprocess.PIPE, timeout=150) == [0, 1, 2]
    assert all_of(stdout=subprocess.PIPE, deadline=150) == [0, 1, 2]
    assert subprocess.run(["cat"], input=b"x" * 100000, stdout=-1).stdout == b"x" * 100000
    try:
        subprocess.run(["sh", "-c", "sleep 99 & exit 0"], stdout=-1, deadline=0.1)
    except subprocess.TimeoutExpired as error:
        print("deadline", error.timeout)
assert not calls & FORKS, calls
print("done")
"""


@pytest.mark.parametrize("first", ["import", "patch"])
@pytest.mark.parametrize("by", PATCHES)
def test_greenlets_run_while_others_wait_for_their_children(by: str, first: str) -> None:
    library(by)
    order: Tuple[str, ...] = (WAYS["import"], PATCHES[by])
    out = python("\n".join(order if first == "import" else order[::-1]) + SIDE_BY_SIDE)
    assert out == "deadline 0.1\ndone\n"


@pytest.mark.parametrize("first", ["install", "patch"])
@pytest.mark.parametrize("by", PATCHES)
def test_install_leaves_a_class_of_another_package_alone(by: str, first: str) -> None:
    library(by)
    order: Tuple[str, ...] = ("import forkless; forkless.install()", PATCHES[by])
    out = python(
        "import warnings; caught = []\n"
        "warnings.showwarning = lambda text, kind, *_: caught.append(kind.__name__)\n"
        + "\n".join(order if first == "install" else order[::-1])
        + textwrap.dedent(
            """
            import subprocess
            assert subprocess.Popen.__module__.startswith(("gevent", "eventlet"))
            assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
            assert os.system("exit 3") == 3 << 8
            forkless.uninstall()
            assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
            print(caught.count("ForklessWarning"))
            """
        )
    )
    assert out == ("0\n" if first == "install" else "1\n")


def test_bytes_and_text_are_never_compared() -> None:
    code = """
        env = {b"PATH": os.environb[b"PATH"]}
        assert subprocess.run([b"true"], cwd=b"/", env=env).returncode == 0
        assert subprocess.run(b"exit 3", shell=True).returncode == 3
        assert subprocess.getoutput(b"echo a") == "a"
        assert os.spawnvp(os.P_WAIT, b"true", [b"true"]) == 0
        pid = os.posix_spawnp(b"true", [b"true"], os.environb)
        assert os.waitpid(pid, 0)[1] == 0
        print("done")
    """
    for way in WAYS.values():
        assert python(way + textwrap.dedent(code), "-bb") == "done\n"


def test_a_start_imports_nothing() -> None:
    # As in a program that has changed its root or its user, or has no descriptor left.
    out = python(
        """
        import encodings.ascii, warnings
        import forkless
        from forkless import subprocess
        system, popen = forkless.system, forkless.popen
        class Refuse:
            def find_spec(self, name, *_):
                raise AssertionError("an import of " + name)
        sys.meta_path.insert(0, Refuse())
        warnings.simplefilter("ignore")
        run = subprocess.run
        assert run("exit 3", shell=True).returncode == 3
        assert run("cd / && echo a | cat", shell=True, stdout=-1, text=True).stdout == "a\\n"
        assert subprocess.getoutput("kill -9 $$; exit") == ""
        assert subprocess.getstatusoutput("exit 3")[0] == 3
        assert run(["true"], preexec_fn=lambda: None).returncode == 0
        assert run(["true"], rlimits={0: -1}, nice=5, kill_group=True, deadline=99).returncode == 0
        assert run(["cat"], input=b"a", stdout=-1, pipesize=1 << 16).stdout == b"a"
        assert run(["true"], user=os.getuid() if os.getuid() else None).returncode == 0
        try:
            run(["sleep", "99"], timeout=0.01)
        except subprocess.TimeoutExpired:
            pass
        try:
            run(["/nowhere"])
        except FileNotFoundError:
            pass
        assert system("exit 3") == 3 << 8
        assert popen("echo a").read() == "a\\n"
        print("done")
        """
    )
    assert out == "done\n"


def test_pickle_finds_what_install_has_put_in_place() -> None:
    out = python(
        """
        import pickle, subprocess, pty, multiprocessing.util, types
        import forkless
        forkless.install()
        from forkless import _install
        kinds = types.FunctionType, types.BuiltinFunctionType
        put = [new for _, _, new, _ in _install._changed if type(new) in kinds]
        assert subprocess.run in put and os.system in put and pty.spawn in put
        for function in put:
            assert pickle.loads(pickle.dumps(function)) is function, function
        from forkless import subprocess as ours
        for name in ["run", "call", "check_output", "Popen"]:
            function = getattr(ours, name)
            assert pickle.loads(pickle.dumps(function)) is function, name
        assert pickle.loads(pickle.dumps(forkless.system)) is forkless.system
        # Who does not have forkless can load it, too.
        assert b"forkless" not in pickle.dumps([subprocess.run, os.system, os.posix_spawn])
        print("done")
        """
    )
    assert out == "done\n"


def test_a_worker_process_gets_run_by_pickle(tmp_path: object) -> None:
    path = os.path.join(str(tmp_path), "program.py")
    with open(path, "w") as file:
        file.write(
            "import multiprocessing, subprocess\n"
            "if __name__ == '__main__':\n"
            "    for how in 'spawn', 'fork':\n"
            "        with multiprocessing.get_context(how).Pool(1) as pool:\n"
            "            print(pool.apply(subprocess.run, (['sh', '-c', 'exit 3'],)).returncode)\n"
        )
    done = standard.run([sys.executable, "-m", "forkless", path], stdout=standard.PIPE, text=True)
    assert done.stdout == "3\n3\n"


def test_every_deadline_ends_the_call() -> None:
    out = python(
        """
        from forkless import subprocess, _group
        # More than poll(2) takes (24.8 days), and more than any clock has.
        for seconds in (2147484, 30 * 86400, 1e30, float("inf")):
            for watched in True, False:
                _group.watch = _group._watch.add if watched else lambda leader: None
                done = subprocess.run(["echo", "a"], stdout=-1, deadline=seconds)
                assert (done.stdout, done.returncode) == (b"a\\n", 0)
                assert subprocess.run(["true"], deadline=seconds, timeout=9e9).returncode == 0
                assert subprocess.Popen(["true"], deadline=seconds).wait(1e10) == 0
        import asyncio as standard
        from forkless import asyncio
        async def main():
            child = await asyncio.create_subprocess_exec("true", deadline=float("inf"))
            return await child.wait()
        assert standard.run(main()) == 0
        print("done")
        """
    )
    assert out == "done\n"


def test_a_star_import_gives_asyncio_s_names() -> None:
    out = python(
        """
        import asyncio
        theirs, ours = {}, {}
        exec("from asyncio import *", theirs)
        exec("from forkless.asyncio import *", ours)
        assert set(theirs) == set(ours), set(theirs) ^ set(ours)
        assert ours["create_subprocess_exec"].__module__ == "forkless.asyncio"
        print("done")
        """
    )
    assert out == "done\n"


def test_an_error_has_no_other_error_for_its_context() -> None:
    out = python(
        """
        import subprocess, forkless
        forkless.install()
        calls = [
            lambda: subprocess.run(["/nowhere"]),
            lambda: subprocess.run(["true"], cwd="/nowhere"),
            lambda: os.posix_spawn("/nowhere", ["x"], {}),
            lambda: os.posix_spawn(3, ["x"], {}),
            lambda: os.posix_spawnp("true", ["true"], 3),
            lambda: os.posix_spawnp("true", 3, {}),
            lambda: os.spawnv(os.P_WAIT, "true", 3),
            lambda: os.spawnv(os.P_WAIT, "true", []),
        ]
        for number, call in enumerate(calls):
            try:
                call()
            except Exception as error:
                assert error.__context__ is None, (number, error.__context__)
            else:
                raise AssertionError(number)
        print("done")
        """
    )
    assert out == "done\n"
