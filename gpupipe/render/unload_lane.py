"""From a GPU to an encoder on the CPU: pictures are libav's own frames before their encoder asks for the next one.

x264 begins a picture when it is given one. Whatever else its lane did, copy pictures or wait for the GPU, x264's
threads would stand still for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.codecs.libav import encoder_name
from gpupipe.codecs.native import new_frame
from gpupipe.device import enter_device, open_lane
from gpupipe.device.cuda import PinnedRing
from gpupipe.render.encode_lane import Job

if TYPE_CHECKING:
    from gpupipe.plan import Plan
    from gpupipe.render.board import Board
    from gpupipe.render.lanes import Channel

AHEAD = 8
"""Pictures that wait for an encoder at most, beside the batches that the GPU holds for it."""


class UnloadLane:
    """Copies computed batches to the host, gives their slots back and makes a frame of each picture.

    Args:
        plan: what is run; it has a download.
        board: told which segment an error belongs to.
        jobs: computed batches.
        pictures: gets them one by one; closed when no more come.
    """

    def __init__(self, plan: Plan, board: Board, jobs: Channel[Job], pictures: Channel[Job]) -> None:
        self._board, self._jobs, self._pictures = board, jobs, pictures
        self._lane = open_lane(plan.device)
        download = next(step for step in plan.steps if step.kind == "download")
        self._ring = PinnedRing(download.source, self._lane, slots=2, rows=plan.batch)
        self._name = encoder_name(plan.encoder.encoder, plan.encoder.input_format)

    def work(self) -> None:
        """What the lane does until no more jobs come."""
        enter_device(self._lane.device)
        while (job := self._jobs.get()) is not None:
            with self._board.rendering(job.index):
                self._unload(job)
        self._pictures.close()

    def _unload(self, job: Job) -> None:
        if job.batch is None:
            self._pictures.put(job)
            return
        batch = self._ring.download(job.batch)
        if batch.ready is not None:
            batch.ready.synchronize()  # type: ignore[attr-defined]  # an event of the lane
        job.free()
        for row, pts in enumerate(batch.pts):
            frame = new_frame(batch.format, self._name, batch.planes, row)
            one = batch.with_(
                pts=(pts,), durations=batch.durations[row : row + 1], planes=(), native=frame, ready=None
            )  # fmt: skip
            self._pictures.put(Job(job.index, job.number, one, more=row + 1 < batch.valid))
