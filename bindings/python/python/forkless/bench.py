"""What starting a process costs on this machine, measured by the command that the wheel brings.

>>> from forkless import bench
>>> result = bench.spawn(rss="64M", methods=["vfork_exec", "fork_exec"], time=1)
>>> sorted({row["method"] for row in result.rows})
['fork_exec', 'vfork_exec']

``print(result)`` gives a table. A notebook shows a table and a plot. The figures are those of
``forkless bench``, whose manual says how they come about: the parent is a process of the command,
as large as `rss` asks for, and not this interpreter.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _command, _display
from ._command import CommandError

__all__ = ["CommandError", "Result", "memory", "spawn", "suite"]

_Sizes = Union[int, str]


class Result:
    """What one run has measured.

    `data` is all of it, as docs/bench.schema.json describes it; `rows` are the figures of all its
    suites, and `notes` say what is unusual or was left out.
    """

    def __init__(self, data: Dict[str, Any]) -> None:
        if data.get("schema") != "forkless.bench/1":
            raise ValueError(
                "this is not a result of forkless bench: its schema is %r" % data.get("schema")
            )
        self.data = data

    @property
    def rows(self) -> List[Dict[str, Any]]:
        """One dict for each figure: method, params, metric, unit, median, ci95, samples, ..."""
        return [row for suite in self.data["suites"] for row in suite["rows"]]

    @property
    def notes(self) -> List[str]:
        """What the suites have to say about this run."""
        return [note for suite in self.data["suites"] for note in suite["notes"]]

    def _title(self) -> str:
        machine = self.data["machine"]
        names = ", ".join(suite["name"] for suite in self.data["suites"])
        return "forkless bench %s on %s, Linux %s" % (
            names,
            machine.get("cpu") or machine["arch"],
            machine["kernel"],
        )

    def _table(self) -> Tuple[List[str], List[List[str]]]:
        rows = self.rows
        # What is the same in all rows stands once, in the line below the table.
        names = [name for name in _params(rows) if len(_values(rows, name)) > 1]
        other = next((row["ratio"]["to"] for row in rows if row.get("ratio")), None)
        head = ["method", *names, "metric", "median", "95 % interval"]
        if other is not None:
            head.append("x " + other)
        cells = []
        for row in rows:
            line = [row["method"], *(str(row["params"].get(name, "")) for name in names)]
            line.append(row["metric"])
            line.append(_figure(row["median"], row["unit"]))
            line.append(" to ".join(_figure(end, row["unit"]) for end in row["ci95"]))
            if other is not None:
                ratio = row.get("ratio")
                line.append(_display.digits(ratio["value"]) if ratio else "")
            cells.append(line)
        return head, cells

    def _below(self) -> List[str]:
        rows = self.rows
        same = [name for name in _params(rows) if len(_values(rows, name)) == 1]
        lines = []
        if same:
            constant = ("%s %s" % (name, next(iter(_values(rows, name)))) for name in same)
            lines.append("in all rows: " + ", ".join(constant))
        return lines + self.notes

    def __repr__(self) -> str:
        head, rows = self._table()
        left = head.index("metric") + 1
        return "\n".join([self._title(), _display.text_table(head, rows, left), *self._below()])

    def _repr_html_(self) -> str:
        from html import escape

        head, rows = self._table()
        parts = ["<p><b>%s</b></p>" % escape(self._title())]
        parts.append(_display.html_table(head, rows, head.index("metric") + 1))
        parts.append(self.plot())
        parts.extend("<p>%s</p>" % escape(line) for line in self._below())
        return "".join(parts)

    def plot(self, metric: Optional[str] = None) -> str:
        """The medians of one metric, by default the first, with their intervals, as SVG."""
        rows = [row for row in self.rows if row["unit"] in _NANOSECONDS]
        if not rows:
            return ""
        if metric is None:
            metric = rows[0]["metric"]
        rows = [row for row in rows if row["metric"] == metric]
        names = [name for name in _params(rows) if len(_values(rows, name)) > 1]
        shown = []
        for row in rows:
            factor = _NANOSECONDS[row["unit"]]
            given = row["params"]
            more = ["%s %s" % (name, given[name]) for name in names if name in given]
            shown.append(
                _display.Bar(
                    label=", ".join([row["method"], *more]),
                    value=row["median"] * factor,
                    low=row["ci95"][0] * factor,
                    high=row["ci95"][1] * factor,
                    text=_figure(row["median"], row["unit"]),
                )
            )
        return _display.bars(metric, shown)


_NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}


def _params(rows: Sequence[Dict[str, Any]]) -> List[str]:
    names: Dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row["params"]))
    return list(names)


def _values(rows: Sequence[Dict[str, Any]], name: str) -> Dict[Any, None]:
    return dict.fromkeys(row["params"].get(name, "") for row in rows)


def _figure(value: float, unit: str) -> str:
    if unit in _NANOSECONDS:
        return _display.duration(value * _NANOSECONDS[unit])
    return "%s %s" % (_display.digits(value), unit)


def suite(name: str, *, quick: bool = True, save: bool = False, **options: Any) -> Result:
    """Runs ``forkless bench NAME``: spawn, memory, cow, syscalls, context, blockwrite, ...

    Keyword arguments are the options of that command (``forkless bench NAME --help``), with
    underscores: ``parent_memory="1G"`` is ``--parent-memory=1G``, a list is joined with commas.
    `quick` gives a rough answer within seconds. `save` keeps the result where ``forkless history``
    finds it.

    Raises CommandError where nothing was measured, with the command's own line.
    """
    if not save:
        options["no_save"] = True
    # A number of runs or a time says itself how long it takes.
    if quick and not {"runs", "time"}.intersection(options):
        options["quick"] = True
    from .subprocess import DEVNULL

    words = _command.options(sorted(options.items()))
    # The table goes to standard output all the same.
    return Result(_command.read_json(["bench", name], "--json", words, stdout=DEVNULL))


def spawn(
    *,
    rss: _Sizes = 0,
    methods: Optional[Sequence[str]] = None,
    fds: Optional[int] = None,
    threads: Optional[Union[int, Sequence[int]]] = None,
    child: Optional[Union[str, Sequence[str]]] = None,
    quick: bool = True,
    save: bool = False,
    **options: Any,
) -> Result:
    """Times the ways to start a program, from a parent that has written `rss` of memory.

    `rss` is a number of bytes or a text such as ``"1G"``. `methods` are names that ``forkless bench
    spawn --methods list`` prints. See :func:`suite` for the rest.
    """
    return suite(
        "spawn",
        quick=quick,
        save=save,
        rss=rss,
        methods=methods,
        fds=fds,
        threads=threads,
        child=child,
        **options,
    )


def memory(*, quick: bool = True, save: bool = False, **options: Any) -> Result:
    """Times forks and starts by the parent's memory: size, kind of pages, share written."""
    return suite("memory", quick=quick, save=save, **options)
