"""A 3x3 convolution and the PReLU behind it in one kernel, by Triton, for half precision that lies channels last.

cuDNN's convolution writes its result, and another kernel reads and writes all of it again for the PReLU: at 1080p with
64 channels that is a quarter of the time of both. As a matrix product (implicit GEMM): rows are pixels of a line,
columns are output channels, and one of nine taps is a step. Import this only where triton is installed.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

_PIXELS, _STAGES, _WARPS = 128, 3, 8
"""A program's pixels of one line; the fastest of those tried on an H200."""
_ROWS, _COLUMNS = 4, 64
"""A program's pixels where tiles are fetched by the GPU's own unit (TMA), likewise: 0.37 ms where lines take 0.40."""
_TILES = 9
"""Compute capability from which there is such a unit."""
NARROW = 8
"""Input channels up to which all nine taps are one step, since there are few in each."""


@triton.jit
def _activated(sums, bias_ptr, slope_ptr, OUT: tl.constexpr):
    """Bias and PReLU."""
    o = tl.arange(0, OUT)
    sums += tl.load(bias_ptr + o)[None, :].to(tl.float32)
    return tl.where(sums > 0, sums, sums * tl.load(slope_ptr + o)[None, :].to(tl.float32))


@triton.jit
def _stored(sums, bias_ptr, slope_ptr, line, x, width, OUT: tl.constexpr):
    """Ends a program: bias, PReLU, and its pixels `x` of the line that begins at `line`."""
    o = tl.arange(0, OUT)
    sums = _activated(sums, bias_ptr, slope_ptr, OUT)
    tl.store(line + x[:, None] * OUT + o[None, :], sums.to(line.dtype.element_ty), mask=(x < width)[:, None])


