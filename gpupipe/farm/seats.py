"""An actor of a Ray cluster as a seat: segments are asked of it, and come into the ledger."""

from __future__ import annotations

import re
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gpupipe.errors import MediaError, first_line
from gpupipe.render.pieces import BadPieceError, Piece, take_in
from gpupipe.render.seat import SeatLostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpupipe.render.ledger import Ledger

CHUNK = 32 << 20
"""Bytes of a segment that are sent at once: what a node and this machine hold of it in memory."""
LOOK = 2.0
"""Seconds between questions how far it is."""
GOODBYE = 5.0
"""Seconds that an actor has to tidy up."""


class RaySeat:
    """See `seat.Seat`. Its actor lives on one node."""

    def __init__(self, ray: Any, actor: Any, name: str, *, places: int, ledger: Ledger) -> None:
        self.name, self.places = name, places
        self._ray, self._actor, self._ledger = ray, actor, ledger
        self.shared = False
        """Whether its segments lie in the ledger already."""
        self._threads = ThreadPoolExecutor(places, thread_name_prefix="seat")
        self._closed, self._until = False, 0.0
        self._closing: Any = None
        self._counts: dict[int, int] = {}
        self._counting: Any = None
        self._counted = time.monotonic()

    def render(self, index: int) -> Future[Piece]:
        """See `Seat`."""
        return self._threads.submit(self._render, index)

    def _render(self, index: int) -> Piece:
        answer = self._get(None if self._closed else self._actor.render.remote(index))
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Piece)
        # Two seats may have been given it; neither waits for the other, which may hang.
        return answer if self.shared else self._ledger.pieces.get(index) or self._fetch(index, answer)

    def _get(self, reference: Any) -> Any:
        """Waits for an answer as long as the seat is in use."""
        while not self._closed:
            try:
                return self._ray.get(reference, timeout=1)
            except self._ray.exceptions.GetTimeoutError:
                continue
            except Exception as error:
                raise SeatLostError(why(error)) from error
        raise SeatLostError("it was closed")

    def _fetch(self, index: int, piece: Piece) -> Piece:
        """Writes a segment as it comes, looks at all of it, and gives it its name."""
        starts = range(0, piece.bytes, CHUNK)
        chunks = (self._get(self._actor.chunk.remote(index, start, CHUNK)) for start in starts)
        try:
            with self._ledger.writing():
                found = take_in(self._ledger.path(index), chunks, self._ledger.digest)
        except BadPieceError as error:
            raise MediaError(f"a segment did not arrive whole: {error}", where=self.name) from None
        self._actor.drop.remote(index)
        return found

    def shown(self) -> Mapping[int, int]:
        """See `Seat`; asked for every LOOK seconds."""
        now = time.monotonic()
        with suppress(Exception):  # whatever is wrong with the node, `render` will say so
            if self._counting is not None:
                if self._ray.wait([self._counting], timeout=0)[0]:
                    self._counts, self._counting = self._ray.get(self._counting), None
            elif now - self._counted >= LOOK:
                self._counting, self._counted = self._actor.shown.remote(), now
        return self._counts

    def close(self) -> None:
        """See `Seat`; the actor gets a moment to tidy up, see `gone`."""
        if self._closed:
            return
        self._closed, self._until = True, time.monotonic() + GOODBYE
        with suppress(Exception):
            self._closing = self._actor.close.remote()
        # What still waits for a thread ends as lost: cancelled, nobody would hear of it.
        self._threads.shutdown(wait=False)

    def gone(self) -> bool:
        """Whether the actor of a closed seat has ended; it is made to when its moment is over."""
        with suppress(Exception):  # it has ended by itself, as its node may have
            if time.monotonic() < self._until and not self._ray.wait([self._closing], timeout=0)[0]:
                return False
            self._ray.kill(self._actor)
        return True


_REASON = re.compile(r"(?:\w+\.)*\w*Error: ")
"""A line by which a Python traceback ends."""
_WORDS = {
    "ActorUnavailableError": "the connection to its worker broke",
    "ActorDiedError": "its worker ended",
    "ActorUnschedulableError": "the node is gone, or has too little to give",
    "NodeDiedError": "the node is gone",
    "OutOfMemoryError": "its worker was ended since the node's memory was full",
}


def why(error: Exception) -> str:
    """What Ray says in many lines, in a few words."""
    cause = getattr(error, "cause", None) or error
    if (words := _WORDS.get(type(error).__name__)) is None:
        return f"{type(cause).__name__}: {first_line(cause)}"
    told = [line.strip() for line in str(error).splitlines()]
    reason = next((line for line in told if _REASON.match(line)), "")
    return f"{words} ({reason})" if reason else words
