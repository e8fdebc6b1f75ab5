"""Pictures as files that everyone can show: PNG with all their bits, JPEG where small is enough."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np

from gpupipe.color import ColorSpec, Matrix
from gpupipe.format import PIXEL_FORMATS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias

    from numpy.typing import NDArray

    from gpupipe.render.stills import Picture

    Samples: TypeAlias = NDArray[Any]  # uint8 or uint16

GAP = 8
"""Pixels between the pictures of a sheet."""


def rgb(picture: Picture) -> Samples:
    """(H, W, 3) full-range R'G'B' in the picture's own primaries and transfer; uint8, or uint16 above 8 bits.

    By the arithmetic of the stages (ITU-T H.273, chroma by its siting), rounded to the nearest; nothing is tone-mapped,
    and alpha is left out: colours are shown as they lie under it.
    Raises PlanError where the matrix has no such arithmetic.
    """
    from gpupipe.ops.color import Converter  # noqa: PLC0415  imports torch

    source = picture.format
    color, _ = source.color.resolved(source.pixels.family, source.width, source.height)
    source = source.with_(color=color)
    target = source.with_(pixels=PIXEL_FORMATS["rgbf32"], alpha=0)
    (floats,) = Converter(source, target)(picture.planes)
    top = 255 if source.pixels.depth <= 8 else 65535
    values = (floats[0].clamp(0, 1) * top).round_().permute(1, 2, 0).numpy()
    return values.astype(np.uint8 if top == 255 else np.uint16)


def png(samples: Samples, color: ColorSpec | None = None) -> bytes:
    """A PNG of 8 or 16 bits; primaries and transfer go into its cICP chunk where they are said."""
    name = "rgb48be" if samples.dtype == np.uint16 else "rgb24"
    return _still(samples, "png", name, color)


def jpeg(samples: Samples, width: int) -> bytes:
    """A JPEG at most `width` pixels wide, for a look."""
    eight = samples if samples.dtype == np.uint8 else (samples >> 8).astype(np.uint8)
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(eight), format="rgb24")
    small = min(width, frame.width)
    height = max(1, round(frame.height * small / frame.width))
    frame = frame.reformat(
        small, height, "yuvj444p", interpolation="AREA", dst_colorspace="ITU601", dst_color_range="JPEG"
    )
    return _encode(frame, "mjpeg", "yuvj444p")


def sheet(rows: Sequence[Sequence[Samples]]) -> Samples:
    """Pictures in rows on black, as they are, with a gap between; 16 bits where one of them has them."""
    deep = any(picture.dtype == np.uint16 for row in rows for picture in row)
    kind = np.uint16 if deep else np.uint8
    heights = [max(picture.shape[0] for picture in row) for row in rows]
    width = max(sum(picture.shape[1] + GAP for picture in row) - GAP for row in rows)
    out = np.zeros((sum(heights) + GAP * (len(rows) - 1), width, 3), kind)
    top = 0
    for row, height in zip(rows, heights, strict=True):
        left = 0
        for picture in row:
            values = picture if picture.dtype == kind else picture.astype(np.uint16) * 257
            out[top : top + picture.shape[0], left : left + picture.shape[1]] = values
            left += picture.shape[1] + GAP
        top += height + GAP
    return out


def reduced(samples: Samples, width: int) -> Samples:
    """At most `width` pixels wide, each the mean of those it stands for."""
    if samples.shape[1] <= width:
        return samples
    name = "rgb48le" if samples.dtype == np.uint16 else "rgb24"
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(samples), format=name)
    height = max(1, round(frame.height * width / frame.width))
    made: Samples = frame.reformat(width, height, name, interpolation="AREA").to_ndarray()
    return made


def _still(samples: Samples, codec: str, name: str, color: ColorSpec | None) -> bytes:
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(samples), format=name)
    if color is not None:
        frame.color_primaries, frame.color_trc = color.primaries, color.transfer
        frame.colorspace, frame.color_range = int(Matrix.RGB), 2
    return _encode(frame, codec, name)


def _encode(frame: av.VideoFrame, codec: str, name: str) -> bytes:
    context = av.CodecContext.create(codec, "w")
    assert isinstance(context, av.VideoCodecContext)
    context.width, context.height, context.pix_fmt = frame.width, frame.height, name
    context.time_base, frame.pts = Fraction(1), 0
    if codec == "mjpeg":
        context.qmin = context.qmax = 3
        context.color_range = 2
    context.open()
    return b"".join(bytes(packet) for packet in (*context.encode(frame), *context.encode(None)))
