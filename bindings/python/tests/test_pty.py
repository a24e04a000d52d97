"""Children on a terminal of their own: the standard module's behaviour and ptyprocess's, without a
fork."""

from __future__ import annotations

import doctest
import errno
import os
import pathlib
import re
import signal
import subprocess as standard
import sys

import pytest

from forkless import ForklessWarning, pty
from forkless.pty import PtyProcess, PtyProcessError, PtyProcessUnicode
from _tools import FORKS, c_calls, descriptors, python, skip


def output(process: PtyProcess) -> bytes:
    """All that a child writes."""
    pieces = []
    while True:
        try:
            pieces.append(process.read())
        except EOFError:
            return b"".join(pieces)


def test_the_examples_of_the_documentation() -> None:
    failures, count = doctest.testmod(pty)
    assert count > 0 and failures == 0


def test_the_child_leads_a_session_on_its_terminal_and_nothing_forks() -> None:
    code = (
        "import os; me = os.getpid(); print(os.getsid(0) == me, os.tcgetpgrp(0) == me,"
        " os.ttyname(0) == os.ttyname(1) == os.ttyname(2), open('/dev/tty').isatty())"
    )
    with c_calls() as calls:
        process = PtyProcess.spawn([sys.executable, "-c", code])
    assert not calls & FORKS
    assert output(process) == b"True True True True\r\n"
    assert process.wait() == 0


def test_the_child_has_no_other_descriptor() -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    os.set_inheritable(write, True)
    try:
        # Without the one that the listing itself had open.
        code = (
            "import os; listed = map(int, os.listdir('/proc/self/fd'))\n"
            "print([fd for fd in sorted(listed) if os.path.exists('/proc/self/fd/%d' % fd)])"
        )
        with PtyProcess.spawn([sys.executable, "-c", code]) as process:
            assert output(process) == b"[0, 1, 2]\r\n"
        with PtyProcess.spawn([sys.executable, "-c", code], pass_fds=[write]) as process:
            assert output(process) == b"[0, 1, 2, %d]\r\n" % write
    finally:
        os.close(read)
        os.close(write)


def test_directory_environment_size_and_echo(tmp_path: pathlib.Path) -> None:
    code = (
        "import os, termios; print(os.getcwd(), os.environ.get('NAME'), len(os.environ) < 3,"
        " *os.get_terminal_size(0), bool(termios.tcgetattr(0)[3] & termios.ECHO))"
    )
    process = PtyProcess.spawn(
        [sys.executable, "-c", code],
        cwd=str(tmp_path),
        env={"NAME": "value"},
        dimensions=(7, 70),
        echo=False,
    )
    assert process.getwinsize() == (7, 70)
    said = "%s value True 70 7 False\r\n" % tmp_path
    assert output(process) == said.encode()
    assert process.env == {"NAME": "value"} and process.launch_dir == str(tmp_path)
    assert repr(process).startswith("PtyProcess.spawn([")


def test_what_is_typed_is_shown_and_read() -> None:
    with PtyProcess.spawn(["cat"]) as process:
        assert process.getecho() and process.isatty() and process.isalive()
        process.write(b"one\n")
        assert process.readline() + process.readline() == b"one\r\none\r\n"
        process.setecho(False)
        assert process.waitnoecho(60) and not process.getecho()
        process.write(b"two\n")
        assert process.readline() == b"two\r\n"
        assert process.sendeof()[0] == 1
        with pytest.raises(EOFError):
            process.read()
        assert process.eof()
        assert process.wait() == 0 and not process.isalive()
        assert (process.exitstatus, process.signalstatus, process.status) == (0, None, 0)


def test_waitnoecho_gives_up() -> None:
    with PtyProcess.spawn(["sleep", "600"]) as process:
        assert not process.waitnoecho(0)


def test_an_interrupt_from_the_keyboard_ends_the_child() -> None:
    with PtyProcess.spawn(["sleep", "600"]) as process:
        assert process.sendintr() == (1, b"\x03")
        assert process.wait() is None
        assert process.signalstatus == signal.SIGINT


@pytest.mark.parametrize(
    "key, byte",
    [("a", b"\x01"), ("Z", b"\x1a"), ("[", b"\x1b"), ("{", b"\x1b"), ("?", b"\x7f"), ("@", b"\0")]
    + [("`", b"\0"), ("^", b"\x1e"), ("~", b"\x1e"), ("_", b"\x1f"), ("|", b"\x1c"), ("1", b"")],
)
def test_control_characters(key: str, byte: bytes) -> None:
    with PtyProcess.spawn(["sh", "-c", "stty raw -echo; echo; exec cat"]) as process:
        process.read()
        assert process.sendcontrol(key) == (len(byte), byte)
        if byte:
            assert process.read() == byte


