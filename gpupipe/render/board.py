"""Which segments are taken, what of them is done, and the finished parts in the order of the source."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gpupipe.codecs.intra import copied
from gpupipe.errors import GpupipeError
from gpupipe.journal import within
from gpupipe.plan.host import WAITING
from gpupipe.render.feed import check_stop
from gpupipe.render.lanes import HaltedError
from gpupipe.render.watch import WAIT, enter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpupipe.codecs.base import Encoder, Keep, Packet
    from gpupipe.journal import Entry
    from gpupipe.media.segments import Segment
    from gpupipe.render.lanes import Crew
    from gpupipe.render.progress import StopFlag
    from gpupipe.render.slabs import Slabs

PARTS = "encoded parts"
"""Name of the queue to the writer."""
SPENT = 4
"""Parts at most that are written and still held."""
POLL = 0.2
"""Seconds between looks at the stop flag while the writer waits."""
WAITING_BYTES = WAITING * 11 // 16
"""Of encoded pictures beyond which runners wait. What they have in flight then, and the segment that is being written,
come on top of it: together not much more than WAITING, however slow the writer is."""


@dataclass(frozen=True, slots=True)
class Part:
    """Encoded pictures of one segment, in its order."""

    packets: list[Packet]
    pts: tuple[int, ...]
    """Of the pictures that went into the encoder since the part before; their packets may come in later parts."""
    encoder: Encoder | None
    """Kept alive for its template; None where the header is written already (see `Board.begun`)."""
    size: int = field(init=False)
    """Bytes of the packets."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", sum([packet.size for packet in self.packets]))

    @property
    def frames(self) -> int:
        """Pictures that went into the encoder for it."""
        return len(self.pts)


@dataclass(slots=True)
class _Pending:
    parts: dict[int, Part] = field(default_factory=dict)
    total: int | None = None
    """Parts of the segment; None until its runner has counted them."""
    size: int = 0
    """Bytes of the packets in `parts`."""


class _Parts:
    """How many parts wait for the writer; a queue to whoever watches."""

    def __init__(self) -> None:
        self.waiting = 0

    def __len__(self) -> int:
        return self.waiting