@triton.jit
def _wide(
    in_ptr, weight_ptr, bias_ptr, slope_ptr, out_ptr, height, width,
    IN: tl.constexpr, OUT: tl.constexpr, PIXELS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    y, n = tl.program_id(1), tl.program_id(2).to(tl.int64)
    x = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    c, o = tl.arange(0, IN), tl.arange(0, OUT)
    line = in_ptr + (n * height + y) * width * IN  # in 64 bits: 64 channels of 8K are more than 32 count
    sums = tl.zeros((PIXELS, OUT), dtype=tl.float32)
    for tap in tl.range(0, 9, num_stages=STAGES):
        below, column = tap // 3 - 1, x + tap % 3 - 1
        inside = (y + below >= 0) & (y + below < height) & (column >= 0) & (column < width)
        pixels = tl.load(line + (below * width + column)[:, None] * IN + c[None, :], mask=inside[:, None], other=0.0)
        sums = tl.dot(pixels, tl.load(weight_ptr + (tap * IN + c)[:, None] * OUT + o[None, :]), sums)
    _stored(sums, bias_ptr, slope_ptr, out_ptr + (n * height + y) * width * OUT, x, width, OUT)


@triton.jit
def _tiled(
    tiles, weight_ptr, bias_ptr, slope_ptr, out_ptr, height, width,
    IN: tl.constexpr, OUT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """As `_wide`, by tiles of several lines; what lies beyond the picture is fetched as zeros."""
    n, top, left = tl.program_id(2), tl.program_id(1) * ROWS, tl.program_id(0) * COLUMNS
    c, o, pixel = tl.arange(0, IN), tl.arange(0, OUT), tl.arange(0, ROWS * COLUMNS)
    sums = tl.zeros((ROWS * COLUMNS, OUT), dtype=tl.float32)
    for tap in tl.range(0, 9, num_stages=STAGES):
        pixels = tiles.load([n, top + tap // 3 - 1, left + tap % 3 - 1, 0]).reshape(ROWS * COLUMNS, IN)
        sums = tl.dot(pixels, tl.load(weight_ptr + (tap * IN + c)[:, None] * OUT + o[None, :]), sums)
    sums = _activated(sums, bias_ptr, slope_ptr, OUT)
    y, x = top + pixel // COLUMNS, left + pixel % COLUMNS
    place = out_ptr + ((n.to(tl.int64) * height + y) * width + x)[:, None] * OUT + o[None, :]
    tl.store(place, sums.to(out_ptr.dtype.element_ty), mask=((y < height) & (x < width))[:, None])


@triton.jit
def _narrow(
    in_ptr, weight_ptr, bias_ptr, slope_ptr, out_ptr, height, width,
    IN: tl.constexpr, OUT: tl.constexpr, PIXELS: tl.constexpr, DEEP: tl.constexpr,
):  # fmt: skip
    y, n = tl.program_id(1), tl.program_id(2).to(tl.int64)
    x = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    k, o = tl.arange(0, DEEP), tl.arange(0, OUT)
    row, column = y + k // (3 * IN) - 1, x[:, None] + (k // IN % 3 - 1)[None, :]
    used = (k < 9 * IN) & (row >= 0) & (row < height)
    place = in_ptr + n * height * width * IN + (row[None, :] * width + column) * IN + (k % IN)[None, :]
    pixels = tl.load(place, mask=used[None, :] & (column >= 0) & (column < width), other=0.0)
    weights = tl.load(weight_ptr + k[:, None] * OUT + o[None, :], mask=(k < 9 * IN)[:, None], other=0.0)
    sums = tl.dot(pixels, weights)
    _stored(sums, bias_ptr, slope_ptr, out_ptr + (n * height + y) * width * OUT, x, width, OUT)


def convolved(
    pictures: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, slope: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """(N, O, H, W), channels last, of (N, C, H, W): padded with zeros, summed in float32.

    Args:
        pictures: channels last, float16 or bfloat16; C is a power of two from 16, or at most `NARROW`.
        weight: (9 * C, O), tap by tap; O is a power of two from 16.
        bias: (O,).
        slope: (O,), of the PReLU.
    """
    count, channels, height, width = pictures.shape
    pictures = pictures.contiguous(memory_format=torch.channels_last)
    wide = weight.shape[1]
    out = torch.empty(
        (count, wide, height, width), dtype=pictures.dtype, device=pictures.device, memory_format=torch.channels_last
    )
    given = (weight, bias, slope, out, height, width)
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        if channels > NARROW and fetched(pictures):
            by_tiles(pictures, *given)
        else:
            by_lines(pictures, *given)
    return out


def fetched(pictures: torch.Tensor) -> bool:
    """Whether the GPU fetches tiles of these by itself: it wants them to begin at 16 bytes."""
    newer = pictures.is_cuda and torch.cuda.get_device_capability(pictures.device)[0] >= _TILES
    return newer and pictures.data_ptr() % 16 == 0


def by_tiles(pictures, weight, bias, slope, out, height, width) -> None:
    """Launches `_tiled`."""
    count, channels, wide = len(pictures), pictures.shape[1], weight.shape[1]
    lines = pictures.permute(0, 2, 3, 1)
    tiles = TensorDescriptor(lines, list(lines.shape), list(lines.stride()), [1, _ROWS, _COLUMNS, channels])
    _tiled[triton.cdiv(width, _COLUMNS), triton.cdiv(height, _ROWS), count](
        tiles, weight, bias, slope, out, height, width,
        IN=channels, OUT=wide, ROWS=_ROWS, COLUMNS=_COLUMNS, STAGES=_STAGES, num_warps=_WARPS,
    )  # fmt: skip


def by_lines(pictures, weight, bias, slope, out, height, width) -> None:
    """Launches `_wide` or `_narrow`."""
    channels, wide = pictures.shape[1], weight.shape[1]
    launch = (triton.cdiv(width, _PIXELS), height, len(pictures))
    given = (pictures, weight, bias, slope, out, height, width)
    if channels <= NARROW:
        deep = max(16, triton.next_power_of_2(9 * channels))
        _narrow[launch](*given, IN=channels, OUT=wide, PIXELS=_PIXELS, DEEP=deep, num_warps=4)
    else:
        _wide[launch](*given, IN=channels, OUT=wide, PIXELS=_PIXELS, STAGES=_STAGES, num_warps=_WARPS)
