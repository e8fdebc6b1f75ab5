"""What is done to crops to make a face unknown: blur, pixelate, fill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor


def blur(faces: Tensor, radius: float) -> Tensor:
    """Gaussian, beyond the edge the outermost pixels go on.

    Args:
        faces: (F, 3, S, S) float32.
        radius: standard deviation as a part of the crop's side.
    """
    side = faces.shape[-1]
    sigma = max(radius * side, 1e-3)
    reach = min(int(3 * sigma) + 1, side)
    at = torch.arange(-reach, reach + 1, dtype=torch.float64, device=faces.device)
    kernel = torch.exp(-0.5 * (at / sigma).square())
    kernel /= kernel.sum()
    # A matrix with the edge's weight folded in: one product across and one down, whatever the radius. Nothing is
    # scattered into it, since on a GPU sums that many threads add to differ from run to run.
    line = torch.arange(side, device=faces.device)
    tap, taps = line - line[:, None] + reach, line[:, None] + at
    matrix = torch.where((tap >= 0) & (tap <= 2 * reach), kernel[tap.clamp(0, 2 * reach)], 0.0)
    matrix[:, 0] += torch.where(taps < 0, kernel, 0.0).sum(1)
    matrix[:, -1] += torch.where(taps > side - 1, kernel, 0.0).sum(1)
    matrix = matrix.to(faces.dtype)
    return matrix @ faces @ matrix.mT


def pixelate(faces: Tensor, blocks: int, contrast: float = 1.0) -> Tensor:
    """Means of `blocks` x `blocks` equal parts of the crop, each shown as one square.

    Args:
        faces: (F, 3, S, S) float32.
        blocks: along a side.
        contrast: what is left of a square's difference from the mean of all. Of a small face at full contrast a
            detector finds two thirds again: a few dark squares above a light one are a face to it.
    """
    means = functional.adaptive_avg_pool2d(faces, blocks)
    if contrast < 1:
        means = torch.lerp(means.mean((-1, -2), keepdim=True), means, contrast)
    return functional.interpolate(means, size=faces.shape[-2:], mode="nearest-exact")


def fill(faces: Tensor, color: tuple[float, float, float] | None) -> Tensor:
    """One colour, R'G'B' 0..1, or the crop's own mean where none is given."""
    if color is None:
        return faces.mean((-1, -2), keepdim=True).expand_as(faces)
    out = torch.empty_like(faces)
    for channel, value in enumerate(color):
        out[:, channel] = value  # three fills: a tensor from numbers would be a copy from the host
    return out


def sized(faces: Tensor, side: int) -> Tensor:
    """Crops with another number of pixels a side, for a network that wants that."""
    return functional.interpolate(faces, size=(side, side), mode="bicubic", antialias=True, align_corners=False)
