"""Hands the missing segments of a ledger to whoever renders them elsewhere: other GPUs, other machines."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gpupipe.errors import DeviceError, GpupipeError, StoppedError, first_line
from gpupipe.events import happened
from gpupipe.render.feed import check_stop
from gpupipe.render.watch import WAIT, current, enter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpupipe.journal import Journal
    from gpupipe.render.ledger import Ledger
    from gpupipe.render.pieces import Piece
    from gpupipe.render.progress import Meter, StopFlag

POLL = 0.1
"""Seconds between looks at the stop flag."""
FAILURES, LOSSES = 2, 4
"""How often a segment may fail, and how many seats may be lost with it, before it is to blame."""


class SeatLostError(Exception):
    """A seat is gone; the segments that it had were not at fault. Never seen outside."""


class Seat(Protocol):
    """Somebody who renders segments."""

    name: str
    """For people: `cuda:1`, `10.0.0.7, GPU 2`."""
    places: int
    """Segments that it is given at once."""

    def render(self, index: int) -> Future[Piece]:
        """Begins a segment: done when its file lies in the ledger, or failed by SeatLostError or its own error."""
        ...

    def shown(self) -> Mapping[int, int]:
        """Pictures computed so far of segments that are not done; does not wait."""
        ...

    def close(self) -> None:
        """Ends it; nothing is given to it any more."""
        ...


class Office(Protocol):
    """Where seats come from."""

    def fresh(self) -> Sequence[Seat]:
        """Seats that are ready now and were not before; does not wait.

        Raises GpupipeError where all that it gave are lost and no more are to be expected.
        """
        ...

    def lost(self, seat: Seat) -> None:
        """It is told that a seat is gone, or not to be used any more."""
        ...


@dataclass(slots=True)
class _Record:
    """What a segment has met."""

    failed: list[Seat] = field(default_factory=list)
    losses: int = 0


class Dispatch:
    """One pass over what a ledger lacks: longest segments first, to whoever has the most room.

    A segment that fails is tried once more, by another seat where there is one. A seat that fails as a device, or is
    lost, gets nothing more; what it had goes to the others.

    Args:
        ledger: gets the segments.
        office: gives seats, from the beginning or later.
        journal: told what was noticed while segments were rendered.
        tell: told of seats that come and go, in words.
    """

    def __init__(self, ledger: Ledger, office: Office, journal: Journal, tell: Callable[[str], None]) -> None:
        self._ledger, self._office, self._journal, self._tell = ledger, office, journal, tell
        segments = ledger.plan.segments
        self._todo = deque(sorted(ledger.missing(), key=lambda n: (-segments[n].frames, n)))
        self._records: dict[int, _Record] = {}
        self._busy: dict[Future[Piece], tuple[Seat, int]] = {}
        self._seats: list[Seat] = []
        self._error: Exception | None = None
        """The last one that took a seat away."""

    def run(self, stop: StopFlag, meter: Meter) -> None:
        """Until nothing is missing. Raises the error of a segment that cannot be rendered, or of the last seat."""
        watch = current()
        if watch is not None:
            watch.expect(len(self._ledger.plan.segments))
        before = enter(WAIT + "segments")
        try:
            while self._todo or self._busy:
                check_stop(stop)
                self._welcome(meter)
                self._hand_out()
                if not self._busy:  # nobody is ready yet, and of nothing `wait` returns at once
                    time.sleep(POLL)
                for done in wait(self._busy, timeout=POLL, return_when=FIRST_COMPLETED).done:
                    self._settle(done)
                self._count(meter)
        finally:
            enter(before)
            for seat in self._seats:
                seat.close()

    def _welcome(self, meter: Meter) -> None:
        try:
            fresh = self._office.fresh()
        except GpupipeError as error:
            raise error from self._error
        if fresh and not self._seats:
            meter.open()
        self._seats += fresh

    def _hand_out(self) -> None:
        while self._todo and (pair := self._match()) is not None:
            seat, index = pair
            self._todo.remove(index)
            self._busy[seat.render(index)] = seat, index
            if (watch := current()) is not None:
                watch.begin(index, self._ledger.plan.segments[index])

    def _match(self) -> tuple[Seat, int] | None:
        """A seat with room, and the longest segment that did not fail there, or failed everywhere."""
        for seat in sorted(self._seats, key=self._load):
            if self._load(seat) >= 1:
                break
            for index in self._todo:
                failed = self._record(index).failed
                if seat not in failed or all(one in failed for one in self._seats):
                    return seat, index
        return None

    def _load(self, seat: Seat) -> float:
        return sum(one is seat for one, _ in self._busy.values()) / seat.places

    def _record(self, index: int) -> _Record:
        return self._records.setdefault(index, _Record())

    def _settle(self, done: Future[Piece]) -> None:
        seat, index = self._busy.pop(done)
        try:
            piece = done.result()
        except (SeatLostError, StoppedError) as error:
            self._lost(seat, index, error)
        except Exception as error:  # noqa: BLE001  whatever it was, somebody else may do it
            self._failed(seat, index, error)
        else:
            self._ledger.finished(index, piece)
            for entry in piece.warnings:
                self._journal.add(entry)
            if (watch := current()) is not None:
                watch.finish(index)

    def _lost(self, seat: Seat, index: int, error: Exception) -> None:
        self._todo.appendleft(index)
        if seat in self._seats:
            self._drop(seat, error)
        record = self._record(index)
        record.losses += 1
        if record.losses >= LOSSES:
            place = f"segment {index}"
            raise DeviceError(f"{record.losses} workers were lost while they rendered it", where=place) from error

    def _failed(self, seat: Seat, index: int, error: Exception) -> None:
        record = self._record(index)
        record.failed.append(seat)
        self._ledger.log("failed", segments=[index], why=str(error) or type(error).__name__, seat=seat.name)
        if len(record.failed) >= FAILURES:
            raise error
        happened("retry", f"segment {index} on {seat.name}: {first_line(error)}")
        self._todo.appendleft(index)
        if isinstance(error, DeviceError) and seat in self._seats and len(self._seats) > 1:
            self._drop(seat, error)

    def _drop(self, seat: Seat, error: Exception) -> None:
        self._error = error
        self._seats.remove(seat)
        self._ledger.log("lost", seat=seat.name, why=first_line(error))
        self._tell(f"{seat.name} is lost: {first_line(error)}; its segments go to others")
        seat.close()
        self._office.lost(seat)

    def _count(self, meter: Meter) -> None:
        done = sum(piece.frames for piece in self._ledger.pieces.values())
        meter.reach(done + sum(frames for _, frames in self._running()))

    def _running(self) -> Iterator[tuple[int, int]]:
        watch = current()
        for seat in self._seats:
            mine = {index for one, index in self._busy.values() if one is seat}
            for index, frames in seat.shown().items():
                if index in mine:
                    yield index, frames
                    if watch is not None:
                        watch.show(index, frames)
