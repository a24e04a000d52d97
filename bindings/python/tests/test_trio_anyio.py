"""`forkless.trio` and `forkless.anyio`: the libraries' behaviour, started on the calling thread."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Awaitable, Callable, Dict, List
from unittest import mock

import pytest
from held_program import children, held_program, is_in_exec, open_descriptors

pytestmark = pytest.mark.usefixtures("nothing_is_left")

PIPE = subprocess.PIPE
NOTHING: Dict[str, Any] = {"stdin": None, "stdout": None, "stderr": None}


def needed(name: str) -> Any:
    try:
        return pytest.importorskip(name)
    except pytest.skip.Exception:
        print("skipped: %s is not installed" % name)
        raise


@pytest.fixture
def no_other_way(monkeypatch: pytest.MonkeyPatch, no_fork_and_no_thread: Any) -> None:
    """The ways that must not be taken raise an error: forks, and threads."""
    # trio has threads of its own making.
    for module in ("trio._core._thread_cache", "_thread"):
        try:
            monkeypatch.setattr(module + ".start_new_thread", no_fork_and_no_thread)
        except (ImportError, AttributeError):
            pass


class OnTrio:
    """trio's own functions, ours, and how to run them."""

    def __init__(self) -> None:
        self.module = needed("trio")
        import forkless.trio

        self.ours = forkless.trio
        self.standard_open = self.module.lowlevel.open_process
        self.standard_run = self.module.run_process

    def run(self, main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        return self.module.run(main, *args)


class OnAnyio:
    def __init__(self, backend: str) -> None:
        self.module = needed("anyio")
        if backend == "trio":
            needed("trio")
        self.backend = backend
        import forkless.anyio

        self.ours = forkless.anyio
        self.standard_open = self.module.open_process
        self.standard_run = self.module.run_process

    def run(self, main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        return self.module.run(main, *args, backend=self.backend)


@pytest.fixture(params=["trio", "anyio on asyncio", "anyio on trio"])
def on(request: pytest.FixtureRequest) -> Any:
    if request.param == "trio":
        return OnTrio()
    return OnAnyio(request.param.rsplit(" ", 1)[1])


def capture(on: Any) -> Dict[str, Any]:
    return {"capture_stdout": True} if isinstance(on, OnTrio) else {}


async def sleep(on: Any, seconds: float) -> None:
    await on.module.sleep(seconds)


def test_run_process_without_fork_and_thread(on: Any, no_other_way: None) -> None:
    async def main() -> Any:
        command = ["sh", "-c", "echo hi; exit 3"]
        done = await on.ours.run_process(command, check=False, **capture(on))
        return done.stdout, done.returncode

    assert on.run(main) == (b"hi\n", 3)


def test_a_nonzero_status_raises_the_standard_error(on: Any) -> None:
    async def main() -> None:
        await on.ours.run_process(["sh", "-c", "exit 3"])

    with pytest.raises(subprocess.CalledProcessError) as raised:
        on.run(main)
    assert raised.value.returncode == 3


def test_the_child_has_the_state_of_the_calling_thread(on: Any, no_other_way: None) -> None:
    """A worker thread of trio's would have been started with another affinity."""
    before = os.sched_getaffinity(0)
    only = {min(before)}

    async def main() -> bytes:
        os.sched_setaffinity(0, only)
        command = ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"]
        done = await on.ours.run_process(command, **capture(on))
        return bytes(done.stdout)

    try:
        assert on.run(main).split() == [b"Cpus_allowed_list:", b"%d" % min(only)]
    finally:
        os.sched_setaffinity(0, before)


def test_the_loop_goes_on_during_an_exec(on: Any, tmp_path: Path) -> None:
    async def main() -> int:
        with held_program(tmp_path) as (program, let_go):
            before = children()
            codes: List[int] = []

            async def start() -> None:
                child = await on.ours.open_process([program], **NOTHING)
                codes.append(await child.wait())

            async def watch() -> None:
                pid = await new_child(on, before)
                await some_turns(on, pid)
                assert not codes
                let_go()

            await together(on, start, watch)
            return codes[0]

    assert on.run(main) == 0


async def together(on: Any, *functions: Callable[[], Awaitable[None]]) -> None:
    if isinstance(on, OnTrio):
        group = on.module.open_nursery()
    else:
        group = on.module.create_task_group()
    async with group as tasks:
        for function in functions:
            tasks.start_soon(function)


@pytest.fixture(params=["trio", "anyio on trio"])
def on_trio(request: pytest.FixtureRequest) -> Any:
    return OnTrio() if request.param == "trio" else OnAnyio("trio")


def test_a_start_on_asyncio_that_is_cancelled_during_the_exec_leaves_no_child(
    tmp_path: Path,
) -> None:
    on = OnAnyio("asyncio")

    async def main() -> bool:
        with held_program(tmp_path) as (program, _):
            before = children()
            with on.module.move_on_after(0.05) as scope:
                await on.ours.open_process([program], stdin=PIPE, stdout=PIPE)
            # anyio cancels the wait for the child's end as well: it is killed, and reaped soon.
            while children() != before:
                await sleep(on, 0.001)
            return bool(scope.cancel_called)

    assert on.run(main)


async def new_child(on: Any, before: "set[int]") -> int:
    """Awaits a child that was not there before."""
    while not children() - before:
        await sleep(on, 0)
    (pid,) = children() - before
    return pid


async def some_turns(on: Any, pid: int) -> None:
    """The child is in its exec before and after them."""
    for _ in range(10):
        await sleep(on, 0.001)
    assert pid in children() and is_in_exec(pid)


def test_a_cancel_during_the_exec_waits_for_its_end_on_trio(on_trio: Any, tmp_path: Path) -> None:
    """As where the library starts the child, whoever started it has it and sees to its end."""
    on = on_trio
    started: List[Any] = []

    async def main() -> bool:
        scope = on.module.CancelScope()
        with held_program(tmp_path, "/bin/sleep") as (program, let_go):

            async def start() -> None:
                with scope:
                    child = await on.ours.open_process([program, "600"], **NOTHING)
                    started.append(child)
                    await sleep(on, 600)

            async def cancel() -> None:
                pid = await new_child(on, before)
                scope.cancel()
                await some_turns(on, pid)
                assert not started
                let_go()

            before = children()
            await together(on, start, cancel)
        (child,) = started
        assert child.returncode is None
        child.terminate()
        await child.wait()
        return bool(child.returncode == -15)

    assert on.run(main)


def test_a_cancel_during_the_exec_is_delivered_by_trio(tmp_path: Path) -> None:
    on = OnTrio()
    asked: List[Any] = []

    async def deliver_cancel(process: Any) -> None:
        asked.append(process.returncode)
        process.send_signal(signal.SIGUSR1)

    async def main() -> None:
        with held_program(tmp_path, "/bin/sleep") as (program, let_go):
            before = children()
            async with on.module.open_nursery() as nursery:
                run = partial(on.ours.run_process, deliver_cancel=deliver_cancel)
                nursery.start_soon(run, [program, "600"])
                pid = await new_child(on, before)
                nursery.cancel_scope.cancel()
                with on.module.CancelScope(shield=True):
                    await some_turns(on, pid)
                let_go()
        assert asked == [None] and children() == before

    on.run(main)


@pytest.mark.parametrize("by", ["cancel", "interrupt"])
def test_a_cancel_after_any_step_of_a_start_is_delivered_by_trio(by: str) -> None:
    on = OnTrio()
    trio = on.module
    asked: List[Any] = []

    class Steps(trio.abc.Instrument):  # type: ignore[misc, name-defined]
        def __init__(self, left: int, act: Callable[[], None]) -> None:
            self.left, self.act = left, act

        def before_task_step(self, task: Any) -> None:
            self.left -= 1
            if self.left == 0:
                self.act()

    async def deliver_cancel(process: Any) -> None:
        asked.append(process.returncode)
        process.terminate()

    @trio.lowlevel.enable_ki_protection
    async def step() -> None:
        while True:
            await trio.sleep(0.0003)

    async def main(left: int) -> None:
        # A wait for the child's end has few steps of its own.
        trio.lowlevel.spawn_system_task(step)
        with trio.CancelScope() as scope:
            act = scope.cancel if by == "cancel" else partial(signal.raise_signal, signal.SIGINT)
            steps = Steps(left, act)
            trio.lowlevel.add_instrument(steps)
            try:
                await on.ours.run_process(["sleep", "600"], deliver_cancel=deliver_cancel)
            finally:
                trio.lowlevel.remove_instrument(steps)

    before = children()
    for left in range(1, 21):
        try:
            on.run(main, left)
        except BaseException as error:
            # One of a group, by trio's own run_process.
            assert by == "interrupt" and "KeyboardInterrupt()" in repr(error)
        else:
            assert by == "cancel"
        assert asked == [None] * left and children() == before


def test_an_interrupt_during_the_exec_waits_for_its_end_on_trio(
    on_trio: Any, tmp_path: Path
) -> None:
    """trio raises it wherever the main task waits, and a shield is nothing to it."""
    on = on_trio
    from trio import lowlevel

    started: List[Any] = []

    before = children()
    with held_program(tmp_path, "/bin/sleep") as (program, let_go):

        @lowlevel.enable_ki_protection
        async def interrupt() -> None:
            pid = await new_child(on, before)
            signal.raise_signal(signal.SIGINT)
            await some_turns(on, pid)
            assert not started
            let_go()

        async def main() -> None:
            lowlevel.spawn_system_task(interrupt)
            child = await on.ours.open_process([program, "600"], **NOTHING)
            started.append(child)
            try:
                await sleep(on, 600)
            finally:
                child.terminate()
                with on.module.CancelScope(shield=True):
                    assert await child.wait() == -15

        with pytest.raises(KeyboardInterrupt):
            on.run(main)
        assert started


@pytest.mark.parametrize("by", ["cancel", "interrupt"])
def test_a_cancelled_start_whose_exec_does_not_end_leaves_no_child(
    on_trio: Any, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = on_trio
    import forkless.trio
    from trio import lowlevel

    monkeypatch.setattr(forkless.trio, "LONGEST_EXEC_OF_A_CANCELLED_START", 0.02)

    with held_program(tmp_path) as (program, _):
        before = children()

        @lowlevel.enable_ki_protection
        async def stop(scope: Any) -> None:
            await new_child(on, before)
            if by == "cancel":
                scope.cancel()
            else:
                signal.raise_signal(signal.SIGINT)

        async def main() -> Any:
            with on.module.CancelScope() as scope:
                lowlevel.spawn_system_task(stop, scope)
                await on.ours.open_process([program], stdin=PIPE, stdout=PIPE)
            return scope.cancelled_caught

        if by == "cancel":
            assert on.run(main)
        else:
            with pytest.raises(KeyboardInterrupt):
                on.run(main)
        assert children() == before


def test_a_start_goes_on_where_no_descriptor_can_be_watched_on_trio(
    on_trio: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on = on_trio
    from trio import lowlevel

    refused: List[int] = []

    async def refuse(fd: int) -> None:
        refused.append(fd)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def main() -> None:
        with held_program(tmp_path) as (program, let_go):
            before = children()

            async def start() -> None:
                with monkeypatch.context() as patched:
                    patched.setattr(lowlevel, "wait_readable", refuse)
                    child = await on.ours.open_process([program], **NOTHING)
                assert refused and await child.wait() == 0

            async def go_on() -> None:
                await some_turns(on, await new_child(on, before))
                let_go()

            await together(on, start, go_on)

    on.run(main)


@pytest.mark.parametrize(
    "command, options",
    [
        (["/does/not/exist"], {}),
        (["no-program-of-this-name"], {}),
        (["/etc/passwd"], {}),
        (["/bin/true"], {"cwd": "/does/not/exist"}),
        (["/bin/true"], {"env": {"a=b": "c"}}),
    ],
)
def test_errors_are_the_library_s(on: Any, command: List[str], options: Any) -> None:
    async def failure(function: Any) -> List[Any]:
        with pytest.raises(Exception) as raised:
            await function(command, stdin=PIPE, stdout=PIPE, **options)
        error = raised.value
        return [type(error), error.args, getattr(error, "filename", None), str(error)]

    assert on.run(failure, on.ours.open_process) == on.run(failure, on.standard_open)


@pytest.mark.parametrize("options", [{}, {"deadline": 60}])
def test_a_kept_error_keeps_no_descriptor(on: Any, options: Dict[str, Any]) -> None:
    async def main() -> None:
        before = open_descriptors()
        with pytest.raises(PermissionError) as kept:
            await on.ours.open_process(["/dev/null"], **NOTHING, **options)
        assert open_descriptors() == before
        assert kept.value.errno == errno.EACCES

    on.run(main)


def test_options_beyond_the_library_s(on: Any, no_other_way: None) -> None:
    async def main() -> bytes:
        command = ["sh", "-c", "ulimit -n"]
        limits = {resource.RLIMIT_NOFILE: 77}
        done = await on.ours.run_process(command, rlimits=limits, **capture(on))
        return bytes(done.stdout)

    assert on.run(main) == b"77\n"


def test_a_deadline_holds_over_grandchildren(on: Any) -> None:
    async def main() -> int:
        command = ["sh", "-c", "sleep 600 & sleep 600"]
        done = await on.ours.run_process(command, deadline=0.2, check=False, **capture(on))
        return int(done.returncode)

    assert on.run(main) == -9


def test_a_child_that_has_ended_leaves_no_thread_for_its_deadline(on: Any) -> None:
    from forkless import _group

    async def main() -> int:
        done = await on.ours.run_process(["true"], deadline=600, **capture(on))
        return int(done.returncode)

    before = _group.is_watching()
    assert on.run(main) == 0
    assert before or not _group.is_watching()


def test_input_is_fed(on: Any) -> None:
    async def main() -> bytes:
        given = {"stdin" if isinstance(on, OnTrio) else "input": b"x" * 200_000}
        done = await on.ours.run_process(["cat"], **given, **capture(on))
        return bytes(done.stdout)

    assert on.run(main) == b"x" * 200_000


def test_many_children_at_a_time(on: Any) -> None:
    async def main() -> List[int]:
        codes: Dict[int, int] = {}

        def one(n: int) -> Callable[[], Awaitable[None]]:
            async def start() -> None:
                command = ["sh", "-c", "exit %d" % n]
                codes[n] = (await on.ours.run_process(command, check=False)).returncode

            return start

        await together(on, *map(one, range(50)))
        return [codes[n] for n in range(50)]

    assert on.run(main) == list(range(50))


def test_more_starts_at_a_time_than_descriptors_for_their_execs(on: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def one() -> None:
        child = await on.ours.open_process(["true"], **NOTHING)
        await child.wait()

    async def main() -> None:
        # trio's process has a pidfd of its own beside ours.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 60, hard))
        try:
            await together(on, *[one] * 25)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    on.run(main)


def test_the_process_is_the_library_s(on: Any) -> None:
    async def main() -> None:
        child = await on.ours.open_process(["true"])
        expected = on.module.Process if isinstance(on, OnTrio) else on.module.abc.Process
        assert isinstance(child, expected)
        await child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                await pipe.aclose()

    on.run(main)


def test_trio_s_nursery_starts_a_child() -> None:
    on = OnTrio()

    async def main() -> Any:
        async with on.module.open_nursery() as nursery:
            child = await nursery.start(on.ours.run_process, ["sleep", "60"])
            assert isinstance(child, on.module.Process)
            nursery.cancel_scope.cancel()
        return child.returncode

    assert on.run(main) == -15


def test_trio_s_patches_serve_its_own_functions(no_other_way: None) -> None:
    on = OnTrio()
    patched = [mock.patch.object(owner, name, new) for owner, name, new in on.ours._patches()]
    for patch in patched:
        patch.start()
    try:

        async def main() -> bytes:
            done = await on.standard_run(["echo", "hi"], capture_stdout=True)
            return bytes(done.stdout)

        assert on.run(main) == b"hi\n"
    finally:
        for patch in patched:
            patch.stop()


@pytest.mark.parametrize("name", ["trio", "anyio"])
def test_the_modules_stand_for_the_libraries(name: str) -> None:
    library = needed(name)
    import importlib

    ours = importlib.import_module("forkless." + name)
    assert ours.run is library.run
    assert ours.open_process is not getattr(library, "open_process", None)
    assert "sleep" in dir(ours)
    with pytest.raises(AttributeError):
        ours.no_such_name


@pytest.mark.parametrize("name", ["trio", "anyio"])
def test_examples_of_the_modules(name: str) -> None:
    needed(name)
    import doctest
    import importlib

    module = importlib.import_module("forkless." + name)
    failed, tried = doctest.testmod(module, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert tried > 3 and failed == 0
