"""Runs every snippet of the guide's two pages on Python and that of README.md, and compares every row
of their tables.

The pages say how, in comments that a reader does not see:

    <!-- test: skip REASON -->      the next block is not run
    <!-- test: needs LIBRARY -->    it is run where this library can be imported
    <!-- test: file NAME -->        it is no program, but a file of this name beside the others
    <!-- test: same output -->      its output is that of the next block
    <!-- test: rows NAME -->        the next table's second and third column give the same child

A block of Python or sh ends with status 0. If a block of text follows it, that is its output. No
block forks but those with a `preexec_fn` or the standard module as `standard`: a sitecustomize
module refuses that to the others.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import operator
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Tuple

import _posixsubprocess
import pytest

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide"
PAGES = ["python.md", "python-asyncio.md"]

# Its other languages are tested where this project is built.
README = "../../README.md"

# Longer than any block takes on a machine that does other work; a block that hangs ends here.
LIMIT = 300

REFUSE = '''
import os
import _posixsubprocess

# trio asks ldconfig for a library when it is imported.
for name in os.environ.get("FORKLESS_TEST_IMPORTS", "").split():
    __import__(name)

def refuse(name):
    def refused(*args, **kwargs):
        raise RuntimeError("a start went by " + name)
    return refused

_posixsubprocess.fork_exec = refuse("_posixsubprocess.fork_exec")
for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp"):
    setattr(os, name, refuse("os." + name))
'''


class Block(NamedTuple):
    """One fenced block of a page, or one of its tables."""

    page: str
    line: int
    language: str
    text: str
    orders: Tuple[str, ...]
    output: Optional[str]

    def order(self, word: str) -> Optional[str]:
        """The rest of an order that begins with this word."""
        for order in self.orders:
            if order == word or order.startswith(word + " "):
                return order[len(word) + 1 :]
        return None


def skip(reason: str) -> NoReturn:
    print("skipped:", reason)
    pytest.skip(reason)


def blocks_of(page: str) -> List[Block]:
    found: List[Block] = []
    orders: List[str] = []
    lines = iter(enumerate((GUIDE / page).read_text().splitlines(), 1))
    for number, line in lines:
        order = re.match(r"<!-- test: (.*) -->$", line)
        if order:
            orders.append(order[1])
        elif line.startswith("```"):
            body = []
            for _, inner in lines:
                if inner.startswith("```"):
                    break
                body.append(inner)
            found.append(Block(page, number, line[3:], "\n".join(body), tuple(orders), None))
            orders = []
        elif line.startswith("|") and orders:
            body = [line]
            for _, inner in lines:
                if not inner.startswith("|"):
                    break
                body.append(inner)
            found.append(Block(page, number, "table", "\n".join(body), tuple(orders), None))
            orders = []
    assert not orders, f"{page}: an order has no block after it: {orders}"
    output: Optional[str] = None
    for at in range(len(found) - 1, -1, -1):
        block = found[at]
        if block.language == "text":
            output = block.text
        else:
            found[at] = block._replace(output=output)
            shared = at > 0 and "same output" in found[at - 1].orders
            output = output if shared else None
    return found


BLOCKS = [block for page in PAGES if (GUIDE / page).exists() for block in blocks_of(page)]
FIRST = [b for b in blocks_of(README) if b.language == "python"] if GUIDE.is_dir() else []
PROGRAMS = [
    block
    for block in BLOCKS + FIRST
    if block.language in ("python", "sh") and block.order("file") is None
]


def test_the_guide_is_here_and_every_block_is_known() -> None:
    if not GUIDE.is_dir():
        skip("the guide is not beside this package")
    assert {block.page for block in BLOCKS} == set(PAGES)
    assert len(FIRST) == 1
    unknown = [b for b in BLOCKS if b.language not in ("python", "sh", "text", "table")]
    assert not unknown
    assert len([block for block in BLOCKS if block.order("rows") is not None]) == 2


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """A directory for each page, with the files that its blocks make."""
    made = {}
    for page in [*PAGES, README]:
        made[page] = tmp_path_factory.mktemp(Path(page).stem)
        for block in BLOCKS:
            name = block.order("file")
            if name is not None and block.page == page:
                (made[page] / name).write_text(block.text + "\n")
    return made


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `python`, which is this interpreter, under the name that the pages use."""
    here = tmp_path_factory.mktemp("tools")
    python = here / "python"
    python.write_text('#!/bin/sh\nexec "%s" "$@"\n' % sys.executable)
    python.chmod(0o755)
    return here


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("refusing")
    (here / "sitecustomize.py").write_text(REFUSE)
    return here


