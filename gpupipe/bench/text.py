"""A report in words: a table for a terminal, and one in Markdown. Both are made from the report alone."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.bench.record import Report, Row, Spread

WIDTH = 79
"""Of a terminal, less one."""


def lines(report: Report) -> Iterator[str]:
    """For a terminal of 80 columns; the tables come last, where they are still to be seen."""
    yield from _wrapped(headline(report), "")
    for note in notes(report):
        yield from _wrapped(note, "  ")
    yield ""
    yield from _aligned(_table(report))
    if report.ratios:
        yield ""
        yield from _aligned(_ratios(report))


def _aligned(table: list[tuple[str, ...]]) -> Iterator[str]:
    first, *widths = (max(map(len, column)) for column in zip(*table, strict=True))
    for label, *cells in table:
        yield f"{label:<{first}}" + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _table(report: Report) -> list[tuple[str, ...]]:
    """The head and a line a measured row, without columns in which nothing stands."""
    head = ("", "frames/s", "spread", "of decode", "GPU", "NVDEC", "cores")
    body = [(row.label, *_cells(row, report.runs)) for row in report.rows if row.rate is not None]
    shown = [n for n in range(len(head)) if any(line[n] for line in body)]
    return [tuple(line[n] for n in shown) for line in (head, *body)]


def _cells(row: Row, runs: int) -> tuple[str, ...]:
    assert row.rate is not None
    used = row.utilisation
    return (
        rate(row.rate.median),
        f"{rate(row.rate.least)}..{rate(row.rate.most)}" if runs > 1 else "",
        "" if row.of_decode is None else times(row.of_decode.median),
        _percent(None if used is None else used.gpu),
        _percent(None if used is None else used.nvdec),
        "" if row.cores is None else f"{row.cores:.1f}",
    )


def _ratios(report: Report) -> list[tuple[str, ...]]:
    found = [(r.label, times(r.value.median), _spread(r.value)) for r in report.ratios if r.value is not None]
    return [line if report.runs > 1 else line[:2] for line in (("whole run over", "times", "spread"), *found)]


def rate(value: float) -> str:
    """Frames a second, with no more digits than tell something."""
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def times(value: float) -> str:
    """A ratio, likewise."""
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _spread(value: Spread) -> str:
    return f"{times(value.least)}..{times(value.most)}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} %"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def headline(report: Report) -> str:
    """Machine, clip and number of runs."""
    machine, clip = report.machine, report.clip
    where = f"{machine.gpu}, {machine.cores} cores" if machine.gpu else f"{machine.cores} cores of {machine.cpu}"
    what = f"{clip.codec} {clip.width}x{clip.height} {clip.pixels}, {clip.frames} frames, {clip.megabits:.1f} Mb/s"
    return f"{where}; {clip.name}: {what}; {f'medians of {report.runs} runs' if report.runs > 1 else 'one run'}"


def notes(report: Report) -> Iterator[str]:
    """What the figures mean, and what is missing."""
    checked, whole, decode = report.check, report.row("whole"), report.row("decode")
    yield f"Bottleneck: {report.bottleneck}."
    yield (
        f"Checked first: {checked.frames} frames, none missing, each at its time, {checked.psnr:.1f} dB from the CPU "
        f"backend's pictures before encoding (worst {checked.worst:.1f})."
    )
    if report.tried and decode is not None:
        tried = ", ".join(f"{n}: {rate(value)}" for n, value in report.tried.items())
        yield f"Decode only by sessions, one run each: {tried}; rows take {decode.sessions}."
    yield (
        "Rates count from when files, decoders, graphs and encoders are open until the file has its name; cores: CPU "
        "cores kept busy."
    )
    if whole is not None and whole.whole_rate is not None and whole.startup is not None:
        begin, all_in_all = whole.startup.median, rate(whole.whole_rate.median)
        yield f"With start-up ({begin:.2f} s) and until all is closed the whole makes {all_in_all} frames/s."
    if report.not_measured:
        yield f"Not measured: {'; '.join(report.not_measured)}."


def markdown(report: Report) -> str:
    """The table that README shows; ends with a newline."""
    head, *body = _table(report)
    out = [f"{headline(report)} ({report.date}, `{report.command}`).", "", _line(head), _rule(len(head))]
    out += map(_line, body)
    if report.ratios:
        first, *rest = _ratios(report)
        out += ["", _line(first), _rule(len(first)), *map(_line, rest)]
    out += ["", *(f"* {note}" for note in notes(report))]
    return "\n".join(out) + "\n"


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|---|" + "--:|" * (columns - 1)
