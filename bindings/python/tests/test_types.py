"""What a type checker says of programs that import this package's modules for standard ones."""

from __future__ import annotations

import asyncio
import re
import subprocess as standard
import sys
from pathlib import Path
from typing import List

import pytest

pytest.importorskip("mypy", reason="mypy is not installed")

#: Correct with the standard modules. Behind each `#` is the type that mypy shows for the line.
PROGRAM = """
import os
from typing import Any
from forkless import asyncio, subprocess

reveal_type(subprocess.Popen(["a"], 0, None, subprocess.PIPE, subprocess.PIPE))  # Popen[bytes]
reveal_type(subprocess.Popen("a", -1, "/bin/sh", text=True))  # Popen[str]
reveal_type(subprocess.call(["a"], -1, None, subprocess.PIPE))  # int
reveal_type(subprocess.check_call(["a"], -1, "/bin/sh"))  # int
reveal_type(subprocess.run(["a"], -1, "/bin/sh"))  # CompletedProcess[bytes]
reveal_type(subprocess.run(["a"], creationflags=int("0")))  # CompletedProcess[bytes]
reveal_type(subprocess.run(["a"], encoding="x", deadline=1))  # CompletedProcess[str]
reveal_type(subprocess.check_output(["a"], -1, None, errors="x"))  # str
reveal_type(subprocess.check_output(["a"], -1, None, nice=5))  # bytes

def a(c: subprocess._CMD, f: subprocess._FILE, e: subprocess._ENV) -> None: ...

async def main() -> None:
    child = await asyncio.create_subprocess_exec("a", stdout=asyncio.subprocess.PIPE, deadline=1)
    reveal_type(child)  # Process
    create = asyncio.subprocess.create_subprocess_shell
    other: asyncio.subprocess.Process = await create("a", nice=5)
    reveal_type(asyncio.Queue[int]())  # Queue[int]
    reveal_type(asyncio.get_running_loop())  # AbstractEventLoop

asyncio.run(main())
"""


def mypy(directory: Path, text: str) -> List[str]:
    file = directory / "program.py"
    file.write_text(text)
    words = ["--strict", "--no-error-summary", "--hide-error-context"]
    words += ["--cache-dir", str(directory / "cache"), file.name]
    done = standard.run(
        [sys.executable, "-m", "mypy", *words],
        cwd=str(directory),
        stdout=standard.PIPE,
        stderr=standard.STDOUT,
        text=True,
    )
    return done.stdout.splitlines()


def test_a_correct_program_stays_correct(tmp_path: Path) -> None:
    expected = [line.split("  # ")[1] for line in PROGRAM.splitlines() if "  # " in line]
    said = mypy(tmp_path, PROGRAM)
    assert not [line for line in said if ": error:" in line], said
    shown = [line.split('"')[1] for line in said if "Revealed type" in line]
    # Without the modules' names.
    assert [re.sub(r"\w+\.", "", name) for name in shown] == expected, said
    assert len(shown) == 12


def test_all_names_of_asyncio_are_known(tmp_path: Path) -> None:
    names = ["asyncio." + name for name in sorted(asyncio.__all__)]
    names += ["asyncio.subprocess." + name for name in ("PIPE", "DEVNULL", "STDOUT", "Process")]
    assert mypy(tmp_path, "\n".join(["from forkless import asyncio", *names, ""])) == []


def test_names_that_do_not_exist_are_errors(tmp_path: Path) -> None:
    wrong = ["forkless.nope", "asyncio.nope", "asyncio.subprocess.nope", "subprocess.nope"]
    wrong += ['subprocess.run(["a"], nope=1)']
    text = "\n".join(["import forkless", "from forkless import asyncio, subprocess", *wrong, ""])
    errors = [line.split(":")[1] for line in mypy(tmp_path, text) if ": error:" in line]
    assert sorted(set(errors), key=int) == [str(3 + number) for number in range(len(wrong))]


@pytest.mark.parametrize("library", ["trio", "anyio"])
def test_names_of_other_event_loops_have_their_types(library: str, tmp_path: Path) -> None:
    """Regression: each was Any, and a name that does not exist was no error."""
    pytest.importorskip(library)
    text = """
from forkless import NAME

async def main() -> None:
    reveal_type(await NAME.run_process(["a"], nice=3))
    await NAME.sleep(1)
    await NAME.sleep("1")
    NAME.nope
"""
    said = mypy(tmp_path, text.replace("NAME", library))
    assert [line.split(":")[1] for line in said if ": error:" in line] == ["7", "8"], said
    # Older versions of mypy name the module, too.
    assert "CompletedProcess[bytes]" in said[0].replace("builtins.", ""), said
