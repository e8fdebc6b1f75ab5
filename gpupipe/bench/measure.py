"""Times cases: a short run of each to warm up, then rounds of all of them, so that drift meets every row alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpupipe.bench.cases import BASELINES
from gpupipe.bench.flow import expect
from gpupipe.bench.nvml import Sampler, summed_up
from gpupipe.bench.record import Ratio, Row, Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpupipe.bench.cases import Case
    from gpupipe.bench.flow import Run

WARM = 60
"""Frames of a warm-up: they compile and load everything, in few sessions."""
SAME_SPEED, BOUND = 0.95, 0.9
"""Shares of another's speed: above the first two are the same, above the second one waits for the other alone."""


@dataclass(slots=True)
class Measured:
    """All runs of a case."""

    case: Case
    runs: list[Run] = field(default_factory=list)
    samples: list[dict[str, float | None]] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Of each run, frames a second."""
        return [run.rate for run in self.runs]


def once(case: Case, frames: int) -> Run:
    """One run; the file that it leaves is removed."""
    assert case.run is not None
    try:
        return expect(case.run(frames), frames, case.name)
    finally:
        if case.output is not None:
            case.output.unlink(missing_ok=True)


def measure(cases: Sequence[Case], runs: int, sampler: Sampler, say: Callable[[str], None]) -> list[Measured]:
    """Every case that can be run, `runs` times after a warm-up; `say` is told of each figure."""
    found = [Measured(case) for case in cases]
    able = [one for one in found if one.case.run is not None]
    for one in able:
        once(one.case, min(one.case.frames, WARM))
    for number in range(1, runs + 1):
        for one in able:
            with sampler:
                run = once(one.case, one.case.frames)
            one.runs.append(run)
            one.samples += sampler.between(run.began, run.ended)
            say(f"run {number} of {runs}: {one.case.label}: {run.rate:.1f} frames a second")
    return found


def rows(found: list[Measured]) -> tuple[Row, ...]:
    """The table's rows."""
    return tuple(_row(one, {other.case.name: other for other in found}.get(one.case.limit)) for one in found)


def _row(one: Measured, limit: Measured | None) -> Row:
    case = one.case
    if not one.runs:
        return Row(case.name, case.label, case.kind, case.frames, case.sessions, reason=case.reason)
    return Row(
        case.name,
        case.label,
        case.kind,
        case.frames,
        case.sessions,
        rate=Spread.of(one.rates),
        whole_rate=Spread.of([run.whole_rate for run in one.runs]) if case.output is not None else None,
        startup=Spread.of([run.startup for run in one.runs]),
        cores=Spread.of([run.cores for run in one.runs]).median,
        of_decode=_divided(one.rates, limit.rates) if limit is not None and limit is not one else None,
        utilisation=summed_up(one.samples),
    )


def ratios(found: list[Measured]) -> tuple[Ratio, ...]:
    """The whole over its limits and over the baselines."""
    by_name = {one.case.name: one for one in found}
    whole = by_name.get("whole")
    if whole is None or not whole.runs:
        return ()
    others = [one for one in found if one.case.name in ("decode", "encoder-alone", *BASELINES)]
    out = [Ratio(one.case.name, one.case.label, _divided(whole.rates, one.rates), one.case.reason) for one in others]
    limits = [one for one in others if one.case.kind == "limit"]
    if len(limits) == 2:
        slower = [min(pair) for pair in zip(*(one.rates for one in limits), strict=True)]
        out.insert(2, Ratio("limit", "the slower of these two", _divided(whole.rates, slower)))
    return tuple(out)


def _divided(rates: list[float], others: list[float]) -> Spread | None:
    """Run by run; None where there is nothing to divide by."""
    return Spread.of([a / b for a, b in zip(rates, others, strict=True)]) if others else None


def bottleneck(found: tuple[Row, ...]) -> str:
    """Which part the whole waits for, in words: the slowest by itself, unless the parts hold each other up."""
    rates = {row.name: row.rate.median for row in found if row.rate is not None}
    steps = [row for row in found if row.kind == "step" and row.rate is not None]
    parts = {"decoding": rates.get("decode"), "the steps": rates[steps[-1].name] if steps else None,
             "the encoder": rates.get("encoder-alone")}  # fmt: skip
    known = {name: rate for name, rate in parts.items() if rate is not None}
    if len(known) + ("whole" in rates) < 2:
        return "not known: the whole and its parts were not all measured"
    slowest = min(known, key=lambda name: known[name])
    limit = known[slowest]
    if slowest == "the steps" and limit > SAME_SPEED * known.get("decoding", 0):
        slowest = "decoding"  # which every row of a step includes
    if "whole" not in rates:
        return f"of what was measured {slowest} ({limit:.4g} frames/s)"
    share = 100 * rates["whole"] / limit
    held = "" if share >= 100 * BOUND else ", so parts hold each other up too"
    return f"{slowest} ({limit:.4g} frames/s without what follows; the whole makes {share:.0f} % of that{held})"
