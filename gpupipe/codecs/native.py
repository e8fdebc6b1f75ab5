"""Between libav's frames and planes: views where reading, one copy where writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av
import numpy as np
import torch

from gpupipe.color import AV_RANGE

if TYPE_CHECKING:
    from av.video.plane import VideoPlane

    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch

__all__ = ["AV_RANGE", "new_frame", "planes_of"]


def _views(frame: av.VideoFrame, source: FrameFormat, matte: av.VideoFrame | None = None) -> tuple[torch.Tensor, ...]:
    """(1, H, W[, 2]) views of a libav frame's planes, alpha last; writing to them writes to the frame."""
    shapes = source.with_(width=frame.width, height=frame.height).plane_shapes
    planes = frame.planes if matte is None else (*frame.planes, matte.planes[-1])
    bits = [source.pixels.depth] * len(shapes)
    if source.alpha:
        bits[-1] = source.alpha
    return tuple(_view(plane, shape, depth) for plane, shape, depth in zip(planes, shapes, bits, strict=True))


def _view(plane: VideoPlane, shape: tuple[int, ...], bits: int) -> torch.Tensor:
    dtype = torch.uint8 if bits == 8 else torch.uint16
    inner = (shape[2], 1) if len(shape) == 3 else (1,)
    pitch = plane.line_size // dtype.itemsize
    return torch.frombuffer(plane, dtype=dtype).as_strided((1, *shape), (0, pitch, *inner))


def planes_of(batch: FrameBatch) -> tuple[torch.Tensor, ...]:
    """The planes of a batch; views of the library's own frame where it has not been touched yet (no copy)."""
    if batch.planes:
        return batch.planes
    frame = batch.native
    assert frame is not None
    return _views(frame, batch.format, batch.matte)


def new_frame(source: FrameFormat, name: str, planes: tuple[torch.Tensor, ...], row: int) -> av.VideoFrame:
    """A libav frame in format `name` (a twin of `source`, alpha included) holding picture `row` of host planes."""
    frame = av.VideoFrame(source.width, source.height, name)
    for view, plane in zip(_views(frame, source), planes, strict=True):
        # In this thread: torch would share it among as many as there are cores, and wait for each of them to be free,
        # which beside an encoder they are not.
        np.copyto(view[0].numpy(), plane[row].numpy())
    frame.color_range = AV_RANGE[source.color.range]
    frame.colorspace = int(source.color.matrix)
    return frame
