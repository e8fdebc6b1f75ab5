"""Doubles of seats: they render nothing, and fail or vanish as they are told."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace

from gpupipe.render.pieces import Piece


class LedgerDouble:
    """Remembers what was finished."""

    def __init__(self, frames: list[int]) -> None:
        self.plan = SimpleNamespace(segments=tuple(SimpleNamespace(frames=n) for n in frames), sessions=1)
        self.pieces: dict[int, Piece] = {}
        self.logged: list[tuple[str, dict]] = []

    def missing(self) -> list[int]:
        return [n for n in range(len(self.plan.segments)) if n not in self.pieces]

    def finished(self, index: int, piece: Piece) -> None:
        assert index not in self.pieces
        self.pieces[index] = piece

    def log(self, event: str, **what: object) -> None:
        self.logged.append((event, what))


@dataclass(eq=False)
class SeatDouble:
    """`behave` gets the index: returns None for a segment done, or raises; `Ellipsis` leaves it unanswered."""

    name: str
    behave: object = lambda _: None
    places: int = 1
    given: list[int] = field(default_factory=list)
    closed: bool = False
    futures: list[Future] = field(default_factory=list)

    def render(self, index: int) -> Future:
        assert not self.closed
        self.given.append(index)
        future: Future = Future()
        self.futures.append(future)
        try:
            if self.behave(index) is not ...:
                future.set_result(Piece("d", 10, 0, 9, 100, "h"))
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future

    def shown(self) -> dict[int, int]:
        return {}

    def close(self) -> None:
        self.closed = True


class OfficeDouble:
    """Gives its seats at the first question; raises where all are lost."""

    def __init__(self, *seats: SeatDouble, error: Exception | None = None) -> None:
        self.seats, self.left, self.error = list(seats), len(seats), error

    def fresh(self) -> list[SeatDouble]:
        seats, self.seats = self.seats, []
        if not self.left and self.error is not None:
            raise self.error
        return seats

    def lost(self, seat: SeatDouble) -> None:
        assert seat.closed
        self.left -= 1
