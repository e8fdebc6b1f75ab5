"""What a run noticed: warnings with counts and positions, so that nothing is lost in silence."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(slots=True)
class Entry:
    """One kind of event, counted."""

    code: str
    """Stable machine-readable name, such as `pts-repaired`."""
    message: str
    """The first occurrence, in words."""
    count: int = 0
    places: list[str] = field(default_factory=list)
    """Where it happened (segment, pts, byte, stream), the first `Journal.KEEP` of them."""

    def __str__(self) -> str:
        if self.count <= 1:
            return self.message
        shown = ", ".join(self.places[:5])
        more = ", ..." if self.count > len(self.places[:5]) else ""
        return (
            f"{self.message} [{self.count} times: {shown}{more}]" if shown else f"{self.message} [{self.count} times]"
        )


_WITHIN: ContextVar[str] = ContextVar("within", default="")


@contextmanager
def within(place: str) -> Iterator[None]:
    """While it is entered, warnings of this thread name that place before their own, such as `segment 3, pts 512`."""
    before = _WITHIN.set(place)
    try:
        yield
    finally:
        _WITHIN.reset(before)


class Journal:
    """Collects warnings by code.

    Args:
        listener: told of the first of each code at once.
        speaker: told of what takes long, in lines that warn of nothing and are not kept.
    """

    KEEP = 50

    def __init__(
        self, listener: Callable[[Entry], None] | None = None, speaker: Callable[[str], None] | None = None
    ) -> None:
        self.entries: dict[str, Entry] = {}
        self._listener, self._speaker = listener, speaker
        self._lock = threading.Lock()  # lanes of a run report side by side

    def warn(self, code: str, message: str, *, place: str | None = None, count: int = 1) -> None:
        """Records `count` events of kind `code`; the message of the first one stands for all."""
        place = ", ".join(filter(None, (_WITHIN.get(), place))) or None
        with self._lock:
            first, entry = self._add(code, message, place, count)
        if first and self._listener is not None:
            self._listener(entry)

    def _add(self, code: str, message: str, place: str | None, count: int) -> tuple[bool, Entry]:
        entry = self.entries.get(code)
        first = entry is None
        if entry is None:
            entry = self.entries[code] = Entry(code, message)
        entry.count += count
        if place is not None and len(entry.places) < self.KEEP:
            entry.places.append(place)
        return first, entry

    def say(self, line: str) -> None:
        """Something people should see while they wait."""
        if self._speaker is not None:
            self._speaker(line)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry) -> None:
        """Records what another journal had collected."""
        self.warn(entry.code, entry.message, count=entry.count)
        with self._lock:
            mine = self.entries[entry.code]
            mine.places += entry.places[: max(0, self.KEEP - len(mine.places))]


class Notes(Journal):
    """The journal of one lane: what is told to it goes to the run's own too, and can be taken segment by segment."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(speaker=journal.say)
        self._journal = journal

    def warn(self, code: str, message: str, *, place: str | None = None, count: int = 1) -> None:
        """See `Journal`."""
        super().warn(code, message, place=place, count=count)
        self._journal.warn(code, message, place=place, count=count)

    def take(self) -> tuple[Entry, ...]:
        """What came since the last time."""
        with self._lock:
            taken, self.entries = tuple(self.entries.values()), {}
        return taken
