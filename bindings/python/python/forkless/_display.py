"""Tables as text and as HTML, and plots as SVG, for notebooks. No scripts: a notebook that is not
trusted shows none.
"""

from __future__ import annotations

import math
from html import escape
from typing import List, NamedTuple, Optional, Sequence

__all__ = ["Bar", "bars", "duration", "html_table", "size", "text_table"]

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def duration(ns: float) -> str:
    """Nanoseconds with three digits.

    >>> from forkless._display import duration
    >>> duration(1234567), duration(12.3), duration(0)
    ('1.23 ms', '12.3 ns', '0 ns')
    """
    if ns == 0:
        return "0 ns"
    for factor, unit in _UNITS:
        # 999.7 us are 1 ms.
        if abs(ns) >= factor * 0.9995 or unit == "ns":
            return "%s %s" % (digits(ns / factor), unit)
    raise AssertionError


def digits(value: float) -> str:
    """Three digits, without an exponent where that can be."""
    if value == 0 or not math.isfinite(value):
        return "%g" % value
    after = 2 - math.floor(math.log10(abs(value)))
    if after > 6:
        return "%.3g" % value
    return "%.*f" % (max(0, after), value)


def size(bytes_: float) -> str:
    """Bytes with their unit, to the power of two.

    >>> from forkless._display import size
    >>> size(1 << 30), size(50_000_000)
    ('1.0 GiB', '48 MiB')
    """
    for factor, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes_ >= factor:
            value = bytes_ / factor
            return "%.*f %s" % (1 if value < 10 else 0, value, unit)
    return "%d B" % bytes_


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns as wide as their widest cell; the first `left` stand left, the others right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """The same for a notebook."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>%s</tr>" % "".join(
            '<%s style="text-align:%s">%s</%s>'
            % (tag, "left" if i < left else "right", escape(cell), tag)
            for i, cell in enumerate(cells)
        )

    body = "".join(line(row, "td") for row in rows)
    return "<table><thead>%s</thead><tbody>%s</tbody></table>" % (line(head, "th"), body)


class Bar(NamedTuple):
    """One bar of a plot: its value, and its interval if it has one."""

    label: str
    value: float
    low: Optional[float]
    high: Optional[float]
    text: str


_LABEL, _PLOT, _TEXT, _LINE = 230, 380, 190, 20


def bars(title: str, given: Sequence[Bar]) -> str:
    """Horizontal bars on a logarithmic scale, with their intervals, as SVG."""
    shown = [bar for bar in given if bar.value > 0 and math.isfinite(bar.value)]
    if not shown:
        return ""
    ends = [value for bar in shown for value in (bar.value, bar.low, bar.high) if value]
    low = 10.0 ** math.floor(math.log10(min(ends)) - 0.05)
    high = 10.0 ** math.ceil(math.log10(max(ends)))
    if high <= low:
        high = low * 10

    def x(value: float) -> float:
        share = math.log(max(value, low) / low) / math.log(high / low)
        return _LABEL + min(1.0, share) * _PLOT

    height = _LINE * (len(shown) + 2) + 8
    parts: List[str] = [
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" width="%d" height="%d"'
        ' viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="currentColor">'
        % (_LABEL + _PLOT + _TEXT, height, _LABEL + _PLOT + _TEXT, height),
        '<title>%s</title><text x="0" y="14" font-weight="bold">%s</text>'
        % (escape(title), escape(title)),
    ]
    tick = low
    while tick <= high * 1.0001:
        at = x(tick)
        parts.append(
            '<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="currentColor" stroke-opacity=".2"/>'
            % (at, at, _LINE + 2, height - _LINE + 2)
        )
        parts.append(
            '<text x="%.1f" y="%d" text-anchor="middle" font-size="10">%s</text>'
            % (at, height - 4, escape(duration(tick)))
        )
        tick *= 10
    for i, bar in enumerate(shown):
        top = _LINE * (i + 1) + 4
        middle = top + _LINE / 2 - 2
        parts.append(
            '<text x="%d" y="%d" text-anchor="end">%s</text>'
            '<rect x="%d" y="%d" width="%.1f" height="%d" fill="#4c78a8"/>'
            % (
                _LABEL - 6,
                middle + 4,
                escape(bar.label),
                _LABEL,
                top,
                max(1.0, x(bar.value) - _LABEL),
                _LINE - 6,
            )
        )
        if bar.low and bar.high:
            parts.append(
                '<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#e45756" stroke-width="2"/>'
                % (x(bar.low), x(bar.high), middle - 1, middle - 1)
            )
        parts.append(
            '<text x="%.1f" y="%d">%s</text>'
            % (max(x(bar.value), x(bar.high or 0)) + 6, middle + 4, escape(bar.text))
        )
    parts.append("</svg>")
    return "".join(parts)
