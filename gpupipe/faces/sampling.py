"""Values between pixels, of many places in many pictures at once, without a copy of any picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

_A = -0.75
_TAPS = (-1, 0, 1, 2)


def sample(rgb_nchw: Tensor, picture: Tensor, xy: Tensor, shrink: Tensor) -> Tensor:
    """Values of picture `picture[f]` at `xy[f]`; beyond the edge its outermost pixels go on.

    What comes out for one face depends on nothing but its own picture and coordinates, to the last bit. `grid_sample`
    cannot do that here: it takes a picture for each grid, which would be a whole frame for each face, and its
    normalised coordinates depend on how much of a frame was cut out.

    Sixteen pixels make one value. Their weights are Keys' cubic (1981, a = -0.75, as `grid_sample` has it) where
    nothing shrinks, and go over to a tent of twice the pixel's distance up to `shrink` 2; above 4 the sixteen lie
    further apart, so that no pixel of a large face is skipped by more than the tent can hide.

    Args:
        rgb_nchw: (N, C, H, W) floats.
        picture: (F,) int64.
        xy: (F, h, w, 2) float64 pixels, the centre of the top left pixel being (0, 0).
        shrink: (F,) pixels of the picture from one place to the next.

    Returns:
        (F, C, h, w) float32.
    """
    _, channels, height, width = rgb_nchw.shape
    flat = rgb_nchw.contiguous().view(-1)
    stride = (shrink / 2).clamp(1, 64).floor()
    places = xy.movedim(-1, 0)
    corner = torch.floor(places)
    packed = torch.contiguous_format
    part = (places - corner).to(torch.float32, memory_format=packed)
    # Far beyond the edge all is edge; the clamp keeps what is no place of a picture out of int64.
    whole = corner.clamp(-256, max(width, height) + 256).to(torch.int64, memory_format=packed)
    taps = torch.arange(_TAPS[0], _TAPS[-1] + 1, device=flat.device).view(-1, 1, 1, 1, 1)
    steps = whole[:, None] + (taps[..., 0] * stride.to(torch.int64).view(-1, 1, 1))
    columns, rows = steps[0].clamp(0, width - 1)[:, :, None], steps[1].clamp(0, height - 1)[:, :, None] * width
    weights = _weights(part, taps.to(torch.float32), shrink, stride)[:, :, :, None]
    planes = picture.view(-1, 1, 1, 1) * channels + torch.arange(channels, device=flat.device).view(1, -1, 1, 1)
    planes = planes * (height * width)
    total = None
    for row, down in zip(rows, weights[:, 1], strict=True):
        first, line = planes + row, None
        for column, across in zip(columns, weights[:, 0], strict=True):
            line = _added(line, flat[first + column], across)
        total = _added(total, line, down)  # type: ignore[arg-type]  # there are columns
    return total  # type: ignore[return-value]  # there are rows


def _added(total: Tensor | None, value: Tensor, weight: Tensor) -> Tensor:
    """float32, in one step: each is a launch, and there are sixteen."""
    return value * weight if total is None else torch.addcmul(total, value, weight)


def _weights(part: Tensor, taps: Tensor, shrink: Tensor, stride: Tensor) -> Tensor:
    """(4, 2, F, h, w) for each tap and axis, adding up to one; `part` is how far a place lies behind its pixel."""
    soft = (shrink.to(torch.float32) - 1).clamp(0, 1).view(-1, 1, 1)
    wide = stride.to(torch.float32).view(-1, 1, 1)
    tents = (1 - (part - taps * wide).abs() / (2 * wide)).clamp(min=0)
    away = (part - taps).abs()
    cubics = torch.cat((_far(away[:1]), _near(away[1:3]), _far(away[3:])))
    return torch.lerp(cubics, tents / tents.sum(0), soft)


def _near(x: Tensor) -> Tensor:
    """Keys' kernel at a distance of up to one pixel."""
    return ((_A + 2) * x - (_A + 3)) * x * x + 1


def _far(x: Tensor) -> Tensor:
    """At a distance from one to two."""
    return ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A
