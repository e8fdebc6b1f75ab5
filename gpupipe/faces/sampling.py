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
    corner = torch.floor(xy)
    part = (xy - corner).to(torch.float32)
    # Far beyond the edge all is edge; the clamp keeps what is no place of a picture out of int64.
    x0, y0 = (corner[..., i].clamp(-256, side + 256).to(torch.int64) for i, side in ((0, width), (1, height)))
    step = stride.to(torch.int64).view(-1, 1, 1)
    across, down = (_weights(part[..., i], shrink, stride) for i in (0, 1))
    base = picture.view(-1, 1, 1, 1) * channels + torch.arange(channels, device=flat.device).view(1, -1, 1, 1)
    columns = [(x0 + t * step).clamp(0, width - 1)[:, None] for t in _TAPS]
    total = torch.zeros((), device=flat.device)
    for t, weight in zip(_TAPS, down, strict=True):
        row = (base * height + (y0 + t * step).clamp(0, height - 1)[:, None]) * width
        line = sum(flat[row + x].to(torch.float32) * w for x, w in zip(columns, across, strict=True))
        total = total + line * weight
    return total


def _weights(part: Tensor, shrink: Tensor, stride: Tensor) -> tuple[Tensor, ...]:
    """(F, 1, h, w) for each tap, adding up to one: `part` is how far a place lies behind its pixel, 0..1."""
    taps = torch.arange(_TAPS[0], _TAPS[-1] + 1, dtype=torch.float32, device=part.device).view(-1, 1, 1, 1)
    soft = (shrink.to(torch.float32) - 1).clamp(0, 1).view(-1, 1, 1)
    wide = stride.to(torch.float32).view(-1, 1, 1)
    tents = (1 - (part - taps * wide).abs() / (2 * wide)).clamp(min=0)
    away = (part - taps).abs()
    cubics = torch.cat((_far(away[:1]), _near(away[1:3]), _far(away[3:])))
    return torch.lerp(cubics, tents / tents.sum(0), soft)[:, :, None].unbind(0)


def _near(x: Tensor) -> Tensor:
    """Keys' kernel at a distance of up to one pixel."""
    return ((_A + 2) * x - (_A + 3)) * x * x + 1


def _far(x: Tensor) -> Tensor:
    """At a distance from one to two."""
    return ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A
