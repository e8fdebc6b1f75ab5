"""Planes to coefficients in one pass over memory, by Triton; the torch reference is `transform`.

A program makes one plane of a slice. Import this only where triton is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from gpupipe.codecs.prores.transform import FIRST_SHIFT, FRACTION_BITS, basis, second_shift

if TYPE_CHECKING:
    from gpupipe.codecs.prores.layout import Layout
    from gpupipe.format import PixelFormat

_ONE = tl.constexpr(1 << FRACTION_BITS)
_C1, _C2, _C3, _C5, _C6, _C7 = (tl.constexpr(basis()[u][0]) for u in (1, 2, 3, 5, 6, 7))
_PLAIN = ("width", "height", "plane_n", "rows", "first_macroblock", "columns")
# Sizes change neither the code nor how wide loads can be, so they make no kernel of their own.


@triton.jit
def _eight(rows):
    """(R, 8) to its columns."""
    even, odd = tl.split(tl.reshape(rows, (rows.shape[0], 2, 2, 2)))  # columns 2k and 2k + 1, as (R, 2, 2)
    x04, x26 = tl.split(even)
    x15, x37 = tl.split(odd)
    x0, x4 = tl.split(x04)
    x2, x6 = tl.split(x26)
    x1, x5 = tl.split(x15)
    x3, x7 = tl.split(x37)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def _joined(x0, x1, x2, x3, x4, x5, x6, x7):
    """Eight columns of R to (R, 8)."""
    even = tl.join(tl.join(x0, x4), tl.join(x2, x6))
    odd = tl.join(tl.join(x1, x5), tl.join(x3, x7))
    return tl.reshape(tl.join(even, odd), (x0.shape[0], 8))


@triton.jit
def _dct8(x0, x1, x2, x3, x4, x5, x6, x7, half: tl.constexpr, SHIFT: tl.constexpr):
    """One dimension of `transform.dct`, by its symmetry: the sums are the same integers."""
    s0, s1, s2, s3 = x0 + x7, x1 + x6, x2 + x5, x3 + x4
    d0, d1, d2, d3 = x0 - x7, x1 - x6, x2 - x5, x3 - x4
    y0 = (s0 + s1 + s2 + s3) * _ONE
    y4 = (s0 - s1 - s2 + s3) * _ONE
    y2 = (s0 - s3) * _C2 + (s1 - s2) * _C6
    y6 = (s0 - s3) * _C6 - (s1 - s2) * _C2
    y1 = d0 * _C1 + d1 * _C3 + d2 * _C5 + d3 * _C7
    y3 = d0 * _C3 - d1 * _C7 - d2 * _C1 - d3 * _C5
    y5 = d0 * _C5 - d1 * _C1 + d2 * _C7 + d3 * _C3
    y7 = d0 * _C7 - d1 * _C5 + d2 * _C3 - d3 * _C1
    return (
        (y0 + half) >> SHIFT, (y1 + half) >> SHIFT, (y2 + half) >> SHIFT, (y3 + half) >> SHIFT,
        (y4 + half) >> SHIFT, (y5 + half) >> SHIFT, (y6 + half) >> SHIFT, (y7 + half) >> SHIFT,
    )  # fmt: skip


@triton.jit(do_not_specialize=_PLAIN)
def _transform(
    plane_ptr, place_ptr, out_ptr, width, height, plane_n, plane_h, plane_w, rows, first_macroblock, columns,
    per_macroblock, base,
    BLOCKS: tl.constexpr, ACROSS: tl.constexpr, BY_COLUMN: tl.constexpr, PICTURES: tl.constexpr,
    FIRST_PARITY: tl.constexpr, DOWN: tl.constexpr, MIDDLE: tl.constexpr, MACROBLOCKS: tl.constexpr,
    FIRST: tl.constexpr, SECOND: tl.constexpr,
):  # fmt: skip
    """Program (slice of a row, row, picture) of one component; BLOCKS of the slice, ACROSS of a macroblock's width."""
    column, row, picture = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    macroblock = first_macroblock + column * MACROBLOCKS
    r = tl.arange(0, BLOCKS * 8)
    block, y = r // 8, r % 8
    per: tl.constexpr = 2 * ACROSS
    inner = block % per
    if BY_COLUMN:
        down, across = inner % 2, inner // 2
    else:
        down, across = inner // ACROSS, inner % ACROSS
    parity = (picture % PICTURES) ^ FIRST_PARITY
    last = parity + (height - 1 - parity) // PICTURES * PICTURES
    line = tl.minimum((row * 16 + down * 8 + y) * PICTURES + parity, last)
    left = ((macroblock + block // per) * ACROSS + across) * 8
    x = tl.minimum(left[:, None] + tl.arange(0, 8)[None, :], width - 1)
    frame = (picture // PICTURES).to(tl.int64)
    samples = tl.load(plane_ptr + frame * plane_n + (line * plane_h)[:, None] + x * plane_w)
    centred = (samples.to(tl.int32) >> DOWN) - MIDDLE

    x0, x1, x2, x3, x4, x5, x6, x7 = _eight(centred)
    x0, x1, x2, x3, x4, x5, x6, x7 = _dct8(x0, x1, x2, x3, x4, x5, x6, x7, 1 << (FIRST - 1), FIRST)
    byrow = tl.reshape(_joined(x0, x1, x2, x3, x4, x5, x6, x7), (BLOCKS, 8, 8))
    bycolumn = tl.reshape(tl.permute(byrow, (2, 0, 1)), (8 * BLOCKS, 8))  # (u, block) down, y across
    x0, x1, x2, x3, x4, x5, x6, x7 = _eight(bycolumn)
    x0, x1, x2, x3, x4, x5, x6, x7 = _dct8(x0, x1, x2, x3, x4, x5, x6, x7, 0, SECOND)

    u, block = r // BLOCKS, r % BLOCKS
    start = (picture * rows + row).to(tl.int64) * columns + macroblock
    out = out_ptr + start * per_macroblock + base + block
    place = place_ptr + u
    tl.store(out + tl.load(place) * BLOCKS, x0.to(tl.int16))
    tl.store(out + tl.load(place + 8) * BLOCKS, x1.to(tl.int16))
    tl.store(out + tl.load(place + 16) * BLOCKS, x2.to(tl.int16))
    tl.store(out + tl.load(place + 24) * BLOCKS, x3.to(tl.int16))
    tl.store(out + tl.load(place + 32) * BLOCKS, x4.to(tl.int16))
    tl.store(out + tl.load(place + 40) * BLOCKS, x5.to(tl.int16))
    tl.store(out + tl.load(place + 48) * BLOCKS, x6.to(tl.int16))
    tl.store(out + tl.load(place + 56) * BLOCKS, x7.to(tl.int16))


class Transform:
    """`transform.coefficients` for planes on the device.

    Args:
        layout: of the pictures.
        pixels: of the planes.
        device: of the planes.
    """

    def __init__(self, layout: Layout, pixels: PixelFormat, device: str) -> None:
        self._layout, self._pixels = layout, pixels
        places = torch.tensor(layout.scan).argsort()  # scan position of each raster position
        self._places = places.to(device=device, dtype=torch.int32)

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """(N, H, W) planes to (P, coefficients) int16."""
        layout = self._layout
        count = planes[0].shape[0] * layout.pictures
        out = torch.empty((count, layout.coefficients), dtype=torch.int16, device=planes[0].device)
        for run in layout.runs:
            for component, plane in enumerate(planes[:3]):
                blocks = layout.blocks[component]
                base = 64 * sum(layout.blocks[:component]) * run.macroblocks
                _transform[(run.count, layout.rows, count)](
                    plane, self._places, out, plane.shape[2], plane.shape[1], *plane.stride(),
                    layout.rows, run.first_macroblock, layout.columns,
                    layout.macroblock_coefficients, base,
                    BLOCKS=blocks * run.macroblocks, ACROSS=blocks // 2, BY_COLUMN=component > 0 and blocks == 4,
                    PICTURES=layout.pictures, FIRST_PARITY=layout.fields[0], DOWN=self._pixels.msb_shift,
                    MIDDLE=1 << self._pixels.depth - 1, MACROBLOCKS=run.macroblocks, FIRST=FIRST_SHIFT,
                    SECOND=second_shift(self._pixels.depth),
                )  # fmt: skip
        return out
