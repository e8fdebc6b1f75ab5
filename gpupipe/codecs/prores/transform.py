"""Planes to coefficients: level shift, blocks, 8x8 DCT; torch, on any device.

All arithmetic is on integers, held in float64 where that is the fast way to multiply (every sum stays below 2^31, so
nothing is ever rounded unasked): the same planes give the same coefficients on every device and in any batch.

A unit is one of the orthonormal DCT of 12-bit samples; a quantiser step of RDD 36 (weight times scale) is in units. A
coefficient c is in halves, cut down so that it fits in 16 bits. It stands for the middle of what is cut to it,
2 * c + 1 quarters, and what would be rounded to whole units can be told exactly from it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from gpupipe.codecs.prores.layout import Layout
    from gpupipe.format import PixelFormat

FRACTION_BITS = 13
FIRST_SHIFT = 12
"""Bits dropped after the rows, rounding half up. 1 fraction bit of the samples' own depth stays, as in libav's integer
DCT: more would gain 0.1 dB at the finest quantiser, and what `rate` knows of prores_ks' cost would fail on ramps."""


def second_shift(depth: int) -> int:
    """Bits cut off after the columns, of samples of so many bits."""
    return depth + 4


def basis() -> list[list[int]]:
    """sqrt(8) times the orthonormal DCT-II, row u, column x, with 13 fraction bits; rows 0 and 4 are exact."""

    def value(u: int, x: int) -> float:
        return 1.0 if u == 0 else math.sqrt(2) * math.cos((2 * x + 1) * u * math.pi / 16)

    return [[round(value(u, x) * (1 << FRACTION_BITS)) for x in range(8)] for u in range(8)]


def dct(samples: torch.Tensor, depth: int) -> torch.Tensor:
    """(..., 8 rows, 8 columns) samples about 0 to (..., 8 v, 8 u) coefficients, float64 holding integers."""
    matrix = torch.tensor(basis(), dtype=torch.float64, device=samples.device)
    rows = torch.floor((samples.double() @ matrix.T + (1 << FIRST_SHIFT - 1)) * 2.0**-FIRST_SHIFT)
    return torch.floor(matrix @ rows * 2.0 ** -second_shift(depth))


def samples_of(plane: torch.Tensor, pixels: PixelFormat) -> torch.Tensor:
    """(N, H, W) int32 samples, 0 in the middle of their range."""
    return (plane.to(torch.int32) >> pixels.msb_shift) - (1 << pixels.depth - 1)


def pictures_of(plane: torch.Tensor, layout: Layout, rows: int, columns: int) -> torch.Tensor:
    """(N, H, W) frames to (N * pictures, rows, columns): fields apart, first field first, edges repeated."""
    high, wide = plane.shape[1:]
    step = layout.pictures
    across = torch.arange(columns, device=plane.device).clamp_(max=wide - 1)
    fields = []
    for parity in layout.fields:
        last = parity + (high - 1 - parity) // step * step  # the field's own last row
        down = (torch.arange(rows, device=plane.device) * step + parity).clamp_(max=last)
        fields.append(plane.index_select(1, down).index_select(2, across))
    return torch.stack(fields, dim=1).flatten(0, 1)


def coefficients(
    planes: tuple[torch.Tensor, ...], pixels: PixelFormat, layout: Layout, order: torch.Tensor
) -> torch.Tensor:
    """(N, H, W) planes Y, Cb, Cr to (N * pictures, layout.coefficients) int16, in the order of the stream.

    Args:
        planes: integer samples as `pixels` describes them.
        pixels: depth 8 to 12, planar.
        layout: of the pictures.
        order: `layout.stream_order()` on the planes' device.
    """
    parts = []
    for component, plane in enumerate(planes[:3]):
        rows, columns = layout.samples(component)
        picture = pictures_of(samples_of(plane, pixels), layout, rows, columns)
        blocks = picture.view(-1, rows // 8, 8, columns // 8, 8).transpose(2, 3)
        parts.append(dct(blocks, pixels.depth).to(torch.int16).flatten(1))
    return torch.cat(parts, dim=1).index_select(1, order)
