"""How far a run is: a bar on a terminal, a line every ten seconds elsewhere, an event a second in the JSON log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpupipe.cli.console import Console, printable
from gpupipe.render import Progress

LINE_EVERY = 10.0
EVENT_EVERY = 1.0
Report = Callable[[Progress], None]


@contextmanager
def reporting(console: Console) -> Iterator[Report]:
    """What `render` calls with its progress, in the form that suits stderr."""
    if console.quiet:
        yield lambda _: None
    elif console.json_log:
        yield _every(EVENT_EVERY, lambda p: console.event("progress", **_facts(p)))
    elif sys.stderr.isatty():
        with _bar(console) as report:
            yield report
    else:
        yield _every(LINE_EVERY, lambda p: console.say(_line(p)))


def _facts(now: Progress) -> dict[str, object]:
    rate = now.frames / now.elapsed if now.elapsed > 0 else 0.0
    return {
        "frames": now.frames,
        "total": now.total,
        "position_seconds": round(now.pts_seconds, 3),
        "elapsed_seconds": round(now.elapsed, 3),
        "frames_per_second": round(rate, 1),
    }


def _line(now: Progress) -> str:
    """`1200/3000 frames (40 %), 240 a second, 0:08 left`."""
    rate = now.frames / now.elapsed if now.elapsed > 0 else 0.0
    if not now.total:
        return f"{now.frames} frames, {rate:.0f} a second"
    left = f", {_clock((now.total - now.frames) / rate)} left" if rate > 0 and now.total > now.frames else ""
    return f"{now.frames}/{now.total} frames ({100 * now.frames // now.total} %), {rate:.0f} a second{left}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _every(interval: float, report: Report) -> Report:
    """`report`, at most once an interval by the run's own clock."""
    due = interval

    def throttled(now: Progress) -> None:
        nonlocal due
        if now.elapsed >= due:
            due = now.elapsed + interval
            report(now)

    return throttled


@contextmanager
def _bar(console: Console) -> Iterator[Report]:
    """A bar by rich, which is imported only where there is a terminal to draw on."""
    from rich import progress as widgets  # noqa: PLC0415
    from rich.console import Console as Terminal  # noqa: PLC0415

    terminal = Terminal(stderr=True, highlight=False, markup=False)
    columns = (
        widgets.BarColumn(),
        widgets.TaskProgressColumn(),
        widgets.TextColumn("{task.fields[state]}"),
        widgets.TimeRemainingColumn(compact=True),
    )
    with widgets.Progress(*columns, console=terminal, transient=True) as bar:
        task = bar.add_task("", total=None, state="starting")

        def report(now: Progress) -> None:
            rate = now.frames / now.elapsed if now.elapsed > 0 else 0.0
            of = f"/{now.total}" if now.total else ""
            bar.update(task, total=now.total, completed=now.frames, state=f"{now.frames}{of} frames, {rate:.0f}/s")

        before = console.write_line
        console.write_line = lambda line: terminal.print(printable(line), soft_wrap=True)
        try:
            yield report
        finally:
            console.write_line = before
