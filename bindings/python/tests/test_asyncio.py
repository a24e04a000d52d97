"""`forkless.asyncio`: the standard behaviour, and a loop that goes on during a start."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import inspect
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any, Awaitable, Callable, List, Optional
from unittest import mock

import pytest
from held_program import children, held_program, is_in_exec, open_descriptors

import forkless.asyncio
import forkless.subprocess
from forkless.asyncio import create_subprocess_exec, create_subprocess_shell

pytestmark = pytest.mark.usefixtures("nothing_is_left")

PIPE = asyncio.subprocess.PIPE


def run(main: Callable[[], Awaitable[Any]], debug: bool = False) -> Any:
    return asyncio.run(main(), debug=debug)  # type: ignore[arg-type]


@pytest.fixture
def no_other_way(monkeypatch: pytest.MonkeyPatch, no_fork_and_no_thread: Any) -> None:
    """The ways that must not be taken raise an error."""
    if hasattr(asyncio, "get_child_watcher"):
        for policy in (asyncio.DefaultEventLoopPolicy, asyncio.events):
            monkeypatch.setattr(policy, "get_child_watcher", no_fork_and_no_thread)


def test_no_fork_no_thread_and_no_watcher(no_other_way: None) -> None:
    async def main() -> Any:
        line = "read l; echo $l; exit 3"
        child = await create_subprocess_exec("sh", "-c", line, stdin=PIPE, stdout=PIPE)
        said = await child.communicate(b"hello\n")
        return said, child.returncode, await child.wait()

    assert run(main) == ((b"hello\n", None), 3, 3)


def test_the_loop_goes_on_during_an_exec(tmp_path: Path, no_other_way: None) -> None:
    async def main() -> int:
        with held_program(tmp_path) as (program, let_go):
            before = children()
            start = asyncio.ensure_future(create_subprocess_exec(program))
            # Turns of the loop, until the child is there and waits in its exec.
            while not children() - before:
                await asyncio.sleep(0)
            (pid,) = children() - before
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not start.done()
            assert is_in_exec(pid)
            let_go()
            child = await start
            assert child.pid == pid
            return await child.wait()

    assert run(main) == 0


def test_a_start_that_is_cancelled_during_the_exec_leaves_no_child(tmp_path: Path) -> None:
    async def main() -> None:
        with held_program(tmp_path) as (program, _):
            before = children()
            start = asyncio.ensure_future(create_subprocess_exec(program, stdin=PIPE, stdout=PIPE))
            while not children() - before:
                await asyncio.sleep(0)
            await asyncio.sleep(0.005)
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            assert children() == before

    run(main)


def test_a_loop_that_ends_during_an_exec_leaves_no_child(tmp_path: Path) -> None:
    async def main() -> None:
        before = children()
        asyncio.ensure_future(create_subprocess_exec(program, stdin=PIPE, stdout=PIPE))
        while not children() - before:
            await asyncio.sleep(0)
        await asyncio.sleep(0.005)

    with held_program(tmp_path) as (program, _):
        run(main)


def test_a_loop_that_ends_at_once_leaves_no_child() -> None:
    async def main(turns: int) -> None:
        create = create_subprocess_exec("sleep", "60", stdin=PIPE, stdout=PIPE)
        start = asyncio.ensure_future(create)
        starts.append(start)
        for _ in range(turns):
            await asyncio.sleep(0)

    starts: List[Any] = []
    for turns in range(8):
        asyncio.run(main(turns))
        start = starts.pop()
        if not start.cancelled():
            # It was fast, at the latest in the loop's last turn: the child is this function's.
            child = start.result()
            popen = child._transport.get_extra_info("subprocess")
            popen.kill()
            popen.wait()
            child._transport._closed = True
            for pipe in (popen.stdin, popen.stdout):
                pipe.close()


@pytest.mark.parametrize("cancels", [1, 2, 9, None])
def test_a_start_that_is_cancelled_leaves_nothing_when_it_returns(cancels: Optional[int]) -> None:
    async def main() -> None:
        for turns in range(8):
            before, descriptors = children(), open_descriptors()
            create = create_subprocess_exec("sleep", "60", stdin=PIPE, stdout=PIPE, stderr=PIPE)
            start = asyncio.ensure_future(create)
            for _ in range(turns):
                await asyncio.sleep(0)
            if start.done():
                child = start.result()
                child.kill()
                await child.communicate()
                break
            # As anyio's scopes do it, turn by turn, with None until the start has returned.
            left = sys.maxsize if cancels is None else cancels
            while left > 0 and not start.done():
                start.cancel()
                await asyncio.sleep(0)
                left -= 1
            with pytest.raises(asyncio.CancelledError):
                await start
            assert children() == before
            gc.collect()
            assert open_descriptors() <= descriptors

    run(main)


@pytest.mark.parametrize("stdio", [None, PIPE])
@pytest.mark.parametrize(
    "program, options",
    [
        ("/does/not/exist", {}),
        ("no-program-of-this-name", {}),
        ("/etc/passwd", {}),
        ("/bin/true", {"cwd": "/does/not/exist"}),
        ("/bin/tr\0ue", {}),
        ("/bin/true", {"env": {"a=b": "c"}}),
        ("/bin/true", {"pass_fds": (-1,)}),
        ("/bin/true", {"umask": "no number"}),
        ("/bin/true", {"no_option": 1}),
        ("/bin/true", {"text": True}),
        ("/bin/true", {"shell": True}),
    ],
)
def test_errors_are_the_standard_ones(program: str, options: Any, stdio: Any) -> None:
    async def failure(create: Any) -> List[Any]:
        with pytest.raises(Exception) as raised:
            await create(program, stdin=stdio, stdout=stdio, stderr=stdio, **options)
        error = raised.value
        return [type(error), error.args, getattr(error, "filename", None), str(error)]

    ours = asyncio.run(failure(create_subprocess_exec))
    standard = asyncio.run(failure(asyncio.create_subprocess_exec))
    if "no_option" in options or "\0" in program or "umask" in options:
        # The message of 3.9 names __init__() and not Popen.__init__(). The two others' is another
        # one where the standard module takes posix_spawn, and as versions check the umask.
        assert ours[0] is standard[0]
    else:
        assert ours == standard


def test_a_failed_start_tells_the_protocol_nothing() -> None:
    class Protocol(asyncio.SubprocessProtocol):
        called: List[str] = []

        def connection_made(self, transport: Any) -> None:
            self.called.append("made")

        def process_exited(self) -> None:
            self.called.append("exited")

        def connection_lost(self, exc: Any) -> None:
            self.called.append("lost")

    async def main() -> List[str]:
        starter = forkless.asyncio._Starter(asyncio.get_running_loop())
        with pytest.raises(FileNotFoundError):
            await starter.subprocess_exec(Protocol, "/does/not/exist")
        await asyncio.sleep(0.01)
        return Protocol.called

    assert run(main) == []


def test_the_child_of_a_shell_line() -> None:
    async def main() -> Any:
        line = "echo one; echo two >&2; exit 7"
        child = await create_subprocess_shell(line, stdout=PIPE, stderr=PIPE)
        return await child.communicate(), child.returncode

    assert run(main) == ((b"one\n", b"two\n"), 7)


def test_signals_reach_the_child() -> None:
    async def main() -> List[int]:
        codes = []
        for send in ("terminate", "kill"):
            child = await create_subprocess_exec("sleep", "60")
            getattr(child, send)()
            codes.append(await child.wait())
        child = await create_subprocess_exec("sleep", "60")
        child.send_signal(signal.SIGUSR1)
        codes.append(await child.wait())
        with pytest.raises(ProcessLookupError):
            child.kill()
        return codes

    assert run(main) == [-15, -9, -10]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_signals_go_by_number_where_a_filter_refuses_the_pidfd(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, sent, kill = [], [], os.kill

    def refuse(*arguments: Any) -> None:
        refused.append(arguments[1])
        raise OSError(number, os.strerror(number))

    def record(pid: int, which: int) -> None:
        sent.append(which)
        kill(pid, which)

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    monkeypatch.setattr(os, "kill", record)

    async def main() -> List[int]:
        codes = []
        for send in ("terminate", "kill"):
            child = await create_subprocess_exec("sleep", "60")
            getattr(child, send)()
            codes.append(await child.wait())
        child = await create_subprocess_exec("sleep", "60")
        child.send_signal(signal.SIGUSR1)
        codes.append(await child.wait())
        return codes

    assert run(main) == [-15, -9, -10]
    assert refused == sent == [15, 9, 10]


def test_a_status_that_popen_has_taken_is_known(caplog: pytest.LogCaptureFixture) -> None:
    """Regression of the standard ones: code 255 when `poll` was first."""

    async def main() -> int:
        child = await create_subprocess_exec("sh", "-c", "exit 5")
        popen = child._transport.get_extra_info("subprocess")  # type: ignore[attr-defined]
        popen.wait()
        return await child.wait()

    assert run(main) == 5
    assert not caplog.records


def test_a_lost_status_is_255_as_in_the_standard_module(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> int:
        child = await create_subprocess_exec("sh", "-c", "exit 5")
        os.waitpid(child.pid, 0)
        return await child.wait()

    assert run(main) == 255
    assert "exit status already read" in caplog.text


def test_without_a_pidfd_the_end_is_noticed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forkless.asyncio._awaited.Popen, "pidfd", lambda self: -1)
    monkeypatch.setattr(forkless.asyncio._awaited, "open_pidfd", lambda pid: -1)

    async def main() -> Any:
        with pytest.raises(FileNotFoundError):
            await create_subprocess_exec("/does/not/exist")
        child = await create_subprocess_exec("sh", "-c", "exit 5")
        code = await child.wait()
        child = await create_subprocess_exec("sleep", "60")
        child.kill()
        return code, await child.wait()

    assert run(main) == (5, -9)


def test_a_process_that_is_forked_meanwhile_does_not_hold_up_the_start(tmp_path: Path) -> None:
    """It keeps a copy of the pipe that tells of the exec. Only the look at the child helps."""
    popen = forkless.asyncio._awaited.Popen
    execute = popen._execute_child
    copies: List[int] = []

    def with_a_copy(self: Any, *args: Any, **kwds: Any) -> None:
        execute(self, *args, **kwds)
        # As the fork of another thread would have it. The writing end is closed here already, so
        # the child's own is opened; the reading end names the pipe.
        end = "/proc/self/fd/%d" % self.exec_fd()
        copies.append(os.open(end, os.O_WRONLY | os.O_NONBLOCK))

    async def main() -> int:
        with mock.patch.object(popen, "_execute_child", with_a_copy):
            child = await create_subprocess_exec("/bin/true")
            with pytest.raises(FileNotFoundError):
                await create_subprocess_exec("/does/not/exist")
        return await child.wait()

    try:
        assert run(main) == 0
        assert len(copies) == 2
    finally:
        for fd in copies:
            os.close(fd)


def test_a_popen_put_into_the_standard_module_is_used() -> None:
    """Tests of programs replace subprocess.Popen, and expect asyncio to use it."""

    async def main() -> None:
        for stdin in (None, PIPE):
            with mock.patch("subprocess.Popen", side_effect=ZeroDivisionError):
                with pytest.raises(ZeroDivisionError):
                    await create_subprocess_exec("true", stdin=stdin)

        class Other(subprocess.Popen):  # type: ignore[type-arg]
            pass

        with mock.patch("subprocess.Popen", Other):
            child = await create_subprocess_exec("sh", "-c", "exit 4")
        popen = child._transport.get_extra_info("subprocess")  # type: ignore[attr-defined]
        assert type(popen) is Other
        assert await child.wait() == 4

    run(main)


def test_the_popen_is_one_of_the_standard_class() -> None:
    async def main() -> None:
        child = await create_subprocess_exec("true")
        popen = child._transport.get_extra_info("subprocess")  # type: ignore[attr-defined]
        assert isinstance(popen, subprocess.Popen)
        assert isinstance(popen, forkless.subprocess.Popen)
        assert isinstance(child, asyncio.subprocess.Process)
        assert repr(child) == "<Process %d>" % child.pid
        assert "running" in repr(child._transport)  # type: ignore[attr-defined]
        await child.wait()

    run(main)


def test_limits_without_a_preexec_fn(no_other_way: None) -> None:
    async def main() -> bytes:
        child = await create_subprocess_shell(
            "ulimit -n; umask", stdout=PIPE, rlimits={resource.RLIMIT_NOFILE: 77}, umask=0o27
        )
        return (await child.communicate())[0]

    assert run(main).split() == [b"77", b"0027"]


def test_a_deadline_holds_over_grandchildren() -> None:
    async def main() -> Any:
        child = await create_subprocess_shell("sleep 600 & sleep 600", stdout=PIPE, deadline=0.2)
        said = await child.communicate()
        return said, child.returncode

    assert run(main) == ((b"", None), -9)


def test_a_deadline_holds_when_the_child_itself_has_ended() -> None:
    async def main() -> Any:
        child = await create_subprocess_shell("sleep 600 & exit 3", stdout=PIPE, deadline=0.3)
        said = await child.communicate()
        return said, child.returncode

    assert run(main) == ((b"", None), 3)


def test_a_kill_of_the_group_reaches_grandchildren() -> None:
    async def main() -> Any:
        child = await create_subprocess_shell(
            "sleep 600 & echo on; sleep 600", stdout=PIPE, kill_group=True
        )
        assert child.stdout is not None
        await child.stdout.readline()
        child.kill()
        # The end of the pipe: the grandchild is gone, too.
        return await child.stdout.read(), await child.wait()

    assert run(main) == (b"", -9)


def test_the_number_is_the_childs_until_its_end_is_told() -> None:
    """As gh-127049 asks: a signal meanwhile goes to nobody else."""

    async def main() -> Any:
        child = await create_subprocess_exec("sleep", "600")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert child.returncode is None
        child.kill()
        return await child.wait()

    assert run(main) == -9


def test_a_preexec_fn_still_works() -> None:
    async def main() -> bytes:
        hook = lambda: os.umask(0o57)  # noqa: E731
        child = await create_subprocess_shell("umask", stdout=PIPE, preexec_fn=hook)
        return (await child.communicate())[0]

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(main) == b"0057\n"


def test_another_user_without_a_fork(no_other_way: None) -> None:
    if os.getuid() != 0:
        print("skipped: only root may change the user")
        pytest.skip("only root may change the user")

    async def main() -> bytes:
        child = await create_subprocess_exec("id", "-u", stdout=PIPE, user=65534, extra_groups=[])
        return (await child.communicate())[0]

    assert run(main) == b"65534\n"


def test_a_hundred_children_at_a_time(no_other_way: None) -> None:
    async def one(n: int) -> Any:
        child = await create_subprocess_exec("sh", "-c", "echo %d; exit %d" % (n, n), stdout=PIPE)
        said, _ = await child.communicate()
        return int(said), child.returncode

    async def main() -> Any:
        return await asyncio.gather(*map(one, range(100)))

    assert run(main) == [(n, n) for n in range(100)]


def test_children_of_several_loops_in_threads() -> None:
    results: List[Any] = []

    async def main() -> Any:
        codes = []
        for n in range(10):
            child = await create_subprocess_exec("sh", "-c", "exit %d" % n)
            codes.append(await child.wait())
        return codes

    threads = [threading.Thread(target=lambda: results.append(run(main))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [list(range(10))] * 4


# The transport of 3.10, and that of early versions of 3.11, loses two descriptors for each start
# that had none left.
STANDARD_LEAKS = """
import asyncio, gc, os, resource, sys
def is_open(fd):
    try: os.fstat(fd)
    except OSError: return False
    return True
