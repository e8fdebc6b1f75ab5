"""Giving a generated face the colours of the face that it covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_GAIN = 2.0
"""Most that contrast is raised or lowered by: beyond that the two pictures have nothing in common."""


def matched(faces: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """Mean and deviation of each channel brought to the target's, over the mask.

    Reinhard, Ashikhmin, Gooch, Shirley (2001), Color Transfer between Images, equations 10 to 13, on R'G'B' itself.

    Args:
        faces: (F, 3, S, S).
        target: of the same shape, the crop of the picture.
        mask: (F, S, S), 0..1, the weight of each pixel.
    """
    weight = mask[:, None]
    total = weight.sum((-1, -2), keepdim=True).clamp(min=1e-6)

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = (x * weight).sum((-1, -2), keepdim=True) / total
        square = ((x - mean).square() * weight).sum((-1, -2), keepdim=True) / total
        return mean, square.sqrt()

    (mean, deviation), (goal, wanted) = moments(faces), moments(target)
    gain = ((wanted + 1e-3) / (deviation + 1e-3)).clamp(1 / _GAIN, _GAIN)
    return (faces - mean) * gain + goal