def test_a_fork_is_refused(refusing: Path) -> None:
    program = "import subprocess; subprocess.run(['true'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path_of(refusing)},
        capture_output=True,
        text=True,
    )
    assert "RuntimeError: a start went by" in done.stderr


def path_of(first: Path) -> str:
    rest = os.environ.get("PYTHONPATH")
    return str(first) + (os.pathsep + rest if rest else "")


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_snippet_runs(block: Block, rooms: Dict[str, Path], tools: Path, refusing: Path) -> None:
    reason = block.order("skip")
    if reason is not None:
        skip(reason)
    library = block.order("needs")
    if library is not None and importlib.util.find_spec(library) is None:
        skip(f"{library} is not installed")
    environment = dict(os.environ)
    environment.pop("FORKLESS", None)
    environment["PATH"] = os.pathsep.join(
        [str(tools), os.path.dirname(sys.executable), environment.get("PATH", os.defpath)]
    )
    if "preexec_fn" not in block.text and "as standard" not in block.text:
        environment["PYTHONPATH"] = path_of(refusing)
        environment["FORKLESS_TEST_IMPORTS"] = library or ""
    if block.language == "python":
        command = [sys.executable, "-c", block.text]
    else:
        command = ["sh", "-ec", block.text]
    done = subprocess.run(
        command,
        cwd=rooms[block.page],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    if block.output is not None:
        assert done.stdout.rstrip("\n") == block.output


# The tables. Each row is tried: the child tells its state both times.

# `sh` blocks signals for moments of its own, so the last program tells its own status.
STATE = r"""
echo pid $$
pwd
ls -l /proc/$$/fd /proc/$$/ns
cat /proc/$$/limits /proc/$$/cgroup
echo stat $(cat /proc/$$/stat)
echo oom $(cat /proc/$$/oom_score_adj)
echo personality $(cat /proc/$$/personality)
tr '\0' '\n' </proc/$$/environ | sed 's/^/env /' | sort
exec cat /proc/self/status
"""

KEPT = "Umask Uid Gid Groups SigBlk SigIgn NoNewPrivs Cpus_allowed_list".split()


def state(text: str) -> Dict[str, str]:
    """What a child's report says, without what differs from child to child."""
    told: Dict[str, str] = {}
    lines = text.splitlines()
    pid = lines[0].split()[1]
    told["directory"] = lines[1]
    for line in lines[2:]:
        if line.startswith(("env LINES=", "env COLUMNS=")):
            # readline puts them where os.environ does not see them.
            continue
        word = line.split(":")[0]
        link = re.search(r" (\w+) -> (\S+)$", line)
        if link:
            number, thing = link.groups()
            kind = thing.split(":")[0]
            if os.path.islink("/proc/self/ns/" + number):
                same = os.readlink("/proc/self/ns/" + number) == thing
                told["namespace " + number] = "the parent's" if same else "another"
            else:
                told["descriptor " + number] = re.sub(r"/dev/pts/\d+", "a terminal", kind)
        elif word in KEPT or line.startswith(("Max ", "oom ", "personality ", "env ", "0::")):
            told[line.split("  ")[0] if line.startswith("Max") else word] = line
        elif line.startswith("stat "):
            fields = line.rsplit(")", 1)[1].split()
            # proc(5) counts from 1 and the state, the first one here, is its third.
            group, session, terminal, front = fields[2:6]
            told["leads a group"] = str(group == pid)
            told["leads a session"] = str(session == pid)
            told["has a terminal"] = str(terminal != "0")
            told["is in front"] = str(front == pid)
            told["nice"] = fields[16]
            told["policy"] = fields[38]
    return told


def differences(one: Dict[str, str], other: Dict[str, str]) -> Dict[str, object]:
    keys = sorted(one.keys() | other.keys())
    return {k: (one.get(k), other.get(k)) for k in keys if one.get(k) != other.get(k)}


def test_states_are_told_apart() -> None:
    def told(**options: Any) -> Dict[str, str]:
        done = subprocess.run(["/bin/sh", "-c", STATE], stdout=subprocess.PIPE, text=True, **options)
        return state(done.stdout)

    one = told()
    assert len(one) > 30
    assert told() == one
    session = told(start_new_session=True)
    assert {key for key in one if one[key] != session[key]} >= {"leads a session", "leads a group"}


def cells(block: Block) -> Iterator[Tuple[str, str, str]]:
    for line in block.text.splitlines()[2:]:
        use, before, after = [cell.strip() for cell in line.strip("|").split(" | ")]
        yield use, before.strip("`"), after.strip("`")


ROWS = [
    (block.order("rows"), *row)
    for block in BLOCKS
    if block.order("rows") is not None
    for row in cells(block)
]


@pytest.fixture
def cgroup() -> Iterator[Optional[str]]:
    """A new cgroup, where this process may make one."""
    root = next(
        (Path(place) for place in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
         if (Path(place) / "cgroup.procs").exists()),
        None,
    )
    made = None if root is None else root / ("forkless-guide-%d" % os.getpid())
    try:
        if made is not None:
            made.mkdir()
    except OSError:
        made = None
    yield None if made is None else str(made)
    if made is not None:
        made.rmdir()


def lacking(row: str, cgroup: Optional[str]) -> Optional[str]:
    """Why this machine cannot show a row."""
    names = set(re.findall(r"\w+", row))
    if names & {"setuid", "chroot", "unshare"} and os.geteuid() != 0:
        return "not root"
    if "cgroup" in names and cgroup is None:
        return "no cgroup can be made here"
    if "nice" in names and os.nice(0) != 0:
        return "os.nice adds to a nice value that this process has"
    if "affinity" in names and 0 not in os.sched_getaffinity(0):
        return "this process may not run on processor 0"
    program = re.search(r'(\["\w+", .*)\*args\]$', row)
    if program:
        words = eval(program[1] + '"true"]')
        if shutil.which(words[0]) is None:
            return f"{words[0]} is not installed"
        tried = subprocess.run(words, stderr=subprocess.PIPE, text=True)
        if tried.returncode != 0:
            return "refused here: " + tried.stderr.strip()
    return None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1].replace(" ", "-"))
