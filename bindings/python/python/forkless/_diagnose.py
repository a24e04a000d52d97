"""`forkless.diagnose`: what process creation costs here, found by the command of the wheel."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from . import _command, _display

__all__ = ["Report", "Watching", "diagnose"]

# A watch without an end would hold a notebook's cell for ever.
_SECONDS = 10.0
_Path = Union[str, "os.PathLike[str]"]


class Report:
    """What a watch has found.

    `data` is all of it, as docs/diagnose.schema.json describes it. `findings` are dicts, the
    largest saving first: title, process, stack, count, cost, evidence, reason, remedy,
    saving_each_ns, command, ...
    """

    def __init__(self, data: Dict[str, Any]) -> None:
        if data.get("schema") != 1 or "findings" not in data:
            raise ValueError(
                "this is not a report of forkless diagnose: its schema is %r" % data.get("schema")
            )
        self.data = data

    @property
    def findings(self) -> List[Dict[str, Any]]:
        """What is worth a change, the largest saving first."""
        found: List[Dict[str, Any]] = self.data["findings"]
        return found

    def _head(self) -> str:
        kinds = self.data["creations"]
        totals = self.data["totals"]
        # Absent where the tier does not count them.
        threads = ", %d threads" % totals["threads"] if "threads" in totals else ""
        return (
            "%.1f s watched by %s: %d process creation%s (%d full forks that exec, %d that do not,"
            " %d sharing memory)%s"
            % (
                self.data["window_ns"] / 1e9,
                self.data["tier"],
                totals["creations"],
                "" if totals["creations"] == 1 else "s",
                kinds["full_fork_then_exec"],
                kinds["full_fork_alone"],
                kinds["shared_memory"],
                threads,
            )
        )

    def _lines(self) -> List[str]:
        lines = [_started(self.data)]
        lines.extend("limited: %s" % limit for limit in self.data["limits"])
        if not self.findings:
            lines.append("Nothing found.")
        return lines

    def __repr__(self) -> str:
        lines = [self._head(), *self._lines()]
        for rank, finding in enumerate(self.findings, 1):
            lines.append("")
            lines.append("%d. %s" % (rank, _plain(finding["title"])))
            lines.extend("   %-9s%s" % (name, _plain(text)) for name, text in _parts(finding))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        parts = ["<p>%s</p>" % escape(line) for line in [self._head(), *self._lines()]]
        bars = [
            _display.Bar(
                label=_short(finding["process"]["name"], finding["kind"]),
                value=saving["mid"],
                low=saving["low"],
                high=saving["high"],
                text=_display.duration(saving["mid"]),
            )
            for finding in self.findings
            for saving in [finding["saving_each_ns"]]
        ]
        if bars:
            parts.append(_display.bars("saving each time", bars))
        for rank, finding in enumerate(self.findings, 1):
            rows = "".join(
                '<tr><th style="text-align:left">%s</th><td style="text-align:left">%s</td></tr>'
                % (escape(name), escape(text))
                for name, text in _parts(finding)
            )
            parts.append(
                "<details%s><summary>%d. %s</summary><table>%s</table></details>"
                % (" open" if rank == 1 else "", rank, escape(finding["title"]), rows)
            )
        return "".join(parts)


def _started(data: Dict[str, Any]) -> str:
    """As the command says it: a process need not run a program of its own."""
    starts, totals = data["starts"], data["totals"]
    programs, without = starts["programs"], starts["without_program"]
    # The sampler misses the programs that end at once.
    lost = sum(totals.get(name, 0) for name in ("lost_ring", "lost_live", "lost_calls"))
    is_least = data["tier"] == "procfs" or lost > 0
    alone = ""
    if without:
        alone = "; %s no program of %s own" % (
            "1 process ran" if without == 1 else "%d processes ran" % without,
            "its" if without == 1 else "their",
        )
    if programs == 0 and not without:
        return "No start of a program was seen" if is_least else "No program was started"
    cost = "some %s in all" % _display.duration(starts["cost_ns"])
    if programs == 0:
        return "No program was started%s: %s" % (alone, cost)
    by = ", ".join(
        "%d by %s" % (one["programs"], _plain(one["name"])) for one in starts["starters"][:3]
    )
    return "%s%s started%s%s: creating and executing them took %s" % (
        "at least " if is_least else "",
        "1 program was" if programs == 1 else "%d programs were" % programs,
        " (%s)" % by if by else "",
        alone,
        cost,
    )


def _short(process: str, kind: str) -> str:
    return "%s: %s" % (process, kind.replace("_", " "))


def _plain(text: str) -> str:
    # Names of watched processes are in it: none may control the terminal.
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _parts(finding: Dict[str, Any]) -> Iterator[Tuple[str, str]]:
    who = "pid %d" % finding["pid"]
    if finding["processes"] > 1:
        who += " and %d more" % (finding["processes"] - 1)
    if finding["process"]["exe"]:
        who += ", " + finding["process"]["exe"]
    yield "who", who
    cost = finding["cost"]
    # A part that was neither measured nor priced is absent.
    parts = [
        "%s %s" % (_display.duration(cost[name]), whose)
        for name, whose in (("caller_ns", "in the caller"), ("child_ns", "in children"))
        if name in cost
    ]
    yield "cost", "%.2f %% of a CPU%s, over %d times" % (
        cost["cpu_share"] * 100,
        ": " + ", ".join(parts) if parts else "",
        finding["count"],
    )
    for evidence in finding["evidence"]:
        yield "evidence", "%s: %s" % (evidence["what"], evidence["value"])
    for at, frame in enumerate(finding["stack"][:8]):
        function = frame["function"] or "?"
        place = "%s+%#x (%s)" % (function, frame["offset"], frame["module"])
        yield ("from" if at == 0 else ""), place
    yield "because", finding["reason"]
    yield "remedy", finding["remedy"]
    saving = finding["saving_each_ns"]
    yield "saves", "%s (%s to %s) each time" % tuple(
        _display.duration(saving[name]) for name in ("mid", "low", "high")
    )
    yield "command", finding["command"]


class Watching:
    """A watch of this process while a ``with`` block runs; afterwards `report` is there."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = options
        self._run: Optional[_command.Run] = None
        self._report: Optional[Report] = None

    @property
    def report(self) -> Report:
        """What was found."""
        if self._report is None:
            raise RuntimeError("there is no report before the end of the with block")
        return self._report

    def __enter__(self) -> Watching:
        # Its page of metrics is the only sign that the watch has begun.
        words = ["--json", "--prometheus=127.0.0.1:0", *self._options]
        self._run = run = _command.Run(["diagnose"], "--output", words)
        try:
            _until_it_watches(run)
        except BaseException:
            run.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        run = self._run
        assert run is not None
        with run:
            if not run.has_ended():
                run.stop()
            if error[0] is None or run.has_result():
                self._report = Report(run.result(quiet=True))


