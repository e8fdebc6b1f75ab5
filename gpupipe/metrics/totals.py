"""What the runs of a process did in all: counters that never fall, however many runs begin and end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpupipe.journal import Journal
    from gpupipe.render.watch import Reading


@dataclass(slots=True)
class Totals:
    """Sums over runs."""

    frames: int = 0
    computed: int = 0
    media: float = 0.0
    """Seconds of sources."""
    written: int = 0
    lanes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Seconds by (lane, kind of lane, state)."""
    events: Counter[str] = field(default_factory=Counter)
    """By kind, see `gpupipe.events`."""
    warnings: Counter[str] = field(default_factory=Counter)
    """By code, see `Journal`."""
    ended: Counter[str] = field(default_factory=Counter)
    """Runs by how they ended: done, failed, stopped."""
    errors: Counter[str] = field(default_factory=Counter)
    """By class."""

    def add(self, reading: Reading, journal: Journal) -> None:
        """Counts a run as it is now."""
        self.frames += reading.frames
        self.computed += reading.computed + reading.redone
        self.media += reading.media
        self.written += reading.written
        for lane in reading.lanes:
            for state, seconds in lane.seconds.items():
                self.lanes[lane.name, lane.kind, state] += seconds  # type: ignore[assignment]  # a Counter holds floats too
        self.events.update(reading.counts)
        for entry in tuple(journal.entries.values()):
            self.warnings[entry.code] += entry.count

    def copy(self) -> Totals:
        """To add to without changing this one."""
        return Totals(
            self.frames, self.computed, self.media, self.written, self.lanes.copy(), self.events.copy(),
            self.warnings.copy(), self.ended.copy(), self.errors.copy(),
        )  # fmt: skip
