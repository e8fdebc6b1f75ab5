"""A report in words: a table for a terminal, and one in Markdown. Both are made from the report alone."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.bench.record import Report, Row, Spread

WIDTH = 79
"""Of a terminal, less one."""
LABEL = 28


def lines(report: Report) -> Iterator[str]:
    """For a terminal of 80 columns."""
    yield from _wrapped(headline(report), "")
    yield ""
    for first, *cells in _table(report):
        yield f"{first[:LABEL]:<{LABEL}}" + "".join(cells)
    if report.ratios:
        yield ""
        for first, *cells in _ratios(report):
            yield f"{first[:LABEL]:<{LABEL}}" + "".join(_padded(cell, n) for n, cell in enumerate(cells, 1))
    yield ""
    for note in notes(report):
        yield from _wrapped(note, "  ")


def _table(report: Report) -> list[tuple[str, ...]]:
    """The head and a line a measured row, padded; columns in which nothing stands are left out."""
    head = ("", "frames/s", "spread", "of decode", "GPU", "NVDEC", "cores")
    body = [(row.label, *_cells(row)) for row in report.rows if row.rate is not None]
    shown = [any(line[n] for line in body) for n in range(len(head))]
    shown[0], shown[2] = True, report.runs > 1
    kept = [n for n, there in enumerate(shown) if there]
    return [tuple(_padded(line[n], n) for n in kept) for line in (head, *body)]


def _padded(cell: str, column: int) -> str:
    return f"{cell:>{(0, 9, 14, 10, 6, 6, 6)[column]}}"


def _cells(row: Row) -> tuple[str, ...]:
    assert row.rate is not None
    used = row.utilisation
    return (
        rate(row.rate.median),
        f"{rate(row.rate.least)}..{rate(row.rate.most)}",
        "" if row.of_decode is None else f"{row.of_decode.median:.2f}",
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
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


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
    yield "Rates count from when files, decoders, graphs and encoders are open; cores: CPU cores kept busy."
    if whole is not None and whole.whole_rate is not None and whole.startup is not None:
        yield f"With start-up ({whole.startup.median:.2f} s) the whole makes {rate(whole.whole_rate.median)} frames/s."
    for reason in report.not_measured:
        yield f"Not measured: {reason}."


def markdown(report: Report) -> str:
    """The table that README shows; ends with a newline."""
    head, *body = ([cell.strip() for cell in line] for line in _table(report))
    out = [f"{headline(report)} ({report.date}, `{report.command}`).", "", _line(head), _rule(len(head))]
    out += map(_line, body)
    if report.ratios:
        first, *rest = _ratios(report)
        out += ["", _line(first), _rule(len(first)), *map(_line, rest)]
    out += ["", *(f"* {note}" for note in notes(report))]
    return "\n".join(out) + "\n"


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|---|" + "--:|" * (columns - 1)