def test_close_ends_a_stubborn_child() -> None:
    code = (
        "import signal, time\n"
        "for name in ('SIGHUP', 'SIGINT'): signal.signal(getattr(signal, name), signal.SIG_IGN)\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    process = PtyProcess.spawn([sys.executable, "-c", code])
    process.readline()
    process.delayafterclose = process.delayafterterminate = 0.01
    assert not process.terminate()
    with pytest.raises(PtyProcessError, match="lives on"):
        process.close(force=False)
    process.close()
    assert process.closed and process.fileno() == -1 and process.signalstatus == signal.SIGKILL
    process.close()


def test_a_status_that_was_taken_elsewhere_is_told() -> None:
    process = PtyProcess.spawn(["sleep", "0"])
    os.waitpid(process.pid, 0)
    with pytest.raises(PtyProcessError, match="some other code"):
        process.isalive()
    process.terminated = True


def test_text_is_decoded_across_reads() -> None:
    with PtyProcessUnicode.spawn(["printf", "\\303\\274"]) as process:
        assert process.read(1) + process.read(1) == "ü"
    with PtyProcessUnicode.spawn(["cat"], echo=False) as process:
        assert process.write("gr\u00fcn\n") == 6
        assert process.readline() == "gr\u00fcn\r\n"


def test_a_program_that_cannot_be_executed_is_an_error_here(tmp_path: pathlib.Path) -> None:
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        PtyProcess.spawn(["no-such-program-anywhere"])
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fnothing")
    binary.chmod(0o755)
    with pytest.raises(OSError) as error:
        PtyProcess.spawn([str(binary)])
    assert error.value.errno == errno.ENOEXEC
    with pytest.raises(NotADirectoryError) as error:
        PtyProcess.spawn(["cat"], cwd=str(binary))
    assert error.value.filename == str(binary)
    with pytest.raises(FileNotFoundError):
        pty.spawn(["no-such-program-anywhere"])
    with pytest.raises(TypeError):
        PtyProcess.spawn("cat")
    assert descriptors() == before


def test_preexec_fn_is_called_and_costs_a_fork(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "written"
    with pytest.warns(ForklessWarning):
        # The warning comes once a process.
        import forkless.subprocess

        forkless.subprocess._warned_of_preexec_fn = False
        with c_calls() as calls:
            process = PtyProcess.spawn(["tty"], preexec_fn=lambda: path.write_text("called"))
    assert calls & FORKS
    assert output(process).startswith(b"/dev/pts/")
    assert process.wait() == 0 and path.read_text() == "called"

    def fails() -> None:
        raise LookupError("the reason")

    before = descriptors()
    with pytest.raises(LookupError, match="the reason"):
        PtyProcess.spawn(["tty"], preexec_fn=fails)
    assert descriptors() == before


def test_spawn_copies_between_the_terminals_and_does_not_fork() -> None:
    # In a process of its own: it copies from standard input.
    code = (
        "import os, sys; sys.path.insert(0, %r)\n"
        "from _tools import FORKS, c_calls\n"
        "from forkless import pty\n"
        "with c_calls() as calls:\n"
        "    status = pty.spawn(['sh', '-c', 'read line; echo got $line; exit 3'])\n"
        "assert not calls & FORKS, calls\n"
        "sys.exit(os.waitstatus_to_exitcode(status))" % os.path.dirname(__file__)
    )
    done = standard.run([sys.executable, "-c", code], input=b"typed\n", stdout=standard.PIPE)
    assert done.returncode == 3
    assert done.stdout.endswith(b"got typed\r\n")


def test_the_names_of_the_standard_module_are_there() -> None:
    import pty as standard_pty

    for name in vars(standard_pty):
        assert hasattr(pty, name), name
    assert pty.fork is standard_pty.fork


def test_cpythons_own_tests_pass() -> None:
    try:
        import test.test_pty  # noqa: F401
    except ImportError:
        skip("this interpreter comes without the package test")
    code = (
        "import sys, unittest\n"
        "from forkless import pty\n"
        "sys.modules['pty'] = pty\n"
        "unittest.main('test.test_pty', argv=['test_pty', '-v'])"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = standard.run(
        command, stdin=standard.DEVNULL, stdout=standard.PIPE, stderr=standard.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^Ran [1-9]", done.stdout, re.MULTILINE), done.stdout


def test_pexpect_runs_on_it() -> None:
    try:
        import pexpect
        import ptyprocess
    except ImportError:
        skip("pexpect is not installed; suites/pexpect.py runs its own tests")
    saved = ptyprocess.PtyProcess, ptyprocess.PtyProcessError
    ptyprocess.PtyProcess, ptyprocess.PtyProcessError = PtyProcess, PtyProcessError
    try:
        with c_calls() as calls:
            child = pexpect.spawn("cat", echo=False, timeout=60)
        assert isinstance(child.ptyproc, PtyProcess) and not calls & FORKS
        child.sendline("hello")
        child.expect_exact("hello\r\n")
        child.sendeof()
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 0
        child.close()
    finally:
        ptyprocess.PtyProcess, ptyprocess.PtyProcessError = saved


def test_an_interpreter_that_ends_with_a_child_complains_of_nothing() -> None:
    out = python("-c", "from forkless.pty import PtyProcess; p = PtyProcess.spawn(['sleep', '600'])")
    assert out == ""