async def main():
    await (await asyncio.create_subprocess_exec("true")).wait()
    limit, taken = max(map(int, os.listdir("/proc/self/fd"))) + 16, []
    count = lambda: sum(map(is_open, range(limit)))
    before = count()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    try:
        while True: taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError: pass
    while taken:
        os.close(taken.pop())
        try: child = await asyncio.create_subprocess_exec("true", stdin=-1, stdout=-1)
        except OSError: continue
        await child.communicate()
        del child
        break
    await asyncio.sleep(0.1)
    gc.collect()
    sys.exit(count() > before + len(taken))
asyncio.run(main())
"""


def test_no_descriptor_left_is_an_error_and_no_harm() -> None:
    if subprocess.run([sys.executable, "-c", STANDARD_LEAKS], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this version's own transport loses descriptors")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        await (await create_subprocess_exec("true")).wait()
        taken: List[int] = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 8, hard))
        try:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
            while taken:
                # One more is free each time, until the start succeeds.
                os.close(taken.pop())
                try:
                    child = await create_subprocess_exec("true", stdin=PIPE, stdout=PIPE)
                except OSError as error:
                    assert error.errno == errno.EMFILE
                else:
                    await child.communicate()
                    break
            else:
                pytest.fail("never started")
        finally:
            for fd in taken:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    run(main)


def test_more_starts_at_a_time_than_descriptors_for_their_execs() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def one() -> int:
        return await (await create_subprocess_exec("true")).wait()

    async def main() -> Any:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 60, hard))
        try:
            return await asyncio.gather(*[one() for _ in range(50)])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert run(main) == [0] * 50


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("options", [{}, {"kill_group": True}, {"deadline": 600}], ids=str)
def test_a_child_that_outlives_its_loop_keeps_no_descriptor(options: Any) -> None:
    before = open_descriptors()

    async def main() -> None:
        await create_subprocess_exec("sleep", "600", **options)

    run(main)
    gc.collect()
    assert open_descriptors() == before
    for popen in list(forkless.subprocess._active):  # type: ignore[attr-defined]
        popen.wait()
        forkless.subprocess._active.remove(popen)  # type: ignore[attr-defined]


def test_debug_mode_logs_as_the_standard_loop_does(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        await (await create_subprocess_exec("true")).wait()

    with caplog.at_level("DEBUG", logger="asyncio"):
        run(main, debug=True)
    for part in ("execute program 'true'", "created: pid", "exited with return code 0"):
        assert part in caplog.text


def test_the_module_stands_for_asyncio() -> None:
    from forkless import asyncio as ours

    assert ours.run is asyncio.run
    assert ours.subprocess.PIPE is asyncio.subprocess.PIPE
    assert ours.subprocess.create_subprocess_exec is create_subprocess_exec
    assert "gather" in dir(ours)
    with pytest.raises(AttributeError):
        ours.no_such_name


@pytest.mark.skipif(sys.version_info < (3, 10), reason="3.9 has the argument loop")
def test_signatures_are_the_standard_ones() -> None:
    for name in ("create_subprocess_exec", "create_subprocess_shell"):
        signatures = [
            inspect.signature(getattr(module, name)).parameters.values()
            for module in (forkless.asyncio, asyncio)
        ]
        ours, standard = ([(p.name, p.kind, p.default) for p in s] for s in signatures)
        assert ours == standard


@pytest.fixture(scope="session")
def uvloop() -> Any:
    """The module, after its first loop: a pipe of libuv's stays from that."""
    try:
        module = pytest.importorskip("uvloop")
    except pytest.skip.Exception:
        print("skipped: uvloop is not installed")
        raise
    module.new_event_loop().close()
    return module


