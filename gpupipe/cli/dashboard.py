"""A run on a terminal: how far, how fast, which lane waits, what the GPU does; redrawn twice a second."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gpupipe.cli.progress import clock, pace
from gpupipe.device.host import resident_bytes
from gpupipe.device.nvml import GpuGauge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import ConsoleOptions, RenderResult

    from gpupipe.device.nvml import Figures
    from gpupipe.render import Watch
    from gpupipe.render.watch import LaneReading, Reading, SegmentReading

REDRAWN = 2
"""Times a second."""
RECENT = 5.0
"""Seconds over which rates and occupancy are taken."""
WIDEST = 100
"""Columns that are used at most; a longer bar says no more."""
_GIB = 1 << 30


class Dashboard:
    """Draws a run whenever rich asks it to."""

    def __init__(self, watch: Watch, device: str) -> None:
        self._watch, self._gauge = watch, GpuGauge(device)
        self._past: deque[Reading] = deque()

    def __rich_console__(self, terminal: Terminal, options: ConsoleOptions) -> RenderResult:
        now = self._watch.read()
        self._past.append(now)
        while len(self._past) > 2 and self._past[1].elapsed < now.elapsed - RECENT:
            self._past.popleft()
        width = min(options.max_width, WIDEST)
        rows: list[Table | Text] = [_bar(now, width), _speed(now, self._past[0]), *_lanes(now, self._past[0])]
        rows.append(_machine(self._gauge.read()))
        rows += _segments(now.running, width, max(1, terminal.height - len(rows) - 3))
        for row in rows:
            if isinstance(row, Text):
                row.truncate(width, overflow="ellipsis")
        yield Group(*rows)


def _bar(now: Reading, width: int) -> Table:
    row = Table.grid(padding=(0, 1))
    done = min(now.computed, now.total) if now.total else now.computed
    share = f"{100 * done // now.total:3d} %" if now.total else ""
    row.add_row(ProgressBar(total=now.total, completed=done, width=width - 8, pulse=not now.total), Text(share))
    return row


def _speed(now: Reading, past: Reading) -> Text:
    seconds = now.elapsed - past.elapsed
    rate = (now.computed - past.computed) / seconds if seconds > 0 else 0.0
    words = [f"{now.computed}/{now.total}" if now.total else f"{now.computed}", "frames"]
    text = f"{' '.join(words)}   {pace(rate)}/s"
    if now.total and now.media and now.frames:
        text += f"   {rate * now.media / now.frames:.2f}x real time"
    if now.total and rate > 0 and now.total > now.computed:
        text += f"   {clock((now.total - now.computed) / rate)} left"
    return Text(text)


def _lanes(now: Reading, past: Reading) -> list[Text]:
    """One lane by what it does; several by kind, with what they wait for most."""
    before = {lane.name: lane for lane in past.lanes}
    recent = [(lane, _since(lane, before.get(lane.name))) for lane in now.lanes]
    if len(recent) == 1:
        spent = recent[0][1]
        whole = sum(spent.values()) or 1.0
        parts = [f"{state} {100 * s / whole:.0f} %" for state, s in sorted(spent.items()) if s > 0 and state != "done"]
        return [Text(f"lanes    {'   '.join(parts)}")]
    kinds: dict[str, list[dict[str, float]]] = {}
    for lane, spent in recent:
        kinds.setdefault(lane.kind, []).append(spent)
    parts = []
    for kind, lanes in kinds.items():
        waited = sum(s for spent in lanes for state, s in spent.items() if state.startswith("wait"))
        whole = sum(s for spent in lanes for s in spent.values()) or 1.0
        parts.append(f"{len(lanes)} {kind} {100 - 100 * waited / whole:.0f} %")
    return [Text(f"lanes    {'   '.join(parts)} at work")]


def _since(lane: LaneReading, before: LaneReading | None) -> dict[str, float]:
    if before is None:
        return lane.seconds
    return {state: s - before.seconds.get(state, 0.0) for state, s in lane.seconds.items()}


def _machine(gpu: Figures) -> Text:
    resident = resident_bytes()
    parts = [f"memory {resident / _GIB:.1f} GiB"] if resident is not None else []
    if (share := gpu.get("gpu")) is not None:
        parts.insert(0, f"GPU {share:.0f} %")
    if (share := gpu.get("nvdec")) is not None:
        parts.insert(1, f"NVDEC {share:.0f} %")
    used, total = gpu.get("memory_mib"), gpu.get("memory_total_mib")
    if used is not None and total is not None:
        parts.append(f"GPU {used / 1024:.1f}/{total / 1024:.0f} GiB")
    if (watts := gpu.get("power_w")) is not None:
        parts.append(f"{watts:.0f} W")
    if (heat := gpu.get("temperature_c")) is not None:
        parts.append(f"{heat:.0f} C")
    return Text(f"machine  {'  '.join(parts)}")


def _segments(running: tuple[SegmentReading, ...], width: int, room: int) -> list[Table | Text]:
    rows: list[Table | Text] = []
    shown = running if len(running) <= room else running[: max(0, room - 1)]
    for segment in shown:
        row = Table.grid(padding=(0, 1))
        total = segment.frames or None
        bar = ProgressBar(total=total, completed=segment.shown, width=max(10, width - 34), pulse=False)
        count = f"{segment.shown}/{segment.frames}" if total else f"{segment.shown}"
        row.add_row(Text(f"segment {segment.index:>5}"), bar, Text(f"{count:>13}"))
        rows.append(row)
    if len(shown) < len(running):
        rows.append(Text(f"and {len(running) - len(shown)} more segments"))
    return rows


@contextmanager
def dashboard(watch: Watch, device: str) -> Iterator[Terminal]:
    """Draws while it is entered, and leaves nothing behind; lines are to be printed on the terminal that it gives."""
    terminal = Terminal(stderr=True, highlight=False, markup=False)
    with Live(
        Dashboard(watch, device), console=terminal, refresh_per_second=REDRAWN, transient=True, vertical_overflow="crop"
    ):
        yield terminal
