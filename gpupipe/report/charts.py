"""Samples of a run as series over time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from gpupipe.render.watch import WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpupipe.render.watch import LaneReading, Reading
    from gpupipe.report.recorder import Sample

_GIB = 1 << 30
Values = list[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture of several series over the same times."""

    title: str
    unit: str
    times: list[float]
    """Seconds since the start of the run, rising."""
    series: dict[str, Values]
    top: float | None = None
    """Upper end of the scale; None fits the data."""


def charts(samples: Sequence[Sample]) -> list[Chart]:
    """Those that have data."""
    kept = [samples[0]] if samples else []
    kept += [now for before, now in pairwise(samples) if now.reading.elapsed > before.reading.elapsed]
    if len(kept) < 2:
        return []
    pairs = list(pairwise(kept))
    between = [round(now.reading.elapsed, 3) for _, now in pairs]
    moments = [round(sample.reading.elapsed, 3) for sample in kept]
    found = [
        Chart("Frames a second", "frames/s", between, {"frames/s": [_rate(a.reading, b.reading) for a, b in pairs]}),
        Chart("Lanes: share of time at work", "%", between, _lanes([(a.reading, b.reading) for a, b in pairs]), 100),
        Chart("GPU and its video engines", "%", moments,
              _gpu(kept, {"GPU": "gpu", "NVDEC": "nvdec", "NVENC": "nvenc", "memory bus": "memory"}), 100),
        Chart("Memory", "GiB", moments, {
            "this process": [_gib(s.resident) for s in kept],
            **_gpu(kept, {"GPU, everyone": "memory_mib"}, 1 / 1024),
        }),
        Chart("Power", "W", moments, _gpu(kept, {"power": "power_w", "limit": "power_limit_w"})),
        Chart("Temperature", "°C", moments, _gpu(kept, {"GPU": "temperature_c"})),
    ]  # fmt: skip
    return [chart for chart in found if any(v is not None for values in chart.series.values() for v in values)]


def _rate(before: Reading, now: Reading) -> float:
    return round((now.computed - before.computed) / (now.elapsed - before.elapsed), 2)


def _gib(size: int | None) -> float | None:
    return None if size is None else round(size / _GIB, 3)


def _gpu(samples: Sequence[Sample], names: dict[str, str], scale: float = 1) -> dict[str, Values]:
    series: dict[str, Values] = {}
    for label, name in names.items():
        values = [sample.gpu.get(name) for sample in samples]
        if any(value is not None for value in values):
            series[label] = [None if value is None else round(value * scale, 3) for value in values]
    return series


def _lanes(pairs: Sequence[tuple[Reading, Reading]]) -> dict[str, Values]:
    """By kind of lane; where one lane does everything, by what it does."""
    last = pairs[-1][1].lanes
    if len(last) == 1:
        parts = sorted({state for state in last[0].seconds if state not in ("open", "close", "done")})
        return {part: [_share(pair, partial(_in, part)) for pair in pairs] for part in parts}
    kinds = sorted({lane.kind for lane in last})
    return {kind: [_share(pair, _busy, kind) for pair in pairs] for kind in kinds}


def _share(
    pair: tuple[Reading, Reading],
    part: Callable[[LaneReading], float],
    kind: str | None = None,
) -> float | None:
    """Percent of the lanes' time between two readings."""

    def total(reading: Reading, of: Callable[[LaneReading], float]) -> float:
        return sum(of(lane) for lane in reading.lanes if kind in (None, lane.kind))

    before, now = pair
    whole = total(now, _all) - total(before, _all)
    return round(min(100.0, 100 * (total(now, part) - total(before, part)) / whole), 1) if whole > 0 else None


def _busy(lane: LaneReading) -> float:
    return lane.busy


def _in(state: str, lane: LaneReading) -> float:
    return lane.seconds.get(state, 0.0)


def _all(lane: LaneReading) -> float:
    return sum(lane.seconds.values())


def bottleneck(last: Reading) -> str:
    """Which lane the others waited for, in a sentence."""
    lanes = last.lanes
    if not lanes:
        return "the run ended before a lane began"
    if len(lanes) == 1:
        work = {k: s for k, s in lanes[0].seconds.items() if k != "done"}
        name, most = max(work.items(), key=lambda item: item[1])
        return f"{name} took most of the time, {most / max(sum(work.values()), 1e-9):.0%} of it, in one lane"
    busy: dict[str, list[float]] = {}
    for lane in lanes:
        busy.setdefault(lane.kind, []).append(lane.occupancy)
    kind, share = max(((kind, sum(v) / len(v)) for kind, v in busy.items()), key=lambda item: item[1])
    waits: dict[str, float] = {}
    for lane in lanes:
        for state, seconds in lane.seconds.items():
            if state.startswith(WAIT) and lane.kind != kind:
                name = f"{lane.kind} lanes waited{state.removeprefix('wait')}"
                waits[name] = waits.get(name, 0.0) + seconds
    longest = max(waits, key=lambda name: waits[name], default=None)
    tail = f"; {longest} for {waits[longest]:.1f} s" if longest is not None else ""
    return f"{kind} lanes set the pace: at work {share:.0%} of the time{tail}"