def test_uvloop_s_loop_is_served_too(uvloop: Any) -> None:
    async def main() -> Any:
        # As on asyncio's own loops. uvloop's own errors name nothing.
        with pytest.raises(FileNotFoundError) as caught:
            await create_subprocess_exec("/does/not/exist")
        assert caught.value.filename == "/does/not/exist"
        with pytest.raises(FileNotFoundError) as caught:
            await create_subprocess_exec("true", cwd="/no/such/directory")
        assert caught.value.filename == "/no/such/directory"
        child = await create_subprocess_shell("cat; exit 3", stdin=PIPE, stdout=PIPE)
        return await child.communicate(b"x" * 100_000), child.returncode

    loop = uvloop.new_event_loop()
    try:
        assert loop.run_until_complete(main()) == ((b"x" * 100_000, None), 3)
    finally:
        loop.close()


def test_an_error_names_what_the_standard_one_names() -> None:
    async def told(create: Callable[..., Awaitable[Any]], program: Any, options: Any) -> Any:
        try:
            await create(program, **options)
        except OSError as error:
            return repr(error), error.filename, type(error.filename)

    async def main() -> None:
        programs = ("/does/not/exist", b"/does/not/exist", Path("/does/not/exist"), "not-there")
        for program in programs:
            for options in ({}, {"cwd": "/"}, {"cwd": Path("/nowhere")}, {"close_fds": False}):
                ours = await told(create_subprocess_exec, program, options)
                assert ours == await told(asyncio.create_subprocess_exec, program, options)
                assert ours is not None

    run(main)


