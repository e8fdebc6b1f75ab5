"""Threads that end together: bounded channels between them, and the first error of any is the error of all."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from gpupipe.render.watch import WAIT, current, enter

if TYPE_CHECKING:
    from collections.abc import Callable

Item = TypeVar("Item")
STATES = {"runner": "decode", "unload": "download", "encode": "encode"}
"""What lanes do that wait for nobody, by what they are called: `runner-0` and so on."""
STAND = 0.005
"""Seconds between looks whether a run that stands still may go on."""


class HaltedError(Exception):
    """A lane is told to end because another one failed or the run was stopped; never seen outside."""


class Crew:
    """Lanes (threads) of one run. Use as a context manager: leaving it halts and joins every lane."""

    def __init__(self) -> None:
        self.watch = current()
        self.halted = False
        self.error: BaseException | None = None
        """The first one."""
        self._lock = threading.Lock()
        self._meetings: list[Meeting] = []
        self._threads: list[threading.Thread] = []
        self._queues: list[deque[Any]] = []

    def meeting(self, lock: threading.Lock | None = None) -> Meeting:
        """A new place where lanes wait for each other; several may have one lock."""
        meeting = Meeting(self, lock)
        with self._lock:
            self._meetings.append(meeting)
        return meeting

    def queue(self, name: str, items: deque[Any]) -> None:
        """Items between lanes, which go when these have ended; the watch is told their name."""
        self._queues.append(items)
        if self.watch is not None:
            self.watch.queue(name, items)

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Runs `work` in a lane of its own; its name says what it does: a key of `STATES` and a number."""
        thread = threading.Thread(target=self._lane, args=(name, work), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)  # one that could not be started cannot be joined

    def _lane(self, name: str, work: Callable[[], None]) -> None:
        if self.watch is not None:
            self.watch.lane(name, STATES.get(name.partition("-")[0], "decode"))
        try:
            work()
        except HaltedError:
            pass
        except BaseException as error:  # noqa: BLE001  whatever it was, the others must end and the caller know
            self.halt(error)
        enter("done")

    def halt(self, error: BaseException | None = None) -> None:
        """Ends all lanes at their next wait."""
        with self._lock:
            if self.error is None:
                self.error = error
            self.halted = True
            meetings = list(self._meetings)
        for meeting in meetings:
            with meeting:
                meeting.notify_all()

    def stand(self) -> None:
        """For lanes between two batches: waits while the run is held still. Raises HaltedError where it is over."""
        if self.watch is not None and self.watch.held:
            before = enter(WAIT + "the audit")
            while self.watch.held and not self.halted:
                time.sleep(STAND)
            enter(before)
        if self.halted:
            raise HaltedError

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
        for items in self._queues:  # the watch, which outlives the run, has them too
            items.clear()
        _emptied(self.error)


def _emptied(error: BaseException | None) -> None:
    """Frees what lanes that ended by an error held: decoders, memory of a GPU.

    The error keeps their frames, which lead to the crew, and so to the error: nothing but a collection would.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class Meeting(threading.Condition):
    """A condition whose waiters wake when the crew is halted. Few lanes share one, so few are woken for nothing."""

    def __init__(self, crew: Crew, lock: threading.Lock | None = None) -> None:
        super().__init__(lock or threading.Lock())
        self._crew = crew

    def until(self, ready: Callable[[], bool], what: str = "another lane") -> None:
        """Waits, with the lock held, until `ready`; for `what`, in words. Raises HaltedError where the run is over."""
        if not ready():
            before = enter(WAIT + what)
            while not ready():
                if self._crew.halted:
                    raise HaltedError
                self.wait()
            enter(before)
        if self._crew.halted:
            raise HaltedError


class Channel(Generic[Item]):
    """A bounded queue between lanes of a crew; both ends wait, and wake when the crew is halted."""

    def __init__(self, crew: Crew, capacity: int, name: str = "computed batches") -> None:
        self.crew, self._capacity = crew, capacity
        lock = threading.Lock()
        # Two places, each with lanes of one kind: of many only one is woken for an item, and none for nothing.
        self._room, self._filled = crew.meeting(lock), crew.meeting(lock)
        self._items: deque[Item] = deque()
        self._closed = False
        crew.queue(name, self._items)

    def put(self, item: Item) -> None:
        """Waits for room."""
        with self._room:
            self._room.until(lambda: len(self._items) < self._capacity, "an encode lane")
            self._items.append(item)
            self._filled.notify()

    def get(self) -> Item | None:
        """The oldest item; None when the channel is closed and empty."""
        with self._filled:
            self._filled.until(lambda: bool(self._items) or self._closed, "pictures")
            if not self._items:
                return None
            item = self._items.popleft()
            self._room.notify()
            return item

    def close(self) -> None:
        """No more items will come."""
        with self._filled:
            self._closed = True
            self._filled.notify_all()
