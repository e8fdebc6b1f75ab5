"""A picture at half its size by a bicubic kernel, for compilers: what networks end with that double by way of four."""

from __future__ import annotations

from importlib.util import find_spec

import torch

_OUTER, _INNER = -0.09375, 0.59375
"""Of four pixels in a row, what each counts half way between the middle two: Keys' cubic with a = -0.75."""


_TRITON = find_spec("triton") is not None


def halved(x: torch.Tensor) -> torch.Tensor:
    """`interpolate` by exactly a half, bicubic, for torch.compile: constant weights.

    `interpolate` itself becomes one kernel there, which computes an index and a weight for each of 16 pixels, and of a
    picture that was shuffled and added to just before computes each pixel 16 times. On a GPU this is a kernel of its
    own (`halve_triton`), else rows and columns one after the other.

    Args:
        x: N x C x H x W of even sides; N x C x H/2 x W/2 comes back, in x's dtype, summed up in float32.
    """
    if x.is_cuda and _TRITON:
        made: torch.Tensor = torch.ops.gpupipe.halved(x)
        return made
    return by_torch(x)


def by_torch(x: torch.Tensor) -> torch.Tensor:
    """`halved` by torch's own operators."""
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


@torch.library.custom_op("gpupipe::halved", mutates_args=())
def _operator(x: torch.Tensor) -> torch.Tensor:
    if x.is_cuda:
        from gpupipe.ops.halve_triton import halved as ours  # noqa: PLC0415  only where triton is

        return ours(x)
    return by_torch(x).contiguous()


@_operator.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty((*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2), dtype=x.dtype, device=x.device)
