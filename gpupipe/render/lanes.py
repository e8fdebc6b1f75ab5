"""Threads that end together: bounded channels between them, and the first error of any is the error of all."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Item = TypeVar("Item")


class HaltedError(Exception):
    """A lane is told to end because another one failed or the run was stopped; never seen outside."""


class Crew:
    """Lanes (threads) of one run. Use as a context manager: leaving it halts and joins every lane."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        """Guards everything that lanes share; notified on every change."""
        self.halted = False
        self.error: BaseException | None = None
        """The first one."""
        self._threads: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Runs `work` in a lane of its own."""

        def lane() -> None:
            try:
                work()
            except HaltedError:
                pass
            except BaseException as error:  # noqa: BLE001  whatever it was, the others must end and the caller know
                self.halt(error)

        thread = threading.Thread(target=lane, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def halt(self, error: BaseException | None = None) -> None:
        """Ends all lanes at their next wait."""
        with self.changed:
            if self.error is None:
                self.error = error
            self.halted = True
            self.changed.notify_all()

    def wait(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        """Waits until `ready`; called with `changed` held. Raises HaltedError where the run is over."""
        if not self.changed.wait_for(lambda: self.halted or ready(), timeout):
            return False
        if self.halted:
            raise HaltedError
        return True

    def check(self) -> None:
        """Raises the first error of any lane."""
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.halt()
        for thread in self._threads:
            thread.join()


class Channel(Generic[Item]):
    """A bounded queue between lanes of a crew; both ends wait, and wake when the crew is halted."""

    def __init__(self, crew: Crew, capacity: int) -> None:
        self.crew, self._capacity = crew, capacity
        self._items: deque[Item] = deque()
        self._closed = False

    def put(self, item: Item) -> None:
        """Waits for room."""
        with self.crew.changed:
            self.crew.wait(lambda: len(self._items) < self._capacity)
            self._items.append(item)
            self.crew.changed.notify_all()

    def get(self) -> Item | None:
        """The oldest item; None when the channel is closed and empty."""
        with self.crew.changed:
            self.crew.wait(lambda: bool(self._items) or self._closed)
            if not self._items:
                return None
            item = self._items.popleft()
            self.crew.changed.notify_all()
            return item

    def close(self) -> None:
        """No more items will come."""
        with self.crew.changed:
            self._closed = True
            self.crew.changed.notify_all()
