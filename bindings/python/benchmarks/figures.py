#!/usr/bin/env python3
"""The package's figures: python figures.py [--quick] [--only WORD] [--json FILE].

Each line compares one thing with the standard library's way to do it, in this interpreter. Both
take turns in rounds, in an order drawn anew for each round, and the first call of a turn does not
count. A ratio is that of the two medians; its interval (95 %) comes from resampling whole rounds.

Programs are static, tiny, and written here. Memory is in base pages, written once. A line that this
machine cannot measure is skipped, with the reason.
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.events
import ctypes
import json
import mmap
import os
import platform
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, Awaitable, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

import forkless
from forkless import _display
from forkless import asyncio as our_asyncio
from forkless import subprocess as ours

CHILDREN = 1000
LARGE = 100 << 20
# Seconds.
SLOW_EXEC = 0.05


class Skip(Exception):
    """This machine cannot measure it."""


class Case(NamedTuple):
    """Two functions that do one thing; each gives the nanoseconds of one call."""

    name: str
    limit: float
    base: str
    its: Callable[[], float]
    mine: Callable[[], float]
    rounds: int


_Line = Union[Case, Skip]


# The programs.

_EXIT = {
    # mov $60, %eax; xor %edi, %edi; syscall
    "x86_64": (62, bytes.fromhex("b83c00000031ff0f05")),
    # mov x0, #0; mov x8, #93; svc #0
    "aarch64": (183, bytes.fromhex("000080d2a80b80d2010000d4")),
}


def program(file: str, size: int = 0) -> str:
    """Writes a static program that exits with 0; if `size` is given, so large, with data at its end
    that the kernel has to read before the program runs, as in any large program with a .bss.
    """
    try:
        machine, code = _EXIT[platform.machine()]
    except KeyError:
        raise Skip("no tiny program for %s" % platform.machine())
    count, page, base = (2 if size else 1), 0x10000, 0x400000
    at = 64 + 56 * count
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        2,
        machine,
        1,
        base + at,
        64,
        0,
        0,
        64,
        56,
        count,
        0,
        0,
        0,
    )
    # PT_LOAD, readable and executable.
    text = size - page if size else at + len(code)
    header += struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, text, text, page)
    if size:
        # Readable and writable; the part behind the file's is not a whole page.
        address = base + text + page
        header += struct.pack("<IIQQQQQQ", 1, 6, text, address, address, page - 8, 2 * page, page)
    with open(file, "wb") as out:
        out.write(header + code)
        if size:
            # Not sparse: a hole is read without the disk.
            block = os.urandom(1 << 20)
            out.seek(1 << 20)
            while out.tell() < size:
                out.write(block[: size - out.tell()])
            out.seek(at + len(code))
            out.write(os.urandom((1 << 20) - out.tell()))
        out.flush()
        os.fsync(out.fileno())
    os.chmod(file, 0o755)
    return file


def pages_in_cache(file: str) -> int:
    """The pages of a file that are in the page cache (mincore)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    length = os.path.getsize(file)
    fd = os.open(file, os.O_RDONLY)
    try:
        address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
        seen = ctypes.create_string_buffer(length // mmap.PAGESIZE + 1)
        libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), seen)
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length))
        return sum(byte & 1 for byte in seen.raw)
    finally:
        os.close(fd)


def drop_from_cache(file: str) -> None:
    fd = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