def _until_it_watches(run: _command.Run) -> None:
    import time

    while not run.has_ended():
        for line in run.said().splitlines():
            if line.startswith("metrics at ") and _answers(line.split()[-1]):
                return
        time.sleep(0.02)
    # It failed, and says why.
    run.result()


def _answers(address: str) -> bool:
    """Whether the page is there. It is not before the watch has begun."""
    import http.client

    server = address.split("/")[2]
    connection = http.client.HTTPConnection(server, timeout=10)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


class _Diagnose:
    """Watches, and says where process creation costs most, how much, and why.

    One of: `command`, a list of words that is started and watched with all that it starts; `pid`, a
    process and its descendants; `cgroup`, a directory of /sys/fs/cgroup; otherwise the whole
    machine, as far as this user may see it. `duration` is in seconds: by default until a command
    ends, and 10 for the others. Stopped by Ctrl-C (or the notebook's button), it reports what it
    has seen so far.

    Further keyword arguments are the options of ``forkless diagnose``: ``tier="procfs"``,
    ``min_share=1``, ``system_calls="no"``.

    >>> import forkless
    >>> report = forkless.diagnose(["sh", "-c", "exit"], tier="procfs")
    >>> report.data["tier"]
    'procfs'

    `diagnose.here()` watches this process while a ``with`` block runs:

    >>> with forkless.diagnose.here(tier="procfs") as watch:
    ...     pass
    >>> watch.report.data["tier"]
    'procfs'
    """

    __name__ = "diagnose"

    def __call__(
        self,
        command: Optional[Sequence[str]] = None,
        *,
        pid: Optional[int] = None,
        cgroup: Optional[_Path] = None,
        duration: Optional[float] = None,
        **options: Any,
    ) -> Report:
        targets = [target for target in (command, pid, cgroup) if target is not None]
        if len(targets) > 1:
            raise TypeError("diagnose() takes one of command, pid and cgroup")
        if command is None and duration is None:
            duration = _SECONDS
        given = dict(options, pid=pid, duration=duration, all=not targets)
        if cgroup is not None:
            given["cgroup"] = os.fspath(cgroup)
        words = ["--json", *_command.options(sorted(given.items()))]
        if command is not None:
            if isinstance(command, str):
                raise TypeError("command is a list of words, such as ['make', '-j4']")
            if len(command) == 0:
                raise ValueError("command has no words: name a program, such as ['make', '-j4']")
            words += ["--", *command]
        return Report(_command.read_json(["diagnose"], "--output", words))

    def here(self, **options: Any) -> Watching:
        """Watches this process and its children while a ``with`` block runs."""
        words = _command.options(sorted(dict(options, pid=os.getpid()).items()))
        return Watching(words)


diagnose = _Diagnose()
