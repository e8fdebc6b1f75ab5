"""Counts and gauges as Prometheus wants them named: base units, counters that end in `_total`, every zero told."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from gpupipe import __version__, errors
from gpupipe.events import SMALLER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from gpupipe.device.nvml import GpuGauge
    from gpupipe.metrics.totals import Totals
    from gpupipe.plan import Plan
    from gpupipe.render.watch import Reading

ENDS = ("done", "failed", "stopped")
_ERRORS = (*sorted(n for n, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)), "bug")
_ENGINES = ("gpu", "memory", "nvdec", "nvenc", "nvjpg")
_MIB = float(1 << 20)
Row = tuple[tuple[str, ...], float]


def of_totals(totals: Totals) -> Iterator[Metric]:
    """What never falls."""
    yield _counter("frames", "Frames in outputs.", totals.frames)
    yield _counter("computed_frames", "Frames computed, those that wait to be written included.", totals.computed)
    yield _counter("source_seconds", "Playing time of sources that is done.", totals.media)
    yield _counter("encoded_bytes", "Encoded video handed to the muxer.", totals.written)
    yield _counters("lane_seconds", "Time of each lane by what it did; `wait for` others is no work.",
                    ("lane", "kind", "state"), sorted(totals.lanes.items()))  # fmt: skip
    yield _counters("runs", "Runs that ended, by how.", ("result",), _all(totals.ended, ENDS))
    yield _counters("errors", "Errors that ended a run, by class.", ("kind",), _all(totals.errors, _ERRORS))
    yield _counters("warnings", "Warnings by code.", ("code",), sorted(_single(totals.warnings)))
    events = totals.events
    yield _counter("retries", "Segments rendered again after a failure.", events["retry"])
    yield _counter("engine_builds", "Networks compiled.", events["engine-build"])
    yield _counter("engine_loads", "Compiled networks taken from the cache.", events["engine-load"])
    back = [((step.partition("-")[2],), float(events[step])) for step in SMALLER]
    yield _counters("memory_backoffs", "Steps back because memory was short, by what became less.", ("less",), back)


def of_runs(runs: Sequence[tuple[Plan, Reading]]) -> Iterator[Metric]:
    """What is going on."""
    yield _gauges("build_info", "The version that runs here.", ("version",), [((__version__,), 1)])
    yield _gauges("active_runs", "Runs that are going on.", (), [((), len(runs))])
    expected = sum(reading.total or 0 for _, reading in runs)
    yield _gauges("expected_frames", "Frames that the runs going on will have, as far as known.", (), [((), expected)])
    kinds = Counter((p.device, p.decoder, p.encoder.encoder) for p, _ in runs)
    yield _gauges("run_info", "Runs that are going on, by where and by what they decode and encode.",
                  ("device", "decoder", "encoder"), sorted(kinds.items()))  # fmt: skip
    states, queues, planned = Counter[str](), Counter[str](), Counter[str]()
    for plan, reading in runs:
        running = len(reading.running) or (len(plan.segments) == 1)  # a run that is not cut is one segment
        states["running"] += running
        states["finished"] += reading.finished
        states["waiting"] += max(0, reading.segments - reading.finished - running)
        queues.update(reading.queues)
        planned[plan.device] += plan.device_bytes
    yield _gauges("segments", "Segments of the runs going on.", ("state",),
                  _all(states, ("waiting", "running", "finished")))  # fmt: skip
    yield _gauges("queue_items", "What waits between lanes.", ("queue",), sorted(_single(queues)))
    yield _gauges("planned_device_memory_bytes", "Memory of a device that the runs going on are planned to take.",
                  ("device",), sorted(_single(planned)))  # fmt: skip


def of_host(available: int | None, total: int | None) -> Iterator[Metric]:
    """Memory of the machine or container; absent where the system does not say."""
    if available is not None and total is not None:
        yield _gauges("host_memory_available_bytes", "Memory that may still be taken.", (), [((), available)])
        yield _gauges("host_memory_bytes", "Memory of the machine, or the container's limit.", (), [((), total)])


def of_gpus(gauges: Sequence[tuple[str, GpuGauge]]) -> Iterator[Metric]:
    """What NVML says of each GPU in use; what one does not say is absent.

    Args:
        gauges: with the number that CUDA gives each.
    """
    told = [(index, gauge.read()) for index, gauge in gauges]

    def gauge(name: str, words: str, figure: str, scale: float = 1) -> GaugeMetricFamily:
        values = [((index,), value * scale) for index, now in told if (value := now.get(figure)) is not None]
        return _gauges(f"gpu_{name}", words, ("gpu",), values)

    yield _gauges("gpu_info", "GPUs in use.", ("gpu", "name", "uuid"), [((i, g.name, g.uuid), 1) for i, g in gauges])
    shares = [
        ((index, engine), value / 100)
        for index, now in told for engine in _ENGINES if (value := now.get(engine)) is not None
    ]  # fmt: skip
    words = "Share of time in which kernels ran (gpu), memory was moved (memory) or a video engine worked, 0 to 1."
    yield _gauges("gpu_utilization_ratio", words, ("gpu", "engine"), shares)
    yield gauge("temperature_celsius", "Temperature of the GPU.", "temperature_c")
    yield gauge("slowdown_temperature_celsius", "Temperature at which it slows down.", "slowdown_c")
    yield gauge("power_watts", "Power drawn.", "power_w")
    yield gauge("power_limit_watts", "Power it may draw.", "power_limit_w")
    yield gauge("memory_used_bytes", "Memory in use by everyone.", "memory_mib", _MIB)
    yield gauge("memory_bytes", "Memory there is.", "memory_total_mib", _MIB)
    yield gauge("sm_clock_hertz", "Clock of the multiprocessors.", "sm_mhz", 1e6)
    yield gauge("video_clock_hertz", "Clock of the video engines.", "video_mhz", 1e6)


def _all(counts: Counter[str], known: Sequence[str]) -> list[Row]:
    """Known labels, at zero too: a series that begins at its first event hides that event from `increase`."""
    return [((label,), float(counts[label])) for label in [*known, *sorted(set(counts) - set(known))]]


def _single(counts: Counter[str]) -> list[Row]:
    return [((label,), float(count)) for label, count in counts.items()]


def _counter(name: str, words: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"gpupipe_{name}", words, value=value)


def _counters(name: str, words: str, labels: Sequence[str], rows: Iterable[Row]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"gpupipe_{name}", words, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _gauges(name: str, words: str, labels: Sequence[str], rows: Iterable[Row]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"gpupipe_{name}", words, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family
