"""Where one shot ends and another begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

HEIGHT, WIDTH = 18, 32
_ALIKE, _CHANGED, _LEAST = 0.5, 0.05, 0.02
_LUMA = (0.2126, 0.7152, 0.0722)


def luma(rgb_nchw: Tensor) -> Tensor:
    """(N, H, W) float32: BT.709's weights on R'G'B' 0..1, for comparing pictures only."""
    red, green, blue = rgb_nchw.to(torch.float32).unbind(1)
    return red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2]


def thumbnail(luma_nhw: Tensor) -> Tensor:
    """(N, 18, 32): means of equal parts, of which motion shows little."""
    return functional.adaptive_avg_pool2d(luma_nhw[:, None], (HEIGHT, WIDTH))[:, 0]


def cuts(thumbnails: Tensor, before: Tensor) -> Tensor:
    """(N,) bool: whether each picture begins a new shot.

    It does where it differs from the one before, and does not merely lie brighter, darker or flatter: their
    correlation (Pearson's) is below a half. A fade is none, and neither is a pan, which keeps most of its neighbour.

    Args:
        thumbnails: (N, 18, 32) of consecutive pictures.
        before: (18, 32) of the picture before the first.
    """
    last = torch.cat((before[None], thumbnails[:-1]))
    a, b = (x.flatten(1) - x.flatten(1).mean(1, keepdim=True) for x in (thumbnails, last))
    spread = a.square().sum(1) * b.square().sum(1)
    alike = (a * b).sum(1) / spread.sqrt().clamp(min=1e-9)
    changed = (thumbnails - last).abs().mean((1, 2))
    return (changed > _CHANGED) & ((alike < _ALIKE) | (spread.sqrt() < _LEAST))
