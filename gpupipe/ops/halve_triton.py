"""`ops.halve.halved` as one kernel, by Triton. Import this only where triton is installed."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

_COLUMNS = 256
"""Values of a program, all of one line."""


@triton.jit
def _weighed(before, first, second, after):
    return -0.09375 * (before + after) + 0.59375 * (first + second)


@triton.jit
def _line(place, column, step, last, mask):
    """Four values along a line, from the one before `column`; those at the ends again for what lies beyond."""
    before = tl.load(place + tl.maximum(column - 1, 0) * step, mask=mask, other=0.0).to(tl.float32)
    first = tl.load(place + column * step, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(place + (column + 1) * step, mask=mask, other=0.0).to(tl.float32)
    after = tl.load(place + tl.minimum(column + 2, last) * step, mask=mask, other=0.0).to(tl.float32)
    return _weighed(before, first, second, after)


@triton.jit
def _halved(in_ptr, out_ptr, height, width, channels, in_n, in_c, in_h, in_w, COLUMNS: tl.constexpr):
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    y = tl.program_id(1)
    plane = tl.program_id(2)
    n, c = (plane // channels).to(tl.int64), (plane % channels).to(tl.int64)
    mask, column, row = x < width, 2 * x, 2 * y.to(tl.int64)
    place, last = in_ptr + n * in_n + c * in_c, 2 * width - 1
    above = _line(place + tl.maximum(row - 1, 0) * in_h, column, in_w, last, mask)
    first = _line(place + row * in_h, column, in_w, last, mask)
    second = _line(place + (row + 1) * in_h, column, in_w, last, mask)
    below = _line(place + tl.minimum(row + 2, 2 * height - 1) * in_h, column, in_w, last, mask)
    out = out_ptr + (plane.to(tl.int64) * height + y) * width + x
    tl.store(out, _weighed(above, first, second, below).to(out_ptr.dtype.element_ty), mask=mask)


def halved(x: torch.Tensor) -> torch.Tensor:
    """See `ops.halve.halved`; x may lie in any way, the result lies plane by plane."""
    count, channels, height, width = x.shape[0], x.shape[1], x.shape[2] // 2, x.shape[3] // 2
    out = torch.empty((count, channels, height, width), dtype=x.dtype, device=x.device)
    launch = (triton.cdiv(width, _COLUMNS), height, count * channels)
    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
        _halved[launch](x, out, height, width, channels, *x.stride(), COLUMNS=_COLUMNS)
    return out
