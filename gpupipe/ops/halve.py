"""A picture at half its size by a bicubic kernel: what networks end with that double by way of four."""

from __future__ import annotations

import torch
from torch.nn import functional

_OUTER, _INNER = -0.09375, 0.59375
"""Of four pixels in a row, what each counts half way between the middle two: Keys' cubic with a = -0.75."""


def halved(x: torch.Tensor) -> torch.Tensor:
    """`interpolate` by exactly a half, bicubic, for torch.compile: constant weights, rows before columns.

    `interpolate` itself becomes one kernel there, which computes an index and a weight for each of 16 pixels; this
    becomes two of four pixels each.

    Args:
        x: N x C x H x W of even sides; N x C x H/2 x W/2 comes back, in x's dtype, summed up in float32.
    """
    return _half(_half(x, -2), -1).to(x.dtype)


def _half(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Between pixels 2 i and 2 i + 1, from 2 i - 1 to 2 i + 2; those at the edges again for what lies beyond."""
    count = x.shape[axis]
    # In floats: inductor (2.13) fails on an index of integers into a shuffled picture, as it does on a replicating pad.
    even = torch.arange(0, count, 2, device=x.device, dtype=torch.float32)
    before = x.index_select(axis, (even - 1).clamp(min=0).to(torch.int64))
    after = x.index_select(axis, (even + 2).clamp(max=count - 1).to(torch.int64))
    inner = (x[..., k::2, :] if axis == -2 else x[..., k::2] for k in (0, 1))
    return _OUTER * (before.float() + after.float()) + _INNER * sum(one.float() for one in inner)


def doubled_now(details: torch.Tensor, bias: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
    """A picture of twice the size: the nearest pixels of four times the size, details added, `halved`.

    On a GPU the large picture, sixteen times the small one, is never written.

    Args:
        details: N x 48 x H x W, what `pixel_shuffle` makes N x 3 x 4 H x 4 W of; Triton has to be there on a GPU.
        bias: 48 values that are added to the details.
        picture: N x 3 x H x W, all of one dtype.
    """
    if details.is_cuda:
        from gpupipe.ops.halve_triton import doubled as ours  # noqa: PLC0415  only where triton is

        return ours(details, bias, picture)
    nearest = functional.interpolate(picture, scale_factor=4.0, mode="nearest")
    return halved(functional.pixel_shuffle(details + bias.view(1, -1, 1, 1), 4) + nearest).contiguous()


doubled = torch.library.custom_op("gpupipe::doubled", doubled_now, mutates_args=())
"""`doubled_now` for compilers; called by others it imports theirs, which takes seconds."""


@doubled.register_fake
def _(details: torch.Tensor, bias: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    count, _, height, width = picture.shape
    return torch.empty((count, 3, 2 * height, 2 * width), dtype=details.dtype, device=details.device)
