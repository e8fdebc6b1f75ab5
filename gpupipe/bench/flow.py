"""Runs a plan, or a part of it, and times it from when all is open."""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpupipe.errors import MediaError
from gpupipe.journal import Journal
from gpupipe.render import StopFlag, render
from gpupipe.render.segmented import in_lanes, start_lanes
from gpupipe.render.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.device.base import Lane
    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan


@dataclass(frozen=True, slots=True)
class Run:
    """One timed run."""

    frames: int
    began: float
    """On the clock of `time.monotonic`: when all was open."""
    ended: float
    startup: float
    """Seconds before `began`."""
    cores: float
    """CPU seconds of the process over seconds."""
    closing: float = 0.0
    """Seconds behind `ended` until all was closed."""

    @property
    def rate(self) -> float:
        """Frames a second from `began` on."""
        return self.frames / (self.ended - self.began)

    @property
    def whole_rate(self) -> float:
        """Frames a second with start-up and end."""
        return self.frames / (self.ended - self.began + self.startup + self.closing)


class Stopwatch:
    """Begins when it is made."""

    def __init__(self) -> None:
        self._made = self._began = time.monotonic()
        self._cpu = time.process_time()
        self._ended: tuple[float, float] | None = None

    def open(self) -> None:
        """All is open: frames begin to flow."""
        self._began, self._cpu = time.monotonic(), time.process_time()

    def lap(self) -> None:
        """Frames are done; the last call counts as the end, whatever is tidied up before `run`."""
        self._ended = time.monotonic(), time.process_time()

    def run(self, frames: int, startup: float | None = None) -> Run:
        """The last frame is done. `startup` says when all was open, where `open` was not called."""
        now = time.monotonic(), time.process_time()
        ended, cpu = self._ended or now
        cores = (cpu - self._cpu) / (ended - self._began)
        began = self._began if startup is None else self._made + startup
        return Run(frames, began, ended, began - self._made, cores, now[0] - ended)


class Discard:
    """Stands in for an encoder: waits for each batch and drops it."""

    settings: Any = None

    def encode(self, batch: FrameBatch) -> list[Packet]:
        """Waits until the batch is computed."""
        if batch.ready is not None:
            batch.ready.synchronize()  # type: ignore[attr-defined]  # an event of its lane
        return []

    def finish(self) -> list[Packet]:
        """Nothing is held."""
        return []

    def template(self, first: object) -> Any:
        """There is no bitstream to describe."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


def unwritten(plan: Plan, make: Callable[[Lane], Encoder], stop: StopFlag) -> Run:
    """Runs all of a plan but the muxer; what `make` gives stands where the encoder does."""
    frames, journal = 0, Journal()
    with ExitStack() as stack:
        watch = Stopwatch()
        if in_lanes(plan):
            board = start_lanes(plan, stack, journal, make, stop)
            watch.open()
            for _, done in board.in_order(stop):
                frames += done.frames
        else:
            session = Session(plan, stack, make, journal=journal, stop=stop, copied=lambda _: None)
            watch.open()
            for batch in session.pictures:
                session.encoder.encode(batch)
                frames += batch.valid
            session.encoder.finish()
        run = watch.run(frames)
    gc.collect()  # as `render` does: codecs and their threads would live on
    return run


def written(plan: Plan, stop: StopFlag) -> Run:
    """Carries a plan out, until its file has its name: memory is tidied up after that, as after an encoder alone.

    The file of the time before is removed first: to free some gigabytes of it is no part of a run.
    """
    plan.output.unlink(missing_ok=True)
    watch = Stopwatch()
    result = render(plan, overwrite=False, journal=Journal(), stop=stop, progress=lambda _: watch.lap())
    return watch.run(result.frames, result.startup)


def expect(run: Run, frames: int, what: str) -> Run:
    """The run, or MediaError where it lost or made frames: then its rate means nothing."""
    if run.frames != frames:
        raise MediaError(f"{run.frames} frames came out, not {frames}", where=what, hint="see `gpupipe run`")
    return run
