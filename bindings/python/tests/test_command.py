"""The command in the wheel, and what of it is called from Python; the pytest plugin."""

import doctest
import importlib
import json
import os
import re
import subprocess as standard
import sys
import textwrap

import pytest
from _tools import skip

import forkless
from forkless import _command, _display, bench
from forkless.pytest_plugin import Watch, _why


@pytest.fixture(scope="module")
def command():
    try:
        return _command.path()
    except FileNotFoundError:
        skip("this package was installed without the command")


@pytest.mark.parametrize("name", ["_command", "_display", "bench", "_diagnose", "pytest_plugin"])
def test_the_examples_of_the_documentation_run(name, request):
    if name not in ("_display", "pytest_plugin"):
        request.getfixturevalue("command")
    module = importlib.import_module("forkless." + name)
    tried = doctest.testmod(module)
    assert tried.attempted > 0 and tried.failed == 0


def test_the_command_is_no_python_program_and_stripped(command):
    with open(command, "rb") as file:
        assert file.read(4) == b"\x7fELF"
    assert os.path.getsize(command) < 20_000_000


def test_a_wrong_option_is_told_in_the_commands_own_line(command):
    with pytest.raises(bench.CommandError, match="--nonsense") as caught:
        bench.spawn(nonsense=1)
    assert caught.value.returncode == 2
    with pytest.raises(bench.CommandError, match="4194305|process") as caught:
        # Larger than any pid (Documentation/admin-guide/sysctl/kernel.rst, pid_max).
        forkless.diagnose(pid=4194305, duration=1)
    assert caught.value.returncode == 2


def test_without_a_command_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(_command, "_candidates", lambda: ["/nonexistent/forkless"])
    with pytest.raises(FileNotFoundError, match="install the wheel"):
        bench.spawn()
    assert _command.version() is None


def test_the_command_has_the_packages_version(command):
    assert _command.version() == forkless.__version__


def test_a_report_of_diagnose_names_the_fork_of_the_command(command):
    # Its tiers differ in what they see; this one needs no privilege and always works.
    report = forkless.diagnose([sys.executable, "-c", "pass"], tier="procfs")
    assert report.data["limits"], "procfs sees not everything, and says so"
    assert "watched by procfs" in repr(report)
    assert "limited: " in repr(report)
    assert report._repr_html_().startswith("<p>")


def test_diagnose_takes_one_target():
    with pytest.raises(TypeError, match="one of command, pid and cgroup"):
        forkless.diagnose(["true"], pid=1)
    with pytest.raises(TypeError, match="list of words"):
        forkless.diagnose("true")
    with pytest.raises(ValueError, match="no words"):
        forkless.diagnose([])


def test_an_error_names_all_that_is_missing(command):
    with pytest.raises(_command.CommandError) as caught:
        _command.read_json(["diagnose"], "--output", ["--json"])
    assert caught.value.returncode == 2
    assert re.fullmatch(
        r"forkless: the following required arguments were not provided: \S.*--pid.*", str(caught.value)
    )


def test_an_interrupted_watch_reports_what_it_has_seen(command):
    script = """
        import forkless, os
        from forkless import _command

        class Run(_command.Run):
            def wait(self):
                # As Ctrl-C in a notebook: this process alone gets it, in the midst of the wait.
                forkless._diagnose._until_it_watches(self)
                raise KeyboardInterrupt

        _command.Run = Run
        report = forkless.diagnose(pid=os.getpid(), duration=600, tier="procfs",
                                   prometheus="127.0.0.1:0")
        print(report.data["partial"])
    """
    done = standard.run(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=standard.PIPE, text=True, check=True
    )
    assert done.stdout == "interrupted\n"


def _finding(title):
    none = {"low": 1e6, "mid": 2e6, "high": 3e6}
    return {
        "kind": "full_fork_then_exec",
        "title": title,
        "process": {"name": "python3", "comm": "python3", "exe": "/usr/bin/python3", "cgroup": "/"},
        "pid": 7,
        "processes": 2,
        "stack": [
            {"function": None, "offset": 16, "module": "/lib/libc.so.6", "build_id": None}
        ],
        "count": 3,
        "per_second": 1.0,
        "cost": {"caller_ns": 5e6, "child_ns": 2e5, "faults_ns": 0.0, "cpu_share": 0.012},
        "fork_times": None,
        "evidence": [{"what": "memory", "value": "1 GiB"}],
        "reason": "r",
        "remedy": "m",
        "saving_each_ns": none,
        "saving_in_caller_ns": none,
        "saving_share": none,
        "command": "forkless run -- x",
    }


