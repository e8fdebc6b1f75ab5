"""What a run is doing while it does it: lanes, segments, queues, bytes. Progress, metrics and the report read it.

Written by the lanes, each its own clock, without locks: a switch costs well under a microsecond. Whoever reads may see
a lane in the middle of a switch, which is off by one switch's time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from gpupipe.events import Kind, listen

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from gpupipe.media.segments import Segment
    from gpupipe.stages.base import ModelUse

P = ParamSpec("P")
R = TypeVar("R")

MOST_EVENTS = 200
"""Of which the words are kept; all are counted."""
WAIT = "wait for "
"""How the states begin in which a lane does nothing but wait for another."""


class LaneClock:
    """How long a lane has been in which state; written by its own thread only."""

    def __init__(self, name: str, state: str) -> None:
        self.name, self.state = name, state
        self._seconds: dict[str, float] = {}
        self._since = time.perf_counter()

    def enter(self, state: str) -> str:
        """From now on in that state; returns the one before."""
        before, now = self.state, time.perf_counter()
        self._seconds[before] = self._seconds.get(before, 0.0) + now - self._since
        self._since, self.state = now, state
        return before

    def read(self) -> LaneReading:
        """Up to now; any thread may ask."""
        seconds, state = dict(self._seconds), self.state
        if state != "done":
            seconds[state] = seconds.get(state, 0.0) + max(0.0, time.perf_counter() - self._since)
        return LaneReading(self.name, state, seconds)


@dataclass(frozen=True, slots=True)
class LaneReading:
    """A lane at one moment; seconds in each state since it began."""

    name: str
    state: str
    seconds: dict[str, float]

    @property
    def kind(self) -> str:
        """`runner`, `encode`, `writer` or `run`."""
        return self.name.partition("-")[0]

    @property
    def busy(self) -> float:
        """Seconds in which it did not wait for another lane."""
        return sum(s for state, s in self.seconds.items() if not state.startswith(WAIT))

    @property
    def occupancy(self) -> float:
        """Share of its time in which it did not wait for another lane, 0 to 1."""
        total = sum(self.seconds.values())
        return self.busy / total if total > 0 else 0.0


@dataclass(slots=True)
class SegmentReading:
    """A segment that has been begun."""

    index: int
    frames: int
    """Pictures of it; 0 where nobody knows."""
    shown: int = 0
    """Pictures computed."""
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Happening:
    """See `gpupipe.events`."""

    elapsed: float
    """Seconds since the run's start."""
    kind: Kind
    detail: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A run at one moment."""

    elapsed: float
    """Seconds since its start."""
    frames: int
    """In the output so far."""
    computed: int
    """Those, and the ones of later segments that wait to be written."""
    total: int | None
    media: float
    """Seconds of the source that are done."""
    written: int
    """Bytes of encoded video handed to the muxer."""
    lanes: tuple[LaneReading, ...]
    running: tuple[SegmentReading, ...]
    """Segments begun and not finished."""
    finished: int
    segments: int
    queues: dict[str, int]
    """Items that wait in each queue between lanes."""
    counts: dict[str, int]
    """Events of a kind, see `gpupipe.events`."""
    redone: int = 0
    """Pictures that were computed and lost when the run began anew from what was written."""


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)
_CLOCK: ContextVar[LaneClock | None] = ContextVar("clock", default=None)


def enter(state: str) -> str:
    """The lane of this thread goes on in that state; returns the one before. Nothing where nobody watches."""
    clock = _CLOCK.get()
    return clock.enter(state) if clock is not None else ""


def clocked(state: str, call: Callable[P, R]) -> Callable[P, R]:
    """`call`, whose time counts as that state."""
    if _WATCH.get() is None:
        return call

    @wraps(call)
    def timed(*args: P.args, **kwargs: P.kwargs) -> R:
        before = enter(state)
        try:
            return call(*args, **kwargs)
        finally:
            enter(before)

    return timed


def current() -> Watch | None:
    """The watch of the run that this thread belongs to."""
    return _WATCH.get()


@dataclass(slots=True)
class Watch:
    """One run; entered by the thread that carries it out."""

    frames: int = 0
    total: int | None = None
    media: float = 0.0
    written: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    happenings: list[Happening] = field(default_factory=list)
    """What was counted there, in words."""
    told: Callable[[Happening], None] | None = None
    """Called at each of them, by whichever thread it happens in."""
    models: dict[str, ModelUse] = field(default_factory=dict)
    """Networks that run, by name."""
    held: bool = False
    """Lanes are to stand still between two batches; see `Crew.stand`."""
    _began: float = field(default_factory=time.perf_counter)
    _ended: float | None = None
    _lanes: list[LaneClock] = field(default_factory=list)
    _segments: dict[int, SegmentReading] = field(default_factory=dict)
    _all: int = 0
    _finished: int = 0
    _computed: int = 0
    _redone: int = 0
    _queues: list[tuple[str, Sized]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lane(self, name: str, state: str) -> LaneClock:
        """A clock for this thread, which belongs to the run from now on."""
        clock = LaneClock(name, state)
        self._lanes.append(clock)
        _WATCH.set(self)
        _CLOCK.set(clock)
        listen(self.happened)
        return clock

    def leave(self) -> None:
        """This thread belongs to no run any more."""
        enter("done")
        _CLOCK.set(None)
        _WATCH.set(None)
        listen(None)

    def happened(self, kind: Kind, detail: str) -> None:
        """Counts an event; any thread may tell."""
        found = Happening(time.perf_counter() - self._began, kind, detail)
        with self._lock:
            self.counts[kind] += 1
            if len(self.happenings) < MOST_EVENTS:
                self.happenings.append(found)
        if self.told is not None:
            self.told(found)

    def queue(self, name: str, items: Sized) -> None:
        """A queue between lanes."""
        self._queues.append((name, items))

    def expect(self, segments: int, finished: int = 0) -> None:
        """How many segments the run has, and how many of them are done already."""
        self._all, self._finished = segments, finished

    def begin(self, index: int, segment: Segment) -> None:
        """A lane took a segment."""
        self._segments[index] = SegmentReading(index, segment.frames)

    def computed(self, index: int, frames: int) -> None:
        """More of a segment is done; callers take turns."""
        self._computed += frames
        if (found := self._segments.get(index)) is not None:
            found.shown += frames

    def show(self, index: int, frames: int) -> None:
        """So many pictures of a segment are computed elsewhere."""
        if (found := self._segments.get(index)) is not None:
            found.shown = frames

    def finish(self, index: int) -> None:
        """A segment is done."""
        if self._segments.pop(index, None) is not None:
            self._finished += 1

    def again(self, kept: int) -> None:
        """Lanes begin anew: of what they computed `kept` pictures count."""
        self._segments.clear()
        self._redone += max(0, self._computed - kept)
        self._computed = kept
        self._queues.clear()

    def over(self) -> None:
        """The run has ended; its time stands still."""
        self._ended = time.perf_counter()

    def read(self) -> Reading:
        """Up to now; any thread may ask."""
        return Reading(
            elapsed=(self._ended or time.perf_counter()) - self._began,
            frames=self.frames,
            computed=max(self.frames, self._computed),
            total=self.total,
            media=self.media,
            written=self.written,
            lanes=_merged([clock.read() for clock in tuple(self._lanes)]),
            running=tuple(sorted(self._segments.values(), key=lambda s: s.index)),
            finished=self._finished,
            segments=self._all,
            queues=_depths(self._queues),
            counts=dict(self.counts),
            redone=self._redone,
        )


def _merged(lanes: list[LaneReading]) -> tuple[LaneReading, ...]:
    """Lanes that began anew are one with those of the same name before them."""
    found: dict[str, LaneReading] = {}
    for lane in lanes:
        before = found.get(lane.name)
        if before is None:
            found[lane.name] = lane
            continue
        both = {state: before.seconds.get(state, 0.0) + lane.seconds.get(state, 0.0)
                for state in {**before.seconds, **lane.seconds}}  # fmt: skip
        found[lane.name] = LaneReading(lane.name, lane.state, both)
    return tuple(found.values())


def _depths(queues: list[tuple[str, Sized]]) -> dict[str, int]:
    depths: dict[str, int] = {}
    for name, items in tuple(queues):
        depths[name] = depths.get(name, 0) + len(items)
    return depths