class Board:
    """Shared by the runners, who take segments, and the writer, who gets parts in order.

    Runners stay at most `ahead` segments before the writer, and wait while more than `limit` bytes wait for it, so what
    waits is bounded. The segment that is being written always gets on: nothing else makes room. `first` is the first
    segment that is still to be done, `runners` how many take segments; what waits lies in `slabs`, where there are any.
    """

    def __init__(
        self, crew: Crew, segments: tuple[Segment, ...], ahead: int, limit: int = WAITING_BYTES, *,
        first: int = 0, runners: int = 1, slabs: Slabs | None = None,
    ) -> None:  # fmt: skip
        self._crew, self.segments, self._ahead, self._limit = crew, segments, ahead, limit
        self._slabs = slabs
        self._first = self._taken = self._written = first
        self.allowed = self._runners = runners
        """Runners that may go on taking segments; those at work."""
        self.begun = False
        """Set by the writer when the output's header is written: no template of an encoder is needed any more."""
        self.line: deque[int] = deque()
        """Segments that were taken and have no encoder yet, in order; see `EncoderSessions`."""
        self.failed: set[int] = set()
        """Segments in which lanes met errors, for whoever tries them again."""
        self._waiting = 0
        """Bytes that wait for the writer."""
        self._pending: dict[int, _Pending] = {}
        self._tickets = crew.meeting()
        """Where runners wait for the writer."""
        self._parts = _Parts()
        if (watch := crew.watch) is not None:
            watch.expect(len(segments))
            watch.queue(PARTS, self._parts)
        self._results = crew.meeting()
        """Where the writer waits for parts."""
        self._spent: deque[Part] = deque(maxlen=SPENT)
        """Written, and not given up by the writer: for each packet that takes Python's lock twice, and all wait for
        the writer."""
        self._next_part = first, 0
        """The one that it takes next: of a segment, by its number there."""

    def take(self) -> int | None:
        """Index of the next segment to render; None when all are taken, or this runner is one too many.

        Waits while too far ahead.
        """
        with self._tickets:
            self._tickets.until(self._may_take, "the writer")
            if self._one_too_many() or self._taken >= len(self.segments):
                return None
            self._taken += 1
            index = self._taken - 1
            self.line.append(index)
        if self._crew.watch is not None:
            self._crew.watch.begin(index, self.segments[index])
        return index

    @property
    def written(self) -> int:
        """Segments that the writer has got to their ends, those before the first included."""
        return self._written

    def _may_take(self) -> bool:
        over = self._taken >= len(self.segments) or self._runners > self.allowed
        return over or self._taken < self._written + self._ahead

    def _one_too_many(self) -> bool:
        """Whether the runner that asks is to leave; callers take turns."""
        if self._runners <= self.allowed:
            return False
        self._runners -= 1
        return True

    def fewer(self) -> int:
        """One runner less takes segments from now on; returns how many still do."""
        with self._tickets:
            self.allowed = max(1, min(self.allowed, self._runners) - 1)
            self._tickets.notify_all()
        return self.allowed

    def interrupt(self, error: Exception) -> None:
        """Ends all lanes at once; the writer gets `error`."""
        self._crew.halt(error)

    def wait_for_room(self, index: int) -> None:
        """For runners, before more of a segment is computed. Encoders never wait: what they are given is delivered.

        Raises HaltedError where the run is over.
        """
        self._crew.stand()
        if not self._has_room(index):
            with self._tickets:
                self._tickets.until(lambda: self._has_room(index), "the writer")

    def _has_room(self, index: int) -> bool:
        if self._waiting < self._limit:
            return True
        pending = self._pending.get(index)
        return index == self._written and (pending is None or pending.size < self._limit // 8)

    def keep(self, index: int) -> Keep:
        """Where bitstreams of a segment go until they are written. To be asked for each batch: what is written goes."""
        self._spent.clear()
        return copied if self._slabs is None else partial(self._slabs.keep, index)

    def deliver(self, index: int, number: int, part: Part) -> None:
        """The `number`-th part of a segment is encoded."""
        with self._results:
            if self._crew.watch is not None:
                self._crew.watch.computed(index, part.frames)
            pending = self._pending.setdefault(index, _Pending())
            pending.parts[number] = part
            pending.size += part.size
            self._waiting += part.size
            self._parts.waiting += 1
            self._tell(index, number)

    @contextmanager
    def rendering(self, index: int) -> Iterator[None]:
        """Around work on a segment: warnings and errors name it where there are several; see `failed`."""
        name = f"segment {index}" if len(self.segments) > 1 else ""
        try:
            with within(name):
                yield
        except HaltedError:
            raise
        except Exception as error:
            self.failed.add(index)
            if name and isinstance(error, GpupipeError):
                error.where = ", ".join(filter(None, (name, error.where)))
            raise

    def noted(self, index: int, entries: Sequence[Entry]) -> None:
        """All warnings of a segment, after its last part was given to an encoder. They are in the journal already."""

    def complete(self, index: int, total: int) -> None:
        """A segment has `total` parts, some of which may still be encoding."""
        with self._results:
            if self._crew.watch is not None:
                self._crew.watch.finish(index)
            self._pending.setdefault(index, _Pending()).total = total
            self._tell(index, total)

    def _tell(self, index: int, number: int) -> None:
        """Wakes the writer if that is what it waits for: of all that comes few parts are."""
        if self._next_part == (index, number):
            self._results.notify_all()

    def in_order(self, stop: StopFlag) -> Iterator[tuple[int, Part]]:
        """(segment index, part) in the order of the source. Raises the first error of any lane."""
        for index in range(self._first, len(self.segments)):
            number = 0
            while (part := self._next(index, number, stop)) is not None:
                yield index, part
                if self._slabs is not None:
                    self._spent.append(part)
                number += 1
            with self._tickets:
                self._written += 1
                self._tickets.notify_all()
        self._spent.clear()

    def _next(self, index: int, number: int, stop: StopFlag) -> Part | None:
        def known() -> bool:
            pending = self._pending.get(index)
            return pending is not None and (number in pending.parts or pending.total == number)

        while True:
            check_stop(stop)
            with self._results:
                self._next_part = index, number
                if not known():
                    before = enter(WAIT + PARTS)
                    self._results.wait_for(lambda: self._crew.halted or known(), POLL)
                    enter(before)
                self._crew.check()
                if not known():
                    continue
                pending = self._pending[index]
                part = pending.parts.pop(number, None)
                if part is None:
                    del self._pending[index]
                    if self._slabs is not None:
                        self._slabs.close(index)
                    return None
                pending.size -= part.size
                full = self._waiting >= self._limit
                self._waiting -= part.size
                self._parts.waiting -= 1
            if full:
                with self._tickets:
                    self._tickets.notify_all()
            return part
