"""How many encoders are open at once: as many as runners ask for, or as the GPU gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.errors import NoSessionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.codecs.base import Encoder
    from gpupipe.device.base import Lane
    from gpupipe.journal import Journal
    from gpupipe.render.board import Board
    from gpupipe.render.lanes import Crew


class EncoderSessions:
    """Opens an encoder for each segment. Where no more are to be had, segments wait for one that closes.

    Consumer cards have a limit of sessions that no query tells: it is found by being refused, and what is open then is
    the most from there on. Segments open theirs in the order in which they were taken, because the writer waits for the
    first of them: a later one that waits for the writer must not hold what the first one needs.

    Args:
        make: opens an encoder on a lane.
        board: knows the order.
        crew: whose lanes wait here.
        journal: told when there are fewer than asked for.
    """

    def __init__(self, make: Callable[[Lane], Encoder], board: Board, crew: Crew, journal: Journal) -> None:
        self._make, self._board, self._journal = make, board, journal
        self._meeting = crew.meeting()
        self._open = 0
        self._given: list[Encoder] = []
        self._most: int | None = None

    def open(self, index: int, lane: Lane) -> Encoder:
        """The encoder of a segment; waits for its turn. Raises NoSessionError where this run holds none itself."""
        line = self._board.line
        while True:
            with self._meeting:
                self._meeting.until(lambda: line[0] == index and self._room(), "an encoder session")
                others = self._open
                self._open += 1
            try:
                encoder = self._make(lane)
            except NoSessionError:
                self._left()
                if others == 0:
                    raise
                self._fewer(others)
                continue
            except BaseException:
                self._left()
                raise
            with self._meeting:
                line.popleft()
                self._given.append(encoder)
                self._meeting.notify_all()
            return encoder

    def close(self, encoder: Encoder) -> None:
        """A segment is encoded. The encoder's template can still be asked for."""
        encoder.close()
        with self._meeting:
            self._given.remove(encoder)
        self._left()

    def abandon(self) -> None:
        """After all lanes have ended: closes what those that failed left open, so that a second try finds it free."""
        while self._given:
            self._given.pop().close()

    def _room(self) -> bool:
        return self._most is None or self._open < self._most

    def _left(self) -> None:
        with self._meeting:
            self._open -= 1
            self._meeting.notify_all()

    def _fewer(self, most: int) -> None:
        with self._meeting:
            self._most = most
        word = "session" if most == 1 else "sessions"
        message = f"the encoder opens {most} {word} and no more: so many segments are encoded at once, the others wait"
        self._journal.warn("encoder-sessions", message)
