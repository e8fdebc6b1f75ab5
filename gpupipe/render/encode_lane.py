"""Encode lanes behind NVDEC: threads that do nothing but encode what runners have computed."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpupipe.device import enter_device, open_lane
from gpupipe.render.board import Board, Part
from gpupipe.render.codecs import encode
from gpupipe.render.sessions import EncoderSessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.device.base import Lane
    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan
    from gpupipe.render.lanes import Channel


@dataclass(frozen=True, slots=True)
class Job:
    """Computed pictures on their way to an encode lane; without them, the end of a segment."""

    index: int
    number: int
    batch: FrameBatch | None = None
    free: Callable[[], None] = lambda: None
    """Gives the slot back in which the batch lies."""
    more: bool = False
    """The next job has more pictures of the same part."""


class EncodeLane:
    """Takes computed batches, encodes them and gives their slots back.

    Args:
        plan: what is run.
        board: gets the parts.
        jobs: of all runners for an encoder to which every picture stands alone, else of one runner; of an `UnloadLane`
            for an encoder on the CPU.
        encoders: gives each segment an encoder of its own; or opens the one of this lane, where pictures stand alone.
    """

    def __init__(
        self, plan: Plan, board: Board, jobs: Channel[Job], encoders: EncoderSessions | Callable[[Lane], Encoder]
    ) -> None:
        self._board, self._jobs = board, jobs
        # Its kernels are small beside a batch's, and slots wait for them; decoders' are smaller, and engines wait.
        self._lane = open_lane(plan.device, priority=-1)
        # One that serves the whole run takes its memory now, before decoders run and would wait for it.
        self._encoders = encoders if isinstance(encoders, EncoderSessions) else None
        self._encoder: Encoder | None = None if isinstance(encoders, EncoderSessions) else encoders(self._lane)
        self._had_one = False
        self._packets: list[Packet] = []
        self._pts: tuple[int, ...] = ()

    def work(self) -> None:
        """What the lane does until no more jobs come."""
        enter_device(self._lane.device)
        while (job := self._jobs.get()) is not None:
            with self._board.rendering(job.index):
                self._do(job)

    def _do(self, job: Job) -> None:
        if self._encoder is None and self._encoders is not None:
            if self._had_one:  # an encoder of PyAV's refers to itself, and an x264 holds some hundred MB
                gc.collect()
            self._encoder, self._had_one = self._encoders.open(job.index, self._lane), True
        encoder = self._encoder
        assert encoder is not None
        if job.batch is not None:
            self._packets += encode(encoder, job.batch, self._board.keep(job.index))
            self._pts += job.batch.pts
            job.free()
            if not job.more:
                self._deliver(job, encoder)
            return
        self._packets = encoder.finish()
        self._deliver(job, encoder)
        self._board.complete(job.index, job.number + 1)
        if self._encoders is not None:
            self._encoder = None
            self._encoders.close(encoder)

    def _deliver(self, job: Job, encoder: Encoder) -> None:
        part = Part(self._packets, self._pts, None if self._board.begun else encoder)
        self._packets, self._pts = [], ()
        self._board.deliver(job.index, job.number, part)
