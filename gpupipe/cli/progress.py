"""How far a run is: drawn on a terminal, a line every ten seconds elsewhere, an event a second in the JSON log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpupipe.cli.console import Console, printable
from gpupipe.render import Progress

if TYPE_CHECKING:
    from gpupipe.render import Watch
    from gpupipe.render.watch import Reading

LINE_EVERY = 10.0
EVENT_EVERY = 1.0
Report = Callable[[Progress], None]


@contextmanager
def reporting(console: Console, watch: Watch, device: str) -> Iterator[Report]:
    """What `render` calls with its progress, in the form that suits stderr; a log file gets lines or events.

    What happens in the run is said too, each time.
    """
    watch.told = console.happened
    if console.json_log:
        yield every(EVENT_EVERY, lambda p: console.event("progress", **_facts(p, watch.read())))
        return
    to_log = every(LINE_EVERY, lambda p: console.log(line(p)))
    if console.quiet:
        yield to_log
    elif sys.stderr.isatty():
        from gpupipe.cli.dashboard import dashboard  # noqa: PLC0415  rich only where there is a terminal to draw on

        with dashboard(watch, device) as terminal:
            before = console.write_line
            console.write_line = lambda line: terminal.print(printable(line), soft_wrap=True)
            try:
                yield to_log
            finally:
                console.write_line = before
    else:
        yield every(LINE_EVERY, lambda p: console.say(line(p)))


def _facts(now: Progress, reading: Reading) -> dict[str, object]:
    done = reading.computed
    rate = (done - now.kept) / now.elapsed if now.elapsed > 0 else 0.0
    left = (now.total - done) / rate if now.total and rate > 0 else None
    return {
        "frames": now.frames,
        "total": now.total,
        "position_seconds": round(now.pts_seconds, 3),
        "elapsed_seconds": round(now.elapsed, 3),
        "frames_per_second": round(now.rate, 1),
        "realtime_ratio": round(reading.media / now.elapsed, 3) if now.elapsed > 0 else 0.0,
        "eta_seconds": None if left is None else round(max(0.0, left), 1),
        "lanes": {lane.name: round(lane.occupancy, 3) for lane in reading.lanes},
        "segments": {"total": reading.segments, "finished": reading.finished, "running": list(reading.running)},
    }


def line(now: Progress) -> str:
    """`1200/3000 frames (40 %), 240 a second, 0:08 left`."""
    rate = now.rate
    if not now.total:
        return f"{now.frames} frames, {pace(rate)} a second"
    left = f", {clock((now.total - now.frames) / rate)} left" if rate > 0 and now.total > now.frames else ""
    return f"{now.frames}/{now.total} frames ({100 * now.frames // now.total} %), {pace(rate)} a second{left}"


def pace(rate: float) -> str:
    """`240`, `2.4`, `0.16`: two digits at least, for networks on a CPU."""
    return f"{rate:.0f}" if rate >= 10 or rate <= 0 else f"{rate:.2g}"


def clock(seconds: float) -> str:
    """`0:08`, `1:02:30`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def every(interval: float, report: Report) -> Report:
    """`report`, at most once an interval by the run's own clock."""
    due = interval

    def throttled(now: Progress) -> None:
        nonlocal due
        if now.elapsed >= due:
            due = now.elapsed + interval
            report(now)

    return throttled
