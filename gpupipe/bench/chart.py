"""A report as a picture: bars of frames a second, a line at what the decoders can do."""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING

from gpupipe.bench.text import headline, rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpupipe.bench.record import Report, Row

COLORS = {"limit": "#9aa5b1", "step": "#2f80c2", "whole": "#0b5394", "fewer": "#8fbfe0", "baseline": "#c97b3c"}
MEANINGS = {
    "limit": "one part by itself",
    "step": "decoded, and computed so far",
    "whole": "encoded, and written",
    "fewer": "with other numbers of sessions",
    "baseline": "other ways to do the same",
}


def obstacle() -> str | None:
    """Why no chart can be drawn; None where one can."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed (pip install 'gpupipe[metrics]')"
    return None


def chart(report: Report) -> bytes:
    """PNG, 1280 pixels wide."""
    from matplotlib.figure import Figure  # noqa: PLC0415  optional
    from matplotlib.patches import Patch  # noqa: PLC0415

    rows = [row for row in report.rows if row.rate is not None]
    height = 1.9 + 0.34 * len(rows)
    figure = Figure(figsize=(10, height), dpi=128)
    axes = figure.subplots()
    figure.subplots_adjust(left=0.21, right=0.98, top=1 - 0.75 / height, bottom=0.85 / height)
    _bars(axes, rows)
    decode = report.row("decode")
    if decode is not None and decode.rate is not None:
        axes.axvline(decode.rate.median, color=COLORS["limit"], linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    axes.set_xlabel("frames a second", fontsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    figure.text(0.015, 1 - 0.27 / height, "Frames a second, part by part", fontsize=12, weight="bold")
    figure.text(0.015, 1 - 0.5 / height, headline(report), fontsize=8, color="#444444")
    kinds = dict.fromkeys(row.kind for row in rows)
    handles = [Patch(color=COLORS[kind], label=MEANINGS[kind]) for kind in kinds]
    figure.legend(handles=handles, frameon=False, fontsize=8, loc="lower center", ncols=len(kinds))
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()


def _bars(axes: Axes, rows: list[Row]) -> None:
    """A bar a row, with its spread and what stands beside it."""
    spreads = [row.rate for row in rows if row.rate is not None]
    values = [spread.median for spread in spreads]
    beside = [[s.median - s.least for s in spreads], [s.most - s.median for s in spreads]]
    axes.barh(range(len(rows)), values, xerr=beside, color=[COLORS[row.kind] for row in rows], height=0.72,
              error_kw={"elinewidth": 1, "ecolor": "#333333"})  # fmt: skip
    for n, spread in enumerate(spreads):
        axes.annotate(_words(rows[n], spread.median), (spread.most, n), xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=8, bbox={"color": "white", "pad": 1})  # fmt: skip
    axes.set_yticks(range(len(rows)), [row.label for row in rows], fontsize=9)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.16 * max(spread.most for spread in spreads))


def _words(row: Row, median: float) -> str:
    """What stands beside a bar."""
    used = row.utilisation.nvdec if row.utilisation is not None else None
    return rate(median) if not used else f"{rate(median)}   NVDEC {used:.0f} %"
