"""What a wheel alone must do in a fresh virtual environment: python smoke.py.

Nothing but the standard library and the package may be imported here.
"""

import asyncio
import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import tempfile

import _posixsubprocess

# The installed package, not the sources beside this file.
sys.path[:1] = []

import forkless  # noqa: E402

MOST_BYTES = 20_000_000
PYTHON = sys.executable
SCRIPTS = sysconfig.get_path("scripts")
COMMAND = os.path.join(SCRIPTS, "forkless")

PRELOADED = """
import sys
maps = open("/proc/self/maps").read()
print([line.split()[-1] for line in maps.splitlines() if "libforkless-run.so" in line][:1])
"""


def refuse(*_):
    raise AssertionError("a fork")


def said(*words, **more):
    return subprocess.run(
        words, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    ).stdout


def starts_without_fork():
    genuine = _posixsubprocess.fork_exec
    ours = forkless.subprocess
    # It would honour the function in its place, as a debugger's.
    ours._fork_exec_is_patched = lambda: False
    try:
        _posixsubprocess.fork_exec = refuse
        for module in (subprocess, ours):
            if hasattr(module, "_fork_exec"):
                module._fork_exec = refuse
        words = [PYTHON, "-c", "print(6 * 7)"]
        done = ours.run(words, capture_output=True, text=True, user=os.getuid())
    finally:
        _posixsubprocess.fork_exec = genuine
        for module in (subprocess, ours):
            if hasattr(module, "_fork_exec"):
                module._fork_exec = genuine
    assert (done.returncode, done.stdout) == (0, "42\n"), done


def a_loop_starts_children():
    async def main():
        child = await forkless.asyncio.create_subprocess_exec("sh", "-c", "exit 3")
        return await child.wait()

    assert asyncio.run(main()) == 3


def a_script_runs_under_the_package():
    with tempfile.TemporaryDirectory() as directory:
        script = os.path.join(directory, "script.py")
        with open(script, "w") as file:
            file.write("import subprocess, sys; print(subprocess.call(['true']), *sys.argv[1:])")
        assert said(PYTHON, "-m", "forkless", script, "a", "b") == "0 a b\n"


def the_command_is_there():
    version = importlib.metadata.version("forkless")
    assert said(COMMAND, "--version") == "forkless %s\n" % version
    found = forkless._command.path()
    assert os.path.samefile(found, COMMAND), found


def the_command_finds_its_library():
    # Nothing in the environment may help it.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FORKLESS", "LD_"))}
    library = os.path.join(os.path.realpath(sys.prefix), "lib", "libforkless-run.so")
    out = said(COMMAND, "run", "--", PYTHON, "-c", PRELOADED, env=environment)
    assert out == "%r\n" % [library], out
    # As uv and pipx have it: a link to the command, in a directory of the user's.
    with tempfile.TemporaryDirectory() as directory:
        link = os.path.join(directory, "forkless")
        os.symlink(COMMAND, link)
        out = said(link, "run", "--", PYTHON, "-c", PRELOADED, env=environment)
        assert out == "%r\n" % [library], out


def the_command_measures_for_python():
    result = forkless.bench.spawn(methods=["vfork_exec", "fork_exec"], runs=3)
    assert {row["method"] for row in result.rows} == {"vfork_exec", "fork_exec"}, result.rows
    assert "fork_exec" in repr(result) and "<svg" in result._repr_html_()
    report = forkless.diagnose(["true"], tier="procfs")
    assert report.data["tier"] == "procfs", report.data
    json.dumps(report.data)


def it_is_small_and_typed():
    files = importlib.metadata.files("forkless")
    size = sum(file.size or 0 for file in files)
    assert size <= MOST_BYTES, size
    names = {str(file) for file in files}
    assert "forkless/py.typed" in names, names
    assert not [name for name in names if "/tests/" in name], names


def nothing_else_is_imported():
    out = said(PYTHON, "-c", "import sys, forkless; print('subprocess' in sys.modules)")
    assert out == "False\n"


CHECKS = [
    nothing_else_is_imported,
    starts_without_fork,
    a_loop_starts_children,
    a_script_runs_under_the_package,
    the_command_is_there,
    the_command_finds_its_library,
    the_command_measures_for_python,
    it_is_small_and_typed,
]


def main():
    import forkless._command  # noqa: F401

    failed = 0
    for check in CHECKS:
        try:
            check()
        except Exception:
            import traceback

            failed += 1
            traceback.print_exc()
            print("test smoke::%s ... FAILED" % check.__name__)
    print(
        "test result: %s. %d passed; %d failed; 0 skipped"
        % ("FAILED" if failed else "ok", len(CHECKS) - failed, failed)
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
