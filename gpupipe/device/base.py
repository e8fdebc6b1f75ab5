"""What a lane of work is, on whichever device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Event(Protocol):
    """A point in a lane's work."""

    def synchronize(self) -> None:
        """Waits on the host until the work before it is done."""
        ...


class Lane(Protocol):
    """Work of one device in order. One thread gives it work at a time."""

    device: str
    """`cpu` or `cuda:N`."""
    handle: int
    """The cudaStream_t that other libraries are given; 0 on the CPU."""

    def active(self) -> AbstractContextManager[object]:
        """While it is entered, torch's work of this thread goes to this lane."""
        ...

    def record(self) -> Event | None:
        """Marks the work given so far; None on the CPU, where it is done already."""
        ...

    def wait(self, event: object | None) -> None:
        """Makes work given from now on wait for an event of any lane; the host does not wait."""
        ...

    def synchronize(self) -> None:
        """Waits on the host until all work given is done."""
        ...
