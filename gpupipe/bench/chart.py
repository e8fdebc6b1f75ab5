"""A report as a picture: bars of frames a second, a line at what the decoders can do."""

from __future__ import annotations

import importlib.util
import io
import textwrap
from typing import TYPE_CHECKING

from gpupipe.bench.text import headline, rate

if TYPE_CHECKING:
    from gpupipe.bench.record import Report, Row

COLORS = {"limit": "#9aa5b1", "step": "#2f80c2", "whole": "#0b5394", "fewer": "#8fbfe0", "baseline": "#c97b3c"}
MEANINGS = {
    "limit": "a part by itself: its limit",
    "step": "decoded and computed so far",
    "whole": "encoded too",
    "fewer": "other numbers of sessions",
    "baseline": "baselines",
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
    figure = Figure(figsize=(10, 1.7 + 0.34 * len(rows)), dpi=128, layout="constrained")
    axes = figure.subplots()
    spreads = [row.rate for row in rows if row.rate is not None]
    values = [spread.median for spread in spreads]
    beside = [[s.median - s.least for s in spreads], [s.most - s.median for s in spreads]]
    axes.barh(range(len(rows)), values, xerr=beside, color=[COLORS[row.kind] for row in rows], height=0.72,
              error_kw={"elinewidth": 1, "ecolor": "#333333"})  # fmt: skip
    for n, spread in enumerate(spreads):
        axes.annotate(_words(rows[n], spread.median), (spread.most, n), xytext=(6, 0), textcoords="offset points",
                      va="center", fontsize=8)  # fmt: skip
    decode = report.row("decode")
    if decode is not None and decode.rate is not None:
        axes.axvline(decode.rate.median, color=COLORS["limit"], linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.22 * max(values))
    axes.set_xlabel("frames a second")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title("\n".join(textwrap.wrap(headline(report), 110)), loc="left", fontsize=9)
    kinds = dict.fromkeys(row.kind for row in rows)
    axes.legend(handles=[Patch(color=COLORS[k], label=MEANINGS[k]) for k in kinds], frameon=False, fontsize=8,
                loc="upper center", bbox_to_anchor=(0.4, -0.14), ncols=len(kinds))  # fmt: skip
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()


def _words(row: Row, median: float) -> str:
    """What stands beside a bar."""
    used = row.utilisation.nvdec if row.utilisation is not None else None
    return rate(median) if used is None else f"{rate(median)}   NVDEC {used:.0f} %"
