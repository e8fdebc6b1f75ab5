"""Bilinear sampling along a grid in one pass over memory, by Triton; the torch reference is `ops.warp.sample`.

`grid_sample` wants pictures of the grid's dtype, which makes three float32 copies of half precision ones. Here values
are widened in registers. Import this only where triton is installed.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

_ROWS, _COLUMNS = 4, 128
"""Pixels of a program."""
_PROGRAMS = 4096
"""About as many as keep a large GPU busy; where there would be more, each takes several pictures: it reads the grid,
which is as large as a picture, and works out weights once for all of them."""
BORDERS = {"edge": 0, "reflect": 1, "constant": 2}
"""Numbers that the kernel knows `warp.Border` by."""


@triton.jit
def _source(at, size, BORDER: tl.constexpr):
    """From a grid's -1..1 to pixels (align_corners=False), brought into the picture as the border asks."""
    at = ((at + 1) * size - 1) * 0.5
    if BORDER == 1:  # about the outer edges of the outermost pixels
        away = tl.abs(at + 0.5)
        flips = tl.floor(away / size)
        rest = away - flips * size
        odd = flips - 2 * tl.floor(flips * 0.5)
        at = tl.where(odd == 0, rest, size - rest) - 0.5
    if BORDER != 2:
        at = tl.minimum(tl.maximum(at, 0.0), size - 1.0)
    return at


@triton.jit(do_not_specialize=("count", "width", "height", "in_n", "out_n"))
def _bilinear(
    in_ptr, grid_ptr, out_ptr, count, width, height, in_n, in_c, in_h, in_w, out_n, out_c, out_h,
    BORDER: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    y = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    first = tl.program_id(2) * EACH
    inside = (x < width) & (y < height)
    place = grid_ptr + (y * width + x) * 2
    across = _source(tl.load(place, mask=inside, other=0.0), width.to(tl.float32), BORDER)
    down = _source(tl.load(place + 1, mask=inside, other=0.0), height.to(tl.float32), BORDER)
    left, top = tl.floor(across), tl.floor(down)
    weight_x, weight_y = across - left, down - top
    left, top = left.to(tl.int32), top.to(tl.int32)
    in_left, in_right = inside & (left >= 0) & (left < width), inside & (left >= -1) & (left < width - 1)
    in_top, in_bottom = (top >= 0) & (top < height), (top >= -1) & (top < height - 1)
    # Of the four neighbours, row by row: whether they are in the picture, and their weights.
    a, b, c, d = in_left & in_top, in_right & in_top, in_left & in_bottom, in_right & in_bottom
    weight_a, weight_b = (1 - weight_x) * (1 - weight_y), weight_x * (1 - weight_y)
    weight_c, weight_d = (1 - weight_x) * weight_y, weight_x * weight_y
    begin = in_ptr + first.to(tl.int64) * in_n + top * in_h + left * in_w
    end = out_ptr + first.to(tl.int64) * out_n + y * out_h + x
    for n in range(EACH):
        there = first + n < count  # the last ones may take fewer
        at, out = begin, end
        for _ in tl.static_range(CHANNELS):
            value = tl.load(at, mask=a & there, other=0.0).to(tl.float32) * weight_a
            value += tl.load(at + in_w, mask=b & there, other=0.0).to(tl.float32) * weight_b
            value += tl.load(at + in_h, mask=c & there, other=0.0).to(tl.float32) * weight_c
            value += tl.load(at + in_h + in_w, mask=d & there, other=0.0).to(tl.float32) * weight_d
            tl.store(out, value.to(out_ptr.dtype.element_ty), mask=inside & there)
            at += in_c
            out += out_c
        begin += in_n
        end += out_n


def bilinear(rgb_nchw: torch.Tensor, grid: torch.Tensor, border: str) -> torch.Tensor:
    """As `ops.warp.sample` with `bilinear`: (N, C, H, W) float16 or float32, sampled in float32.

    Args:
        rgb_nchw: pictures of the grid's size.
        grid: (1, H, W, 2) float32, contiguous.
        border: one of `BORDERS`.
    """
    count, channels, height, width = rgb_nchw.shape
    out = torch.empty(rgb_nchw.shape, dtype=rgb_nchw.dtype, device=rgb_nchw.device)
    across, down = triton.cdiv(width, _COLUMNS), triton.cdiv(height, _ROWS)
    # A power of two: few kernels for batches of all sizes.
    each = triton.next_power_of_2(triton.cdiv(count, min(count, triton.cdiv(_PROGRAMS, across * down))))
    launch = (across, down, triton.cdiv(count, each))
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        _bilinear[launch](
            rgb_nchw, grid, out, count, width, height, *rgb_nchw.stride(), *out.stride()[:3],
            BORDER=BORDERS[border], CHANNELS=channels, ROWS=_ROWS, COLUMNS=_COLUMNS, EACH=each,
        )  # fmt: skip
    return out