class SlowExec:
    """While this is entered, each exec of a file waits, as on a slow disk or behind a virus scanner.

    Another process answers the kernel's questions (fanotify, `FAN_OPEN_EXEC_PERM`): in this one the
    loop under measurement would have to. If that process dies, the kernel allows the exec.
    """

    _WATCH = """
import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
file, seconds = sys.argv[1], float(sys.argv[2])
# FAN_CLASS_CONTENT | FAN_CLOEXEC
fd = libc.fanotify_init(5, os.O_RDONLY)
# FAN_MARK_ADD, FAN_OPEN_EXEC_PERM
mask = ctypes.c_uint64(0x40000)
if fd == -1 or libc.fanotify_mark(fd, 1, mask, -100, os.fsencode(file)) == -1:
    sys.exit(os.strerror(ctypes.get_errno()))
print("ready", flush=True)
while True:
    events = os.read(fd, 4096)
    time.sleep(seconds)
    for at in range(0, len(events), 24):
        opened = struct.unpack_from("=i", events, at + 16)[0]
        # FAN_ALLOW
        os.write(fd, struct.pack("=iI", opened, 1))
        os.close(opened)
"""

    def __init__(self, file: str, seconds: float) -> None:
        self._words = [sys.executable, "-Ic", self._WATCH, file, str(seconds)]

    def __enter__(self) -> None:
        pipe = subprocess.PIPE
        self._watch = subprocess.Popen(self._words, stdout=pipe, stderr=pipe, text=True)
        assert self._watch.stdout and self._watch.stderr
        if not self._watch.stdout.readline():
            why = self._watch.stderr.read().strip()
            self.__exit__()
            raise Skip("an exec that waits: fanotify: %s" % why)

    def __exit__(self, *error: object) -> None:
        self._watch.kill()
        self._watch.communicate()


def written_memory(size: int) -> mmap.mmap:
    """Private memory in base pages, each written."""
    free = os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE
    if free < size * 1.2:
        raise Skip("only %s of memory are free" % _display.size(free))
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(getattr(mmap, "MADV_NOHUGEPAGE", 15))
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


# The lines.


def timed(function: Callable[..., Any], *args: Any, **more: Any) -> Callable[[], float]:
    def once() -> float:
        begun = time.perf_counter_ns()
        function(*args, **more)
        return time.perf_counter_ns() - begun

    return once


def starts(tiny: str, rounds: int) -> Iterator[_Line]:
    ways: List[Tuple[str, Dict[str, Any]]] = [
        ("run([tiny])", {}),
        ("run([tiny], capture_output=True)", {"capture_output": True}),
    ]
    for name, more in ways:
        its = timed(subprocess.run, [tiny], **more)
        yield Case(name, 0.75, "subprocess.run", its, timed(ours.run, [tiny], **more), rounds)


def instead_of_preexec_fn(tiny: str, rounds: int, size: int) -> Iterator[_Line]:
    memory = written_memory(size)
    uid, gid = os.getuid(), os.getgid()
    core = {resource.RLIMIT_CORE: (0, 0)}
    ways: List[Tuple[str, Dict[str, Any], Callable[[], Any]]] = [
        ("user", {"user": uid}, lambda: os.setuid(uid)),
        ("group", {"group": gid}, lambda: os.setgid(gid)),
        ("rlimits", {"rlimits": core}, lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))),
    ]
    if uid == 0:
        ways.append(("extra_groups", {"extra_groups": [gid]}, lambda: os.setgroups([gid])))
    for name, more, function in ways:
        yield Case(
            "run([tiny], %s=...) at %s" % (name, _display.size(size)),
            0.01,
            "preexec_fn",
            timed(subprocess.run, [tiny], preexec_fn=function),
            timed(ours.run, [tiny], **more),
            max(5, rounds // 4),
        )
    memory.close()
    if uid != 0:
        yield Skip("extra_groups: only root may set them")


def shells(tiny: str, rounds: int) -> Iterator[_Line]:
    line = "%s a 'b c' > /dev/null" % tiny
    yield Case(
        "run(line, shell=True)",
        0.25,
        "subprocess.run",
        timed(subprocess.run, line, shell=True),
        timed(ours.run, line, shell=True),
        rounds,
    )

    def read(opened: Callable[[str], Any]) -> None:
        with opened(line) as stream:
            stream.read()

    its, mine = timed(read, os.popen), timed(read, forkless.popen)
    yield Case("popen(line)", 0.25, "os.popen", its, mine, rounds)


class Blocked:
    """The longest time that one turn of the loop took, while this is entered.

    A loop does nothing else during one callback; with uvloop this would see nothing.
    """

    def __enter__(self) -> Blocked:
        self.longest = 0
        self._genuine = genuine = asyncio.events.Handle._run

        def run(handle: Any) -> None:
            begun = time.perf_counter_ns()
            genuine(handle)
            self.longest = max(self.longest, time.perf_counter_ns() - begun)

        asyncio.events.Handle._run = run  # type: ignore[method-assign]
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.events.Handle._run = self._genuine  # type: ignore[method-assign]


def in_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[float]]
) -> Callable[[], float]:
    return lambda: loop.run_until_complete(function())