def test_a_row_gives_the_same_child(
    row: Tuple[str, str, str, str], cgroup: Optional[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _, before, after = row
    reason = lacking(before + " " + after, cgroup)
    if reason is not None:
        skip(reason)
    from forkless import subprocess as ours

    def told(module: Any, text: str) -> Tuple[Dict[str, str], str]:
        """The child's state, and its death signal, which no file tells."""
        shell = ["/bin/sh", "-c", STATE]
        signal_of = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)"
        python = [sys.executable, "-SEc", signal_of]
        outputs = []
        for args in (shell, python):
            # A user who may not read this interpreter cannot run it.
            if args is python and "setuid" in before:
                outputs.append("")
                continue
            # A terminal is hung up when its session ends, so each child has one of its own.
            top, tty = os.openpty()
            fd = os.open("/dev/null", os.O_RDONLY)
            names = dict(
                args=args, cgroup=cgroup, ctypes=ctypes, fcntl=fcntl, fd=fd, os=os,
                resource=resource, signal=signal, termios=termios, tty=tty,
            )
            common = dict(stdout=module.PIPE, text=True)
            try:
                if table == "programs":
                    call = eval(f"lambda f, **o: f({text}, **o)", names)
                else:
                    call = eval(f"lambda f, **o: f(args, {text}, **o)", names)
                done = call(module.run, **common)
            finally:
                for number in (top, tty, fd):
                    os.close(number)
            assert done.returncode == 0
            outputs.append(done.stdout)
        return state(outputs[0]), outputs[1]

    standard = told(subprocess, before)

    # The package goes by fork_exec if a debugger has put a Python function in its place. So this is
    # one of C, and a start that calls it with its many arguments is a TypeError.
    for name in ("fork_exec", "_fork_exec"):
        for module in (_posixsubprocess, subprocess, ours):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, operator.index)
    monkeypatch.setattr(os, "fork", operator.index)
    monkeypatch.setattr(os, "posix_spawn", operator.index)
    told_ours = told(ours, after)
    assert differences(standard[0], told_ours[0]) == {}
    assert told_ours[1] == standard[1]
