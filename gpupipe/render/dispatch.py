"""Hands the missing segments of a ledger to whoever renders them elsewhere: other GPUs, other machines."""

from __future__ import annotations

import statistics
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpupipe.errors import DeviceError, GpupipeError, StoppedError, first_line
from gpupipe.events import happened
from gpupipe.render.feed import check_stop
from gpupipe.render.seat import SeatLostError
from gpupipe.render.watch import WAIT, current, enter

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.journal import Journal
    from gpupipe.render.ledger import Ledger
    from gpupipe.render.pieces import Piece
    from gpupipe.render.progress import Meter, StopFlag
    from gpupipe.render.seat import Office, Seat

POLL = 0.1
"""Seconds between looks at the stop flag."""
FAILURES, LOSSES = 2, 4
"""How often a segment may fail, and how many seats may be lost with it, before it is to blame."""
SLOW, PATIENCE = 60.0, 5.0
"""Seconds, and times of what is usual, that a segment takes before an idle seat is given it too."""


@dataclass(slots=True)
class _Record:
    """What a segment has met."""

    failed: list[Seat] = field(default_factory=list)
    losses: int = 0
    twice: bool = False
    """Whether a second seat was given it since the first one takes long."""


@dataclass(frozen=True, slots=True)
class _Errand:
    """A segment at a seat."""

    seat: Seat
    index: int
    since: float = field(default_factory=time.monotonic)


class Dispatch:
    """One pass over what a ledger lacks: longest segments first, to whoever has the most room.

    A segment that fails is tried once more, by another seat where there is one. A seat that fails as a device, or is
    lost, gets nothing more; what it had goes to the others. Towards the end, a segment that takes far longer than
    others did, as on a machine that hangs, is given to a second seat too, and whoever is first counts.

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
        self._busy: dict[Future[Piece], _Errand] = {}
        self._paces: list[float] = []
        """Seconds a picture of every segment that was rendered, its wait at the seat included."""
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
            while self._todo or any(one.index not in self._ledger.pieces for one in self._busy.values()):
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
            self._todo.remove(pair[1])
            self._give(*pair)
        if not self._todo and (late := self._late()) is not None:
            seat, slow = late
            self._record(slow.index).twice = True
            self._tell(f"{slow.seat.name} takes long over segment {slow.index}: {seat.name} is given it too")
            self._give(seat, slow.index)

    def _give(self, seat: Seat, index: int) -> None:
        self._busy[seat.render(index)] = _Errand(seat, index)
        if (watch := current()) is not None:
            watch.begin(index, self._ledger.plan.segments[index])

    def _late(self) -> tuple[Seat, _Errand] | None:
        """A seat that has nothing to do, and the oldest segment elsewhere that takes far longer than others did."""
        idle = next((seat for seat in self._seats if not self._load(seat)), None)
        if idle is None or not self._paces:
            return None
        now, usual = time.monotonic(), statistics.median(self._paces)
        for one in sorted(self._busy.values(), key=lambda one: one.since):
            if one.index in self._ledger.pieces or self._record(one.index).twice:
                continue
            frames = max(1, self._ledger.plan.segments[one.index].frames)
            if now - one.since > max(SLOW, PATIENCE * usual * frames):
                return idle, one
        return None

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
        return sum(one.seat is seat for one in self._busy.values()) / seat.places

    def _record(self, index: int) -> _Record:
        return self._records.setdefault(index, _Record())

    def _settle(self, done: Future[Piece]) -> None:
        errand = self._busy.pop(done)
        seat, index = errand.seat, errand.index
        try:
            piece = done.result()
        except (SeatLostError, StoppedError) as error:
            self._lost(seat, index, error)
        except Exception as error:  # noqa: BLE001  whatever it was, somebody else may do it
            self._failed(seat, index, error)
        else:
            self._done(errand, piece)

    def _done(self, errand: _Errand, piece: Piece) -> None:
        index = errand.index
        if index in self._ledger.pieces:
            return  # another seat was faster
        self._paces.append((time.monotonic() - errand.since) / max(1, piece.frames))
        self._ledger.finished(index, piece)
        for entry in piece.warnings:
            self._journal.add(entry)
        if (watch := current()) is not None:
            watch.finish(index)

    def _again(self, index: int) -> None:
        """Puts a segment back, unless it is done or another seat still has it."""
        if index not in self._ledger.pieces and all(one.index != index for one in self._busy.values()):
            self._todo.appendleft(index)
            self._record(index).twice = False

    def _lost(self, seat: Seat, index: int, error: Exception) -> None:
        self._again(index)
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
        if len(record.failed) >= FAILURES and index not in self._ledger.pieces:
            raise error
        happened("retry", f"segment {index} on {seat.name}: {first_line(error)}")
        self._again(index)
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
        meter.reach(done + sum(self._running().values()))

    def _running(self) -> dict[int, int]:
        """Pictures computed of each segment that is not done; of one that two seats have, by the faster."""
        found: dict[int, int] = {}
        for seat in self._seats:
            mine = {one.index for one in self._busy.values() if one.seat is seat}
            for index, frames in seat.shown().items():
                if index in mine and index not in self._ledger.pieces:
                    found[index] = max(frames, found.get(index, 0))
        if (watch := current()) is not None:
            for index, frames in found.items():
                watch.show(index, frames)
        return found
