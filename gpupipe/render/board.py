"""Which segments are taken, what of them is done, and the finished parts in the order of the source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpupipe.render.feed import check_stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.media.segments import Segment
    from gpupipe.render.lanes import Crew
    from gpupipe.render.progress import StopFlag

POLL = 0.2
"""Seconds between looks at the stop flag while the writer waits."""


@dataclass(frozen=True, slots=True)
class Part:
    """Encoded pictures of one segment, in its order."""

    packets: list[Packet]
    frames: int
    """Pictures that went into the encoder for it."""
    encoder: Encoder
    """Kept alive for its template."""


@dataclass(slots=True)
class _Pending:
    parts: dict[int, Part] = field(default_factory=dict)
    total: int | None = None
    """Parts of the segment; None until its runner has counted them."""


class Board:
    """Shared by the runners, who take segments, and the writer, who gets parts in order.

    Runners stay at most `ahead` segments before the writer, so what waits is bounded.
    """

    def __init__(self, crew: Crew, segments: tuple[Segment, ...], ahead: int) -> None:
        self._crew, self.segments, self._ahead = crew, segments, ahead
        self._taken = self._written = 0
        self._pending: dict[int, _Pending] = {}
        self._tickets = crew.meeting()
        """Where runners wait for the writer."""
        self._results = crew.meeting()
        """Where the writer waits for parts."""

    def take(self) -> int | None:
        """Index of the next segment to render; None when all are taken. Waits while too far ahead."""
        with self._tickets:
            self._tickets.until(lambda: self._taken >= len(self.segments) or self._taken < self._written + self._ahead)
            if self._taken >= len(self.segments):
                return None
            self._taken += 1
            return self._taken - 1

    def deliver(self, index: int, number: int, part: Part) -> None:
        """The `number`-th part of a segment is encoded."""
        with self._results:
            self._pending.setdefault(index, _Pending()).parts[number] = part
            self._results.notify_all()

    def complete(self, index: int, total: int) -> None:
        """A segment has `total` parts, some of which may still be encoding."""
        with self._results:
            self._pending.setdefault(index, _Pending()).total = total
            self._results.notify_all()

    def in_order(self, stop: StopFlag) -> Iterator[tuple[int, Part]]:
        """(segment index, part) in the order of the source. Raises the first error of any lane."""
        for index in range(len(self.segments)):
            number = 0
            while (part := self._next(index, number, stop)) is not None:
                yield index, part
                number += 1
            with self._tickets:
                self._written += 1
                self._tickets.notify_all()

    def _next(self, index: int, number: int, stop: StopFlag) -> Part | None:
        def known() -> bool:
            pending = self._pending.get(index)
            return pending is not None and (number in pending.parts or pending.total == number)

        while True:
            check_stop(stop)
            with self._results:
                self._results.wait_for(lambda: self._crew.halted or known(), POLL)
                self._crew.check()
                if known():
                    part = self._pending[index].parts.pop(number, None)
                    if part is None:
                        del self._pending[index]
                    return part
