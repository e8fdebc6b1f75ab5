"""`ops.halve.doubled` as one kernel, by Triton. Import this only where triton is installed."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

_SMALL = 128
"""Pixels of a line of the small picture, two by two of the result for each; one a thread."""


@triton.jit
def _across(details_ptr, bias_ptr, pixel, place, x, width, mask):
    """One line of the large picture, where its four columns of each pixel count: for the left and the right result.

    `pixel` is the number of the line's first pixel, `place` that of the first of four channels.
    """
    k = tl.arange(0, 4)[None, :]
    four = tl.load(details_ptr + (pixel + x)[:, None] * 48 + place + k, mask=mask[:, None], other=0.0).to(tl.float32)
    four += tl.load(bias_ptr + place + k).to(tl.float32)
    last, first = tl.where(x > 0, 3, 0), tl.where(x < width - 1, 0, 3)  # beyond the edge its own column again
    away, next_ = tl.maximum(x - 1, 0), tl.minimum(x + 1, width - 1)
    before = tl.load(details_ptr + (pixel + away) * 48 + place + last, mask=mask, other=0.0).to(tl.float32)
    before += tl.load(bias_ptr + place + last).to(tl.float32)
    after = tl.load(details_ptr + (pixel + next_) * 48 + place + first, mask=mask, other=0.0).to(tl.float32)
    after += tl.load(bias_ptr + place + first).to(tl.float32)
    left = tl.sum(four * tl.where(k < 2, 0.59375, tl.where(k < 3, -0.09375, 0.0)), 1) - 0.09375 * before
    right = tl.sum(four * tl.where(k > 1, 0.59375, tl.where(k > 0, -0.09375, 0.0)), 1) - 0.09375 * after
    return left, right


@triton.jit
def _doubled(
    details_ptr, bias_ptr, picture_ptr, out_ptr, height, width, in_n, in_c, in_h, in_w, SMALL: tl.constexpr
):  # fmt: skip
    """Of the nearest pixels, four by four alike, the kernel leaves two by two weights: -3/32 and 35/32."""
    x, y, n = tl.program_id(0) * SMALL + tl.arange(0, SMALL), tl.program_id(1), tl.program_id(2).to(tl.int64)
    mask = x < width
    above, below = tl.maximum(y - 1, 0), tl.minimum(y + 1, height - 1)
    away, next_ = tl.maximum(x - 1, 0), tl.minimum(x + 1, width - 1)
    for c in tl.static_range(3):
        plane = picture_ptr + n * in_n + c * in_c
        middle = tl.zeros((SMALL,), tl.float32), tl.zeros((SMALL,), tl.float32)
        upper, lower = middle, middle
        for r in tl.static_range(3):
            line = plane + (above if r == 0 else y if r == 1 else below) * in_h
            one = tl.load(line + x * in_w, mask=mask, other=0.0).to(tl.float32) * 1.09375
            left = one - 0.09375 * tl.load(line + away * in_w, mask=mask, other=0.0).to(tl.float32)
            right = one - 0.09375 * tl.load(line + next_ * in_w, mask=mask, other=0.0).to(tl.float32)
            if r < 2:
                weight = 1.09375 if r == 1 else -0.09375
                upper = upper[0] + weight * left, upper[1] + weight * right
            if r > 0:
                weight = 1.09375 if r == 1 else -0.09375
                lower = lower[0] + weight * left, lower[1] + weight * right
        for r in tl.static_range(6):
            row = tl.minimum(tl.maximum(4 * y + r - 1, 0), 4 * height - 1)
            place = c * 16 + row % 4 * 4
            left, right = _across(details_ptr, bias_ptr, (n * height + row // 4) * width, place, x, width, mask)
            if r < 4:
                weight = -0.09375 if r % 3 == 0 else 0.59375
                upper = upper[0] + weight * left, upper[1] + weight * right
            if r > 1:
                weight = -0.09375 if (r - 2) % 3 == 0 else 0.59375
                lower = lower[0] + weight * left, lower[1] + weight * right
        place = out_ptr + ((n * 3 + c) * 2 * height + 2 * y) * 2 * width + 2 * x
        both = tl.join(upper[0], upper[1]), tl.join(lower[0], lower[1])  # two halves are one word to write
        columns = place[:, None] + tl.arange(0, 2)[None, :]
        tl.store(columns, both[0].to(out_ptr.dtype.element_ty), mask=mask[:, None])
        tl.store(columns + 2 * width, both[1].to(out_ptr.dtype.element_ty), mask=mask[:, None])


def doubled(details: torch.Tensor, bias: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
    """See `ops.halve.doubled`; the result lies plane by plane."""
    count, _, height, width = picture.shape
    details = details.contiguous(memory_format=torch.channels_last)
    out = torch.empty((count, 3, 2 * height, 2 * width), dtype=details.dtype, device=details.device)
    launch = (triton.cdiv(width, _SMALL), height, count)
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        _doubled[launch](details, bias, picture, out, height, width, *picture.stride(), SMALL=_SMALL)
    return out
