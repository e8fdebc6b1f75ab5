"""A board that keeps what is done: every finished segment becomes a file, in whatever order they finish."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from gpupipe.errors import MediaError
from gpupipe.render.board import POLL, Board
from gpupipe.render.feed import check_stop
from gpupipe.render.lanes import HaltedError
from gpupipe.render.watch import WAIT, enter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from gpupipe.journal import Entry
    from gpupipe.plan import Plan
    from gpupipe.render.board import Part
    from gpupipe.render.lanes import Crew
    from gpupipe.render.pieces import Piece, PieceWriter
    from gpupipe.render.progress import StopFlag


class Store(Protocol):
    """Where segments' files go: a ledger, or what stands for one on another machine."""

    plan: Plan
    pieces: dict[int, Piece]
    """Segments that are done."""

    def writer(self, index: int) -> PieceWriter:
        """A new file for a segment."""
        ...

    def writing(self) -> AbstractContextManager[None]:
        """What the system says of a file, as a MediaError."""
        ...

    def finished(self, index: int, piece: Piece) -> None:
        """A segment has its name."""
        ...


class _Open:
    """A segment that is being written; its parts may come out of order."""

    def __init__(self, writer: PieceWriter) -> None:
        self.writer, self.lock = writer, threading.Lock()
        self.early: dict[int, Part] = {}
        self.next, self.total = 0, -1
        self.notes: Sequence[Entry] | None = None


class Shelf(Board):
    """Meets `Board` for runners: hands segments out, the first and then the longest, and writes each to the ledger.

    Args:
        crew: whose lanes work here.
        ledger: gets the files.
        wanted: indices of the segments to render.
        runners: see `Board`.
    """

    def __init__(self, crew: Crew, ledger: Store, wanted: Sequence[int], runners: int = 1) -> None:
        segments = ledger.plan.segments
        super().__init__(crew, segments, len(segments), runners=runners)
        if crew.watch is not None:
            crew.watch.expect(len(segments), len(ledger.pieces))
        self.begun = True  # the join makes the template: no encoder has to be kept
        self._ledger = ledger
        self._todo = deque(sorted(wanted, key=lambda n: (n > 0, -segments[n].frames, n)))
        self._left = len(self._todo)
        self._open: dict[int, _Open] = {}
        self._computed = 0

    def take(self) -> int | None:
        """See `Board`."""
        with self._results:
            if self._crew.halted:
                raise HaltedError
            if self._one_too_many() or not self._todo:
                return None
            index = self._todo.popleft()
            self.line.append(index)
            with self.rendering(index):
                self._open[index] = _Open(self._ledger.writer(index))
        if self._crew.watch is not None:
            self._crew.watch.begin(index, self.segments[index])
        return index

    def wait_for_room(self, index: int) -> None:  # noqa: ARG002  files have room
        """See `Board`."""
        self._crew.stand()

    def deliver(self, index: int, number: int, part: Part) -> None:
        """See `Board`."""
        one = self._open[index]
        with self._results:
            self._computed += part.frames
            if self._crew.watch is not None:
                self._crew.watch.computed(index, part.frames)
        with one.lock:
            one.early[number] = part
            self._settle(index, one)

    def complete(self, index: int, total: int) -> None:
        """See `Board`."""
        one = self._open[index]
        with one.lock:
            one.total = total
            self._settle(index, one)

    def noted(self, index: int, entries: Sequence[Entry]) -> None:
        """See `Board`."""
        one = self._open[index]
        with one.lock:
            one.notes = entries
            self._settle(index, one)

    def _settle(self, index: int, one: _Open) -> None:
        """Writes what is next, and seals a segment that is whole."""
        with self._ledger.writing():
            while (part := one.early.pop(one.next, None)) is not None:
                one.writer.add(part)
                one.next += 1
            if one.next != one.total or one.notes is None:
                return
            self._check(index, one.writer)
            piece = one.writer.seal(one.notes)
        self._ledger.finished(index, piece)
        with self._results:
            if self._crew.watch is not None:
                self._crew.watch.finish(index)
            del self._open[index]
            self._left -= 1
            self._results.notify_all()

    def _check(self, index: int, writer: PieceWriter) -> None:
        if writer.packets != writer.frames:
            place = f"segment {index} at pts {self.segments[index].start}"
            raise MediaError(f"the encoder gave {writer.packets} pictures for {writer.frames}", where=place)

    def computed(self, stop: StopFlag) -> Iterator[int]:
        """Pictures encoded so far, some times a second, until all is done. Raises the first error of any lane."""
        while True:
            check_stop(stop)
            with self._results:
                before = enter(WAIT + "segments")
                self._results.wait_for(lambda: self._crew.halted or not self._left, POLL)
                enter(before)
                self._crew.check()
                done, left = self._computed, self._left
            yield done
            if not left:
                return

    def abandon(self) -> None:
        """Takes away what is half written; after all lanes have ended."""
        for one in self._open.values():
            one.writer.discard()