def blocking(tiny: str, large: str, rounds: int) -> Iterator[_Line]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    exec_of = {"its": asyncio.create_subprocess_exec, "mine": our_asyncio.create_subprocess_exec}

    def one(which: str, file: str, prepare: Callable[[], None]) -> Callable[[], float]:
        async def once() -> float:
            prepare()
            # What was due before does not count.
            await asyncio.sleep(0)
            with Blocked() as blocked:
                # A task of its own: this one's turn of the loop has begun already.
                child = await asyncio.ensure_future(exec_of[which](file))
            await child.wait()
            return blocked.longest

        return in_loop(loop, once)

    def crowd(which: str) -> Callable[[], float]:
        async def one_of_many() -> None:
            child = await exec_of[which](tiny)
            await child.wait()

        async def once() -> float:
            begun = time.perf_counter_ns()
            await asyncio.gather(*[one_of_many() for _ in range(CHILDREN)])
            return time.perf_counter_ns() - begun

        return in_loop(loop, once)

    try:
        nothing = lambda: None  # noqa: E731
        yield Case(
            "loop blocked by one start, tiny",
            0.3,
            "asyncio",
            one("its", tiny, nothing),
            one("mine", tiny, nothing),
            rounds,
        )
        try:
            slow = program(tiny + "-slow")
            with SlowExec(slow, SLOW_EXEC):
                yield Case(
                    "loop blocked by one start, whose exec waits %d ms" % (SLOW_EXEC * 1000),
                    0.02,
                    "asyncio",
                    one("its", slow, nothing),
                    one("mine", slow, nothing),
                    max(8, rounds // 4),
                )
        except Skip as skip:
            yield skip
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 4 * CHILDREN
        name = "%d children at once" % CHILDREN
        if hard != resource.RLIM_INFINITY and hard < wanted:
            yield Skip("%s: they need %d descriptors" % (name, wanted))
        else:
            if soft != resource.RLIM_INFINITY and soft < wanted:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            its, mine = crowd("its"), crowd("mine")
            yield Case(name, 0.5, "asyncio", its, mine, max(5, rounds // 20))
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        program(large, LARGE)
        drop_from_cache(large)
        if pages_in_cache(large) > 16:
            raise Skip("the page cache cannot be dropped in --directory: give one on a disk")
        drop = lambda: drop_from_cache(large)  # noqa: E731
        yield Case(
            "loop blocked by one start, 100 MB not in the page cache",
            0.02,
            "asyncio",
            one("its", large, drop),
            one("mine", large, drop),
            max(8, rounds // 4),
        )
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def imports(rounds: int) -> Iterator[_Line]:
    def importing(statement: str) -> Callable[[], float]:
        code = "from time import perf_counter_ns as n; b = n(); %s; print(n() - b)" % statement
        words = [sys.executable, "-I", "-c", code]
        return lambda: float(subprocess.check_output(words))

    for statement in ("import forkless", "from forkless import subprocess"):
        yield Case(
            statement,
            1.5,
            "import subprocess",
            importing("import subprocess"),
            importing(statement),
            max(8, rounds // 3),
        )


# Measuring.


def measure(case: Case, rng: random.Random) -> Dict[str, Any]:
    rounds: List[Tuple[float, float]] = []
    turns = [case.its, case.mine]
    for turn in turns:
        turn()
    for _ in range(case.rounds):
        order = [0, 1]
        rng.shuffle(order)
        taken = [0.0, 0.0]
        for i in order:
            # The first finds the caches as the other left them.
            turns[i]()
            taken[i] = turns[i]()
        rounds.append((taken[0], taken[1]))

    def medians(sample: List[Tuple[float, float]]) -> Tuple[float, float]:
        return (
            statistics.median(its for its, _ in sample),
            statistics.median(mine for _, mine in sample),
        )

    def ratio(sample: List[Tuple[float, float]]) -> float:
        its, mine = medians(sample)
        return mine / its

    resampled = sorted(ratio(rng.choices(rounds, k=len(rounds))) for _ in range(1000))
    its, mine = medians(rounds)
    low, high = resampled[25], resampled[974]
    verdict = "reached" if high <= case.limit else "missed" if low > case.limit else "undecided"
    return {
        "name": case.name,
        "limit": case.limit,
        "base": case.base,
        "base_ns": its,
        "ns": mine,
        "ratio": mine / its,
        "ci95": [low, high],
        "rounds": len(rounds),
        "verdict": verdict,
        "samples": rounds,
    }


def lines(results: List[Dict[str, Any]]) -> str:
    head = ["what", "against", "it takes", "this takes", "ratio", "95 % interval", "at most", ""]
    rows = [
        [
            it["name"],
            it["base"],
            _display.duration(it["base_ns"]),
            _display.duration(it["ns"]),
            _display.digits(it["ratio"]),
            " to ".join(_display.digits(end) for end in it["ci95"]),
            "%g" % it["limit"],
            it["verdict"],
        ]
        for it in results
    ]
    return _display.text_table(head, rows, 2)


def main(words: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[1])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--only", metavar="WORD", help="only lines whose name has this in it")
    parser.add_argument("--json", metavar="FILE", help="write all samples to a file, too")
    parser.add_argument("--rss", metavar="MIB", type=int, default=1024, help="default 1024")
    parser.add_argument("--directory", help="for the programs; on a disk (default: here)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fail-on-miss", action="store_true", help="exit code 1 if one is missed")
    given = parser.parse_args(words)
    rounds = 10 if given.quick else 100
    rng = random.Random(given.seed)
    results: List[Dict[str, Any]] = []
    skipped: List[str] = []
    with tempfile.TemporaryDirectory(dir=given.directory or os.getcwd()) as directory:
        tiny = program(os.path.join(directory, "tiny"))
        large = os.path.join(directory, "large")
        groups: List[Iterator[_Line]] = [
            starts(tiny, rounds),
            shells(tiny, rounds),
            blocking(tiny, large, rounds),
            imports(rounds),
            # The last, since it leaves this process's heap as it will.
            instead_of_preexec_fn(tiny, rounds, given.rss << 20),
        ]
        for group in groups:
            try:
                for case in group:
                    if isinstance(case, Skip):
                        skipped.append(str(case))
                    elif given.only is None or given.only in case.name:
                        print(case.name, file=sys.stderr)
                        results.append(measure(case, rng))
            except Skip as reason:
                skipped.append(str(reason))
    print(
        "Python %s, forkless %s, Linux %s %s, %d CPUs, load %.1f"
        % (
            platform.python_version(),
            forkless.__version__,
            platform.release(),
            platform.machine(),
            os.cpu_count() or 0,
            os.getloadavg()[0],
        )
    )
    print(lines(results))
    for reason in skipped:
        print("skipped: " + reason)
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"python": sys.version, "lines": results, "skipped": skipped}, file)
    return int(given.fail_on_miss and any(it["verdict"] == "missed" for it in results))


if __name__ == "__main__":
    sys.exit(main())
