"""Crops of all faces in one kernel, by Triton; the torch reference is `align.crops` with `sampling.sample`.

Torch makes sixteen passes over float32 copies and index tensors; here each value of a crop gathers its sixteen pixels
in registers, from pictures in their own precision. Import this only where triton is installed.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

_ROWS, _COLUMNS = 4, 64
"""Pixels of a program."""


@triton.jit
def keys(part):
    """Weights of the pixels -1, 0, 1 and 2 for a place `part` behind pixel 0: Keys' cubic, a = -0.75."""
    first, last = part + 1, 2 - part
    back = 1 - part
    return (
        ((-0.75 * first + 3.75) * first - 6.0) * first + 3.0,
        (1.25 * part - 2.25) * part * part + 1,
        (1.25 * back - 2.25) * back * back + 1,
        ((-0.75 * last + 3.75) * last - 6.0) * last + 3.0,
    )


@triton.jit
def _mixed(part, wide, soft):
    """Those, going over by `soft` to tents of pixels `wide` apart; see `sampling.sample`."""
    c0, c1, c2, c3 = keys(part)
    tall = 0.5 / wide
    t0 = tl.maximum(1 - (part + wide) * tall, 0.0)
    t1 = tl.maximum(1 - part * tall, 0.0)
    t2 = tl.maximum(1 - tl.abs(part - wide) * tall, 0.0)
    t3 = tl.maximum(1 - tl.abs(part - 2 * wide) * tall, 0.0)
    total = t0 + t1 + t2 + t3
    return (
        c0 + soft * (t0 / total - c0),
        c1 + soft * (t1 / total - c1),
        c2 + soft * (t2 / total - c2),
        c3 + soft * (t3 / total - c3),
    )


@triton.jit
def taps(at, stride, last, pitch):
    """How far into a plane the four pixels lie along one axis."""
    return (
        tl.minimum(tl.maximum(at - stride, 0), last) * pitch,
        tl.minimum(tl.maximum(at, 0), last) * pitch,
        tl.minimum(tl.maximum(at + stride, 0), last) * pitch,
        tl.minimum(tl.maximum(at + 2 * stride, 0), last) * pitch,
    )


@triton.jit
def gathered(place, steps, rows, across, down, mask):
    """Sixteen pixels with their weights, float32."""
    total = tl.zeros_like(across[0])
    for i in tl.static_range(4):
        line = tl.load(place + rows[i] + steps[0], mask=mask, other=0.0).to(tl.float32) * across[0]
        for j in tl.static_range(1, 4):
            line += tl.load(place + rows[i] + steps[j], mask=mask, other=0.0).to(tl.float32) * across[j]
        total += line * down[i]
    return total


@triton.jit
def back_of(a, b, u, v):
    """The way back of a similarity, as `align.inverse`: turn and scale, then shift; float64."""
    square = tl.maximum(a * a + b * b, 1e-12)
    a, b = a / square, b / square
    return a, b, -a * u - b * v, b * u - a * v


@triton.jit(do_not_specialize=(
    "in_ptr", "picture_ptr", "matrix_ptr", "out_ptr", "size", "width", "height", "in_n", "in_c", "in_h", "in_w",
))  # fmt: skip
def _crops(
    in_ptr, picture_ptr, matrix_ptr, out_ptr, size, width, height, in_n, in_c, in_h, in_w,
    CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    broad = tl.cdiv(size, COLUMNS)
    tiles = broad * tl.cdiv(size, ROWS)
    face, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    x = (tile % broad) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    y = (tile // broad) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = (x < size) & (y < size)
    there = matrix_ptr + face * 6
    a, b, u, v = back_of(tl.load(there), tl.load(there + 3), tl.load(there + 2), tl.load(there + 5))
    shrink = tl.sqrt(a * a + b * b)
    stride = tl.floor(tl.minimum(tl.maximum(shrink * 0.5, 1.0), 64.0))
    wide, soft = stride.to(tl.float32), tl.minimum(tl.maximum(shrink.to(tl.float32) - 1, 0.0), 1.0)
    column, row = x.to(tl.float64), y.to(tl.float64)
    across, down = u + column * a + row * b, v - column * b + row * a
    left, top = tl.floor(across), tl.floor(down)
    weights_x = _mixed((across - left).to(tl.float32), wide, soft)
    weights_y = _mixed((down - top).to(tl.float32), wide, soft)
    far = (tl.maximum(width, height) + 256).to(tl.float64)  # beyond the edge all is edge
    left = tl.minimum(tl.maximum(left, -256.0), far).to(tl.int32)
    top = tl.minimum(tl.maximum(top, -256.0), far).to(tl.int32)
    step = stride.to(tl.int32)
    columns, rows = taps(left, step, width - 1, in_w), taps(top, step, height - 1, in_h)
    place = in_ptr + tl.load(picture_ptr + face) * in_n
    out = out_ptr + face * CHANNELS * size * size + y * size + x
    for _ in tl.static_range(CHANNELS):
        value = gathered(place, columns, rows, weights_x, weights_y, inside)
        tl.store(out, value, mask=inside)
        place += in_c
        out += size * size


def crops(rgb_nchw: torch.Tensor, picture: torch.Tensor, matrix: torch.Tensor, size: int) -> torch.Tensor:
    """As `align.crops`, in one launch whose grid is made of the number of faces and their size alone.

    Args:
        rgb_nchw: (N, C, H, W) float16 or float32, in any strides.
        picture: (F,) int64.
        matrix: (F, 2, 3) float64, similarities from picture to crop.
        size: pixels of a side.

    Returns:
        (F, C, size, size) float32.
    """
    _, channels, height, width = rgb_nchw.shape
    out = torch.empty((len(matrix), channels, size, size), dtype=torch.float32, device=rgb_nchw.device)
    launch = (len(matrix) * triton.cdiv(size, _COLUMNS) * triton.cdiv(size, _ROWS),)
    if not launch[0]:
        return out
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        _crops[launch](
            rgb_nchw, picture.contiguous(), matrix.contiguous(), out, size, width, height, *rgb_nchw.stride(),
            CHANNELS=channels, ROWS=_ROWS, COLUMNS=_COLUMNS,
        )  # fmt: skip
    return out
