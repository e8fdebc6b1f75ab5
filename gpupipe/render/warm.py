"""Lanes that stay open between segments: files, decoders, graphs and networks, warm for whatever comes next."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from gpupipe.device.host import short_of_memory
from gpupipe.errors import StoppedError, first_line
from gpupipe.journal import Journal
from gpupipe.render.codecs import encoder_maker
from gpupipe.render.guard import Guard
from gpupipe.render.kept import abandon
from gpupipe.render.lanes import HaltedError
from gpupipe.render.segmented import start_lanes
from gpupipe.render.shelf import Shelf
from gpupipe.render.short import short_memory

if TYPE_CHECKING:
    from gpupipe.plan import Plan
    from gpupipe.render.board import Board
    from gpupipe.render.lanes import Crew
    from gpupipe.render.pieces import Piece
    from gpupipe.render.shelf import Store
    from gpupipe.render.watch import Watch


class Desk(Shelf):
    """A shelf for segments that are asked for one by one, by any thread."""

    def __init__(self, crew: Crew, store: Store) -> None:
        super().__init__(crew, store, ())
        self._pieces = store.pieces
        self.smaller: bool | None = None
        """Whether lanes with less memory follow; None while these work, or nobody has looked."""

    def take(self) -> int | None:
        """See `Board`; waits until one is asked for."""
        while True:
            with self._results:
                self._results.until(lambda: bool(self._todo), "a segment")
            if (index := super().take()) is not None:  # else another lane was faster
                return index

    def ask(self, index: int) -> Piece:
        """Has a segment rendered, and waits for it. Raises HaltedError where the lanes ended before it was done."""
        with self._results:
            self._todo.append(index)
            self._results.notify_all()
            self._results.until(lambda: index in self._pieces, "a segment")
            return self._pieces[index]

    @property
    def halted(self) -> bool:
        """Whether the lanes have ended."""
        return self._crew.halted

    @property
    def error(self) -> BaseException | None:
        """Why they have."""
        return self._crew.error

    def shown(self) -> dict[int, int]:
        """Pictures computed of each segment that is not done."""
        return {index: one.writer.frames for index, one in tuple(self._open.items())}


class Warm:
    """Renders segments of a plan, as many side by side as it has sessions. Lanes open with the first one and stay.

    A failure ends the lanes: the segment at fault raises, the others of that moment are begun again on new lanes. Where
    memory was short, new lanes take less, and nobody is at fault as long as that can be had.

    Args:
        plan: what is rendered.
        store: gets the segments' files.
        watch: sees the lanes.
    """

    def __init__(self, plan: Plan, store: Store, watch: Watch | None = None) -> None:
        self._watch = watch
        self._guard, self._store = Guard(plan), store
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._stack = ExitStack()
        self._desk: Desk | None = None

    def open(self) -> None:
        """Opens the lanes before there is a segment; raises what opening raises."""
        with short_memory():
            self._opened()

    def render(self, index: int) -> Piece:
        """Renders one segment, whatever other threads ask for meanwhile. Raises what `render.render` raises."""
        self._store.pieces.pop(index, None)
        with short_memory():
            while True:
                desk = self._opened()
                try:
                    return desk.ask(index)
                except HaltedError:
                    if (piece := self._store.pieces.get(index)) is not None:
                        return piece
                    if self._stop.is_set() or desk.error is None:
                        raise StoppedError("stopped") from None
                    if not self._smaller(desk) and (index in desk.failed or not desk.failed):
                        raise desk.error from None

    def _smaller(self, desk: Desk) -> bool:
        """Whether lanes ended for lack of memory and open again with less; the first who asks has it so."""
        with self._lock:
            return self._judged(desk)

    def _judged(self, desk: Desk) -> bool:
        if desk.smaller is None:
            error = desk.error
            desk.smaller = error is not None and short_of_memory(error) and self._guard.step_back(first_line(error))
        return desk.smaller

    def shown(self) -> dict[int, int]:
        """Pictures computed of each segment that is not done."""
        desk = self._desk
        return {} if desk is None or desk.halted else desk.shown()

    def close(self) -> None:
        """Ends all lanes; segments that are not done raise StoppedError."""
        self._stop.set()
        with self._lock:
            self._close()

    def _opened(self) -> Desk:
        with self._lock:
            if self._stop.is_set():
                raise StoppedError("stopped")
            if self._desk is None or self._desk.halted:
                if self._desk is not None:
                    self._judged(self._desk)
                self._close()
                self._open()
            assert self._desk is not None  # `_open` raised where there is none
            return self._desk

    def _open(self) -> None:
        desks: list[Desk] = []

        def shelf(crew: Crew) -> Board:
            desks.append(Desk(crew, self._store))
            return desks[0]

        with ExitStack() as stack:
            if self._watch is not None:
                self._watch.lane("warm", "open")
                stack.callback(self._watch.leave)
            plan = self._guard.plan
            stack.callback(self._guard.tidy)
            stack.callback(abandon, desks)
            make = encoder_maker(plan)
            start_lanes(plan, stack, Journal(), make, self._stop, shelf=shelf)
            self._stack = stack.pop_all()
        if self._watch is not None:
            self._watch.leave()
        self._desk = desks[0]

    def _close(self) -> None:
        self._desk = None
        self._stack.close()
