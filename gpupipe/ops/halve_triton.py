"""`ops.halve.doubled` as one kernel, by Triton. Import this only where triton is installed."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

_SMALL = 64
"""Pixels of a line of the small picture, two by two of the result for each."""


@triton.jit
def _doubled(
    details_ptr, picture_ptr, out_ptr, height, width, in_n, in_c, in_h, in_w, SMALL: tl.constexpr
):  # fmt: skip
    """Columns 4 x - 1 to 4 x + 4 of the large picture lie in eight lanes, of which the last two are idle."""
    x, y, n = tl.program_id(0) * SMALL + tl.arange(0, SMALL), tl.program_id(1), tl.program_id(2).to(tl.int64)
    lane = tl.arange(0, 8)
    column = tl.minimum(tl.maximum(4 * x[:, None] + lane[None, :] - 1, 0), 4 * width - 1)
    far, across = column // 4, column % 4
    mask = (x < width)[:, None] & (lane < 6)[None, :]
    left = tl.where((lane == 0) | (lane == 3), -0.09375, tl.where((lane == 1) | (lane == 2), 0.59375, 0.0))
    right = tl.where((lane == 2) | (lane == 5), -0.09375, tl.where((lane == 3) | (lane == 4), 0.59375, 0.0))
    for c in tl.static_range(3):
        upper = tl.zeros((SMALL, 8), tl.float32)
        lower = tl.zeros((SMALL, 8), tl.float32)
        for r in tl.static_range(6):
            row = tl.minimum(tl.maximum(4 * y + r - 1, 0), 4 * height - 1)
            near, down = row // 4, row % 4
            line = (n * height + near) * width
            value = tl.load(details_ptr + (line + far) * 48 + c * 16 + down * 4 + across, mask=mask, other=0.0)
            under = tl.load(picture_ptr + n * in_n + c * in_c + near * in_h + far * in_w, mask=mask, other=0.0)
            value = value.to(tl.float32) + under.to(tl.float32)
            if r < 4:
                upper += (-0.09375 if r % 3 == 0 else 0.59375) * value
            if r > 1:
                lower += (-0.09375 if (r - 2) % 3 == 0 else 0.59375) * value
        inside = x < width
        place = out_ptr + ((n * 3 + c) * 2 * height + 2 * y) * 2 * width + 2 * x
        tl.store(place, tl.sum(upper * left[None, :], 1).to(out_ptr.dtype.element_ty), mask=inside)
        tl.store(place + 1, tl.sum(upper * right[None, :], 1).to(out_ptr.dtype.element_ty), mask=inside)
        tl.store(place + 2 * width, tl.sum(lower * left[None, :], 1).to(out_ptr.dtype.element_ty), mask=inside)
        tl.store(place + 2 * width + 1, tl.sum(lower * right[None, :], 1).to(out_ptr.dtype.element_ty), mask=inside)


def doubled(details: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
    """See `ops.halve.doubled`; the result lies plane by plane."""
    count, _, height, width = picture.shape
    details = details.contiguous(memory_format=torch.channels_last)
    out = torch.empty((count, 3, 2 * height, 2 * width), dtype=details.dtype, device=details.device)
    launch = (triton.cdiv(width, _SMALL), height, count)
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        _doubled[launch](details, picture, out, height, width, *picture.stride(), SMALL=_SMALL)
    return out
