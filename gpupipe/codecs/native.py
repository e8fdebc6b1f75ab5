"""Between libav's frames and planes: views where reading, one copy where writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av
import torch

from gpupipe.color import AV_RANGE

if TYPE_CHECKING:
    from gpupipe.format import FrameFormat, PixelFormat
    from gpupipe.frame import FrameBatch

__all__ = ["AV_RANGE", "new_frame", "planes_of"]


def _views(frame: av.VideoFrame, pixels: PixelFormat) -> tuple[torch.Tensor, ...]:
    """(1, H, W[, 2]) views of a libav frame's planes; writing to them writes to the frame."""
    dtype = torch.uint8 if pixels.depth == 8 else torch.uint16
    views = []
    for plane, shape in zip(frame.planes, pixels.plane_shapes(frame.width, frame.height), strict=True):
        pitch = plane.line_size // dtype.itemsize
        inner = (shape[2], 1) if len(shape) == 3 else (1,)
        views.append(torch.frombuffer(plane, dtype=dtype).as_strided((1, *shape), (0, pitch, *inner)))
    return tuple(views)


def planes_of(batch: FrameBatch) -> tuple[torch.Tensor, ...]:
    """The planes of a batch; views of the library's own frame where it has not been touched yet (no copy)."""
    if batch.planes:
        return batch.planes
    frame = batch.native
    assert frame is not None
    return _views(frame, batch.format.pixels)


def new_frame(source: FrameFormat, name: str, planes: tuple[torch.Tensor, ...], row: int) -> av.VideoFrame:
    """A libav frame in format `name` (a twin of `source.pixels`) holding picture `row` of host planes."""
    frame = av.VideoFrame(source.width, source.height, name)
    for view, plane in zip(_views(frame, source.pixels), planes, strict=True):
        view[0].copy_(plane[row])
    frame.color_range = AV_RANGE[source.color.range]
    frame.colorspace = int(source.color.matrix)
    return frame