def _report(*findings):
    from forkless._diagnose import Report

    kinds = {"full_fork_then_exec": 3, "full_fork_alone": 0, "shared_memory": 1, "speculated": 0}
    return Report(
        {
            "schema": 1,
            "partial": None,
            "tier": "bpf_fentry",
            "limits": [],
            "window_ns": 1_500_000_000,
            "totals": {"creations": 4, "threads": 0},
            "creations": kinds,
            "starts": {
                "programs": 3,
                "without_program": 0,
                "cost_ns": 5e6,
                "starters": [{"name": "python3 a.py", "programs": 3}],
            },
            "findings": list(findings),
        }
    )


@pytest.mark.parametrize(
    "tier, starts, said",
    [
        ("procfs", (0, 0), "No start of a program was seen"),
        ("bpf_fentry", (0, 0), "No program was started"),
        (
            "procfs",
            (0, 1),
            "No program was started; 1 process ran no program of its own: some 5.00 ms in all",
        ),
        (
            "procfs",
            (1, 2),
            "at least 1 program was started (1 by a); 2 processes ran no program of their own:"
            " creating and executing them took some 5.00 ms in all",
        ),
    ],
)
def test_what_was_started_is_told_as_by_the_command(tier, starts, said):
    report = _report()
    report.data["tier"] = tier
    programs, without = starts
    report.data["starts"].update(programs=programs, without_program=without)
    report.data["starts"]["starters"] = [{"name": "a", "programs": 1}] * programs
    assert said in repr(report).splitlines()


def test_findings_are_shown_with_their_cost_place_and_remedy():
    text = repr(_report(_finding("python3 forks 1 GiB")))
    for part in (
        "3 programs were started (3 by python3 a.py): creating and executing them took some 5",
        "1. python3 forks 1 GiB",
        "who      pid 7 and 1 more, /usr/bin/python3",
        "cost     1.20 % of a CPU: 5.00 ms in the caller",
        "evidence memory: 1 GiB",
        "from     ?+0x10 (/lib/libc.so.6)",
        "saves    2.00 ms (1.00 ms to 3.00 ms) each time",
        "command  forkless run -- x",
    ):
        assert part in text, text
    page = _report(_finding("<b>forks</b>"))._repr_html_()
    assert "<svg" in page and "&lt;b&gt;forks" in page and "<b>forks" not in page


def test_a_watched_processs_name_cannot_steer_the_terminal():
    assert "\x1b" not in repr(_report(_finding("a\x1b[2Jb")))
    assert repr(_report()).endswith("Nothing found.")


def test_a_plot_needs_something_to_plot():
    assert _display.bars("t", []) == ""
    bar = _display.Bar("a<b", 1e6, None, None, "1 ms")
    plot = _display.bars("t", [bar, bar._replace(low=5e5, high=2e6)])
    assert "a&lt;b" in plot and plot.count("<rect") == 2
    assert plot.count("#e45756") == 1


# The plugin.


def _pytest(directory, text, *options, before=(), variables={}):
    file = directory / "test_it.py"
    file.write_text(textwrap.dedent(text))
    words = [sys.executable, *before, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    words.append(file.name)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment.pop("PYTHONPATH", None)
    environment.update(variables)
    done = standard.run(
        words, cwd=str(directory), stdout=standard.PIPE, text=True, env=environment
    )
    return done.returncode, done.stdout


FORKS = """
    import os
    import subprocess
    import pytest

    def start(**more):
        assert subprocess.call(["true"], **more) == 0

    @pytest.mark.parametrize("turn", [1, 2])
    def test_of_preexec_fn(turn):
        start(preexec_fn=lambda: None)
        start(preexec_fn=lambda: None)

    def test_of_fork():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def test_of_user():
        start(user=os.getuid())

    def test_without():
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
"""


def test_forks_are_reported_with_place_and_test(tmp_path):
    code, said = _pytest(tmp_path, FORKS, "--forkless")
    assert code == 0, said
    lines = said.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["time", "count"])
    rows = [line.split(None, 7) for line in lines[head + 1 : head + 5]]
    text = "\n".join(lines[head : head + 6])
    for how, where, test in (
        ("fork for preexec_fn", "test_it.py:7 in start", "test_it.py::test_of_preexec_fn[1]"),
        ("fork for preexec_fn", "test_it.py:7 in start", "test_it.py::test_of_preexec_fn[2]"),
        ("os.fork", "test_it.py:15 in test_of_fork", "test_it.py::test_of_fork"),
        ("fork for user", "test_it.py:7 in start", "test_it.py::test_of_user"),
    ):
        found = [line for line in lines if how in line and where in line and test in line]
        assert len(found) == 1, text
    counts = sorted(int(row[2]) for row in rows)
    assert counts == [1, 1, 2, 2], text
    assert "6 forks took" in text and "1 start without fork took" in text, text


def test_no_more_rows_than_asked_for(tmp_path):
    code, said = _pytest(tmp_path, FORKS, "--forkless", "--forkless-rows=1")
    assert code == 0, said
    assert "... and 3 rows more" in said and "6 forks took" in said


