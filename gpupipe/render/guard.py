"""Minds memory while a run lasts: steps back where it is short, so that the run finishes, and says so each time."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from gpupipe.device import release
from gpupipe.device.host import LEAST, Room, rooms, short_of_memory, trim
from gpupipe.errors import GpupipeError, ShortMemoryError, first_line
from gpupipe.plan.segments import stage_of
from gpupipe.render.watch import current

if TYPE_CHECKING:
    from gpupipe.engines.choice import Choice
    from gpupipe.events import Kind
    from gpupipe.plan import Plan, Step
    from gpupipe.render.board import Board

INTERVAL = 0.5
"""Seconds between looks at the host's memory."""
SETTLE = 4.0
"""Seconds after a step back before the next alarm: what it frees is not seen at once."""
LOW = (0.08, 2 << 30)
"""Share of the memory there is, and bytes at most: with less than that left a session ends after its segment, with less
than LEAST the run goes back at once."""


class Guard:
    """Holds the plan of a run as it is now, and makes it smaller. Use as a context manager: entered, it watches.

    Steps are taken in this order: fewer sessions, smaller batches, smaller tiles. No pixel changes, but that
    tiles of a network change the last bit of a float, and so a code here and there by one.

    Args:
        plan: as it was made.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._watch = current()
        self._board: Board | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._quiet = 0.0
        """Seconds for which no alarm counts."""
        self._helpless = False
        """Memory is low, and it was told that nothing can be done."""

    def tidy(self) -> None:
        """Between attempts: frees what the last one left in cycles, and what torch keeps of the GPU for later."""
        gc.collect()
        release(self.plan.device)
        trim()

    def on(self, board: Board | None) -> None:
        """Which lanes can be told to be fewer; None while there are none."""
        with self._lock:
            self._board = board

    def chosen(self, choices: tuple[Choice, ...]) -> None:
        """What the first attempt's networks run on: those that follow go on with the same file."""
        with self._lock:
            self.plan = replace(self.plan, choices=choices)

    def step_back(self, why: str) -> bool:
        """Makes the plan smaller; says whether there was anything left to give up. No lane may be running."""
        with self._lock:
            step = smaller(self.plan)
            if step is None:
                return False
            self.plan, kind, words = step
            self._quiet = SETTLE
        self._tell(kind, f"{words}, after: {why}")
        return True

    def _tell(self, kind: Kind, words: str) -> None:
        if self._watch is not None:
            self._watch.happened(kind, words)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._work, name="memory", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(INTERVAL):
            self._quiet -= INTERVAL
            if self._quiet <= 0:
                self.look(rooms(self.plan.host_limit))

    def look(self, places: list[Room]) -> None:
        """What is to be done about the memory that is left in each."""
        now = min(places, key=lambda place: place.left / _bytes(LOW, place), default=None)
        if now is None or now.left >= _bytes(LOW, now):
            self._helpless = False
            return
        words = f"{now.left >> 20} MiB of {now.total >> 20} MiB are left"
        with self._lock:
            board, self._quiet = self._board, SETTLE
            fewer = board is not None and board.allowed > 1
            if board is not None and fewer:
                self.plan = replace(self.plan, sessions=board.fewer())
        if board is None or not fewer:
            if not self._helpless:  # once, for as long as it lasts
                self._tell("memory-low", f"{words}, and nothing here can take less")
            self._helpless = True
        elif now.left >= _bytes(LEAST, now):
            self._tell("fewer-sessions", f"{board.allowed} sessions, when a segment is done: {words}")
        else:
            self._tell("fewer-sessions", f"{board.allowed} sessions, at once: {words}")
            board.interrupt(GoneBackError())


class GoneBackError(ShortMemoryError):
    """The alarm has made the plan smaller already: the lanes only have to be started again."""

    def __init__(self) -> None:
        super().__init__("memory is short")


def again(guard: Guard, error: Exception) -> None:
    """After an attempt that ended in `error`, with its lanes gone: returns where another is worth it.

    Then the guard has a smaller plan for it, and the error is rid of all that it kept alive. Else it is raised:
    as it is, or as ShortMemoryError where a library's own error says that memory was short.
    """
    if not short_of_memory(error):
        raise error
    _bare(error)
    if isinstance(error, GoneBackError) or guard.step_back(first_line(error)[:160]):
        return
    if isinstance(error, GpupipeError):
        raise error
    hint = "give it more memory, smaller pictures, or fewer sessions and tiles"
    raise ShortMemoryError(f"out of memory: {first_line(error)[:160]}", where=guard.plan.device, hint=hint) from None


def _bare(error: BaseException) -> None:
    """Frames that an error has passed through hold pictures."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__


def smaller(plan: Plan) -> tuple[Plan, Kind, str] | None:
    """(the plan with one step less, what became less, in words); None where nothing is left to give up."""
    if plan.sessions > 1:
        sessions = (plan.sessions + 1) // 2
        return replace(plan, sessions=sessions), "fewer-sessions", f"{sessions} of {plan.sessions} sessions"
    if plan.device != "cpu" and plan.batch > 1:
        batch = plan.batch // 2
        return replace(plan, batch=batch), "smaller-batches", f"batches of {batch} instead of {plan.batch}"
    for number, step in enumerate(plan.steps):
        if (less := _tiles(step)) is not None:
            steps = (*plan.steps[:number], less, *plan.steps[number + 1 :])
            return replace(plan, steps=steps), "smaller-tiles", f"smaller tiles in {step.name}"
    return None


def _tiles(step: Step) -> Step | None:
    if step.kind != "stage":
        return None
    settings = stage_of(step).smaller()
    return None if settings is None else replace(step, settings=settings.model_dump(mode="json"))


def _bytes(limit: tuple[float, int], now: Room) -> int:
    return min(int(limit[0] * now.total), limit[1])
