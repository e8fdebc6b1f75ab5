"""Who renders segments elsewhere, as `dispatch` sees them: other GPUs, other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from gpupipe.render.pieces import Piece


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