@pytest.mark.parametrize("installed", [False, True])
def test_install_leaves_uvloop_s_loop_as_it_is(uvloop: Any, installed: bool) -> None:
    code = '''
        import asyncio, uvloop
        async def main():
            for args, options in ((["/does/not/exist"], {}), (["true"], {"cwd": "/nowhere"})):
                try:
                    await asyncio.create_subprocess_exec(*args, **options)
                except OSError as error:
                    print(repr(error), error.filename)
        loop = uvloop.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    '''
    before = "import forkless; forkless.install()" if installed else ""
    command = [sys.executable, "-c", before + textwrap.dedent(code)]
    said = subprocess.run(command, stdout=PIPE, text=True, check=True).stdout
    assert said == "FileNotFoundError(2, 'No such file or directory') None\n" * 2


def test_examples_of_the_module() -> None:
    import doctest

    failed, tried = doctest.testmod(forkless.asyncio, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert tried > 5 and failed == 0
    failed, tried = doctest.testmod(forkless.asyncio._awaited)
    assert tried and failed == 0


def test_cpython_s_own_tests_pass() -> None:
    """Those of one watcher: no watcher is asked. The runner without `--only` runs all."""
    runner = Path(__file__).parent.parent / "cpython" / "asyncio_subprocess.py"
    if not runner.exists():
        print("skipped: %s is not here" % runner)
        pytest.skip("the runner is not here")
    command = [sys.executable, str(runner), "--only", "Pidfd"]
    done = subprocess.run(command, stdout=PIPE, stderr=subprocess.STDOUT, text=True)
    if "skipped: this interpreter has no tests" in done.stdout:
        print(done.stdout)
        pytest.skip("this interpreter has no tests")
    assert done.returncode == 0, done.stdout
    assert "OK" in done.stdout