def test_forks_of_xdists_workers_are_reported(tmp_path):
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    code, said = _pytest(tmp_path, FORKS, "--forkless", "-n", "2")
    assert code == 0, said
    # CPython 3.9 forks for xdist's own programs, too.
    of_tests = re.findall(r"^ *[\d.]+ \S+ +(\d+) .*test_it\.py::test_of", said, re.MULTILINE)
    assert sorted(of_tests) == ["1", "1", "2", "2"] and "forks took" in said, said


def test_without_the_option_nothing_is_replaced(tmp_path):
    text = """
        import os, sys

        def test_it():
            assert type(os.fork).__name__ == "builtin_function_or_method"
            assert "forkless._forkless" not in sys.modules
    """
    code, said = _pytest(tmp_path, text)
    assert code == 0, said
    assert "forks of this run" not in said


@pytest.mark.parametrize("way", ["-m forkless", "-OO -m forkless", "sitecustomize"])
def test_a_package_that_is_imported_before_pytest_is_no_warning(way, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import forkless; forkless.install()")
    text = """
        import sys
        from _pytest.assertion.rewrite import AssertionRewritingHook

        def test_it(pytestconfig):
            # pytest wants to rewrite this package, and it was imported before.
            [hook] = [each for each in sys.meta_path if isinstance(each, AssertionRewritingHook)]
            assert "forkless" in hook._must_rewrite
            assert not isinstance(sys.modules["forkless"].__loader__, AssertionRewritingHook)
            assert pytestconfig.pluginmanager.has_plugin("forkless")
    """
    before, variables = way.split(), {}
    if way == "sitecustomize":
        before, variables = [], {"PYTHONPATH": str(tmp_path)}
    # Of -O itself pytest warns.
    options = ["-W", "error", "-W", "ignore:assertions not in test modules"]
    code, said = _pytest(tmp_path, text, *options, before=before, variables=variables)
    assert (code, "1 passed" in said) == (0, True), said


def test_functions_in_place_of_builtin_ones_are_builtin(tmp_path):
    text = """
        import os, types

        class Shell:
            run = os.system
            fork = os.fork

        def test_it():
            assert type(os.fork) is types.BuiltinFunctionType
            assert os.fork.__self__.called.__module__ == "forkless.pytest_plugin"
            assert Shell().run("exit 3") == 3 << 8
            pid = Shell().fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
    """
    code, said = _pytest(tmp_path, text, "--forkless")
    assert code == 0, said
    assert "1 fork took" in said and "1 start without fork took" in said, said


def test_after_install_there_are_none(tmp_path):
    text = """
        import os, subprocess
        import forkless

        forkless.install()

        def test_it():
            assert subprocess.call(["true"], user=os.getuid()) == 0
    """
    code, said = _pytest(tmp_path, text, "--forkless")
    assert code == 0, said
    assert "0 forks took 0 ns" in said and "1 start without fork took" in said, said


@pytest.mark.parametrize("installs", [False, True])
def test_lines_without_a_shell_are_counted_once(installs, tmp_path):
    text = """
        import os, subprocess
        import forkless

        if %r:
            forkless.install()
        else:
            from forkless import subprocess

        def test_it():
            system = os.system if %r else forkless.system
            assert system("sleep 0") == 0
            assert subprocess.call("exec sleep 0", shell=True) == 0
            # This one takes a shell.
            assert subprocess.call("sleep 0 && sleep 0", shell=True) == 0
    """
    code, said = _pytest(tmp_path, text % (installs, installs), "--forkless")
    assert code == 0, said
    assert "0 forks took 0 ns" in said and "3 starts without fork took" in said, said


def test_what_a_watch_replaced_is_put_back():
    before = os.fork, os.posix_spawn, standard.__dict__.get("_fork_exec")
    watch = Watch()
    watch.begin()
    assert os.fork is not before[0]
    watch.end()
    assert (os.fork, os.posix_spawn, standard.__dict__.get("_fork_exec")) == before


def test_what_another_process_dumps_is_added():
    one, two = Watch(), Watch()
    one.test = "a"
    one._record("os.fork", 5, 7)
    two.load(json.loads(json.dumps(one.dump())))
    two.load(one.dump())
    [(key, record)] = two.forks.items()
    assert (key.how, key.test, record.count, record.ns, record.memory) == ("os.fork", "a", 2, 10, 7)


def test_why_a_start_forks():
    end = (True,) if (3, 11) <= sys.version_info < (3, 14) else ()
    without = None if sys.version_info >= (3, 10) else "fork"
    assert _why((None, None, None, -1, None, *end)) == without
    assert _why((None, None, None, -1, print, *end)) == "fork for preexec_fn"
    assert _why((3, None, None, -1, None, *end)) == "fork for group"
    assert _why((None, [3], None, -1, None, *end)) == "fork for extra_groups"
    assert _why((None, None, 0, -1, None, *end)) == "fork for user"
    if end:
        assert _why((None, None, None, -1, None, False)) == "fork"
