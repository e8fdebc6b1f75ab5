"""Laying one picture over another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def alpha_over(rgb_nchw: Tensor, top: Tensor, alpha: Tensor, y: int, x: int) -> Tensor:
    """A copy of the picture with `top` over it; pixels outside of `top` are the picture's own, bit for bit.

    Porter and Duff's over with straight alpha, on the values as they are (R'G'B', not linear light):
    alpha * top + (1 - alpha) * picture.

    Args:
        rgb_nchw: (N, 3, H, W).
        top: (3, h, w), of the same dtype.
        alpha: (1, h, w), 0..1, of the same dtype.
        y: row of the picture where `top` begins; all of `top` lies inside.
        x: column likewise.
    """
    out = rgb_nchw.clone()
    area = out[:, :, y : y + top.shape[1], x : x + top.shape[2]]
    area.copy_(torch.lerp(area, top, alpha))
    return out
