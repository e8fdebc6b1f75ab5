"""Laying one picture over another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.ops.alpha import codes, unit

if TYPE_CHECKING:
    from torch import Tensor


def alpha_over(rgb_nchw: Tensor, top: Tensor, alpha: Tensor, y: int, x: int, *, in_place: bool = False) -> Tensor:
    """A copy of the picture with `top` over it; pixels outside of `top` are the picture's own, bit for bit.

    Porter and Duff's over with straight alpha, on the values as they are (R'G'B', not linear light):
    alpha * top + (1 - alpha) * picture.

    Args:
        rgb_nchw: (N, 3, H, W).
        top: (3, h, w), of the same dtype.
        alpha: (1, h, w), 0..1, of the same dtype.
        y: row of the picture where `top` begins; all of `top` lies inside.
        x: column likewise.
        in_place: write into the picture itself, and return it.
    """
    out = rgb_nchw if in_place else rgb_nchw.clone()
    area = out[:, :, y : y + top.shape[1], x : x + top.shape[2]]
    area.copy_(torch.lerp(area, top, alpha))
    return out


def over_alpha(
    planes: tuple[Tensor, Tensor], bits: int, top: Tensor, alpha: Tensor, at: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """`alpha_over` a picture with alpha of its own: the result covers what either covers.

    With a for `alpha` and b for the picture's, the result's alpha is a + (1 - a) b and its straight colour
    (a top + (1 - a) b picture) / (a + (1 - a) b), which over an opaque picture is `alpha_over`.

    Args:
        planes: (N, 3, H, W) and the codes of its alpha, (N, H, W).
        bits: of those codes.
        top: see `alpha_over`.
        alpha: see `alpha_over`.
        at: y and x of `alpha_over`.
    """
    picture, below = planes
    out, under = picture.clone(), below.clone()
    rows, columns = (slice(first, first + size) for first, size in zip(at, top.shape[1:], strict=True))
    share = alpha.to(torch.float32)[None]
    both = share + (1 - share) * unit(below[:, None, rows, columns], bits)
    area = out[:, :, rows, columns]
    mix = torch.where(both > 0, share / both, 0.0).to(area.dtype)
    area.copy_(torch.lerp(area, top.expand_as(area), mix))
    signed = under.view(torch.int16) if bits > 8 else under
    seen = codes(both[:, 0] * ((1 << bits) - 1), bits)
    signed[:, rows, columns] = seen.view(torch.int16) if bits > 8 else seen
    return out, under
