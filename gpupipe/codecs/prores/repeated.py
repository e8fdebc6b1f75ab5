"""Batches of up to so many frames coded by two graph replays.

Called piece by piece the coder takes about 300 launches a batch, some 5 ms of Python, however many frames it has: one
process then codes 200 batches a second on all lanes together, and far fewer where decoders want Python too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.codecs.prores.coder import Coded, Coder
from gpupipe.device.replay import Replay

if TYPE_CHECKING:
    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat

Planes = tuple[torch.Tensor, ...]


class Repeated:
    """A coder for one lane, which takes batches one after another.

    Args:
        coder: does the work; `graphable` on a GPU.
        source: of the frames.
        rows: frames that come at once, at most.
        lane: where.
    """

    def __init__(self, coder: Coder, source: FrameFormat, rows: int, lane: Lane) -> None:
        self.rows, self._coder = rows, coder
        room = self._room = rows * (-(-coder.frame_bytes // 4) * 4)
        shapes = source.pixels.plane_shapes(source.width, source.height)
        with torch.inference_mode(), lane.active():
            planes = tuple(torch.zeros((rows, *s), dtype=torch.uint16, device=lane.device) for s in shapes)
        self._planes: Planes = planes
        choose = self._choose = Replay(lambda: coder.choose(planes), lane)
        self._code = Replay(lambda: coder.code(choose.result, room), lane, pool=choose.pool)

    def takes(self, planes: Planes) -> bool:
        """Whether `code` can be given these: no more rows than it has, and no alpha, whose shapes are not known."""
        return len(planes) == len(self._planes) and len(planes[0]) <= self.rows

    def code(self, planes: Planes) -> Coded:
        """As `choose` and `write` of the coder, with the same bytes; `data` holds until the next call.

        Rows that are not given hold frames of the batch before and are coded for nothing.
        """
        count = len(planes[0])
        with torch.inference_mode():
            for ours, plane in zip(self._planes, planes, strict=True):
                ours[:count].copy_(plane)
        chosen = self._choose()
        frames, sizes = self._coder.extents(chosen)
        if frames[-1] + sizes[-1] > self._room:  # noise at a quantiser of the user's, or at the coarsest there is
            coded = self._coder.write(chosen)
            data = coded.data
        else:
            data = self._code()
        return Coded(data[: frames[count - 1] + sizes[count - 1]], frames[:count], sizes[:count])
