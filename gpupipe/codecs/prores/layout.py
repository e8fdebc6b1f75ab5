"""Where everything of a picture lies: macroblocks, slices and coefficients in the order of the stream.

A picture is a progressive frame or one field. Its coefficients lie in one row, slice after slice; in a slice Y, Cb, Cr;
in each of these (a *plane of a slice* below) scan position after scan position, and at each the blocks in order. So DC
values come first, and a plane of a slice is a stretch of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gpupipe.codecs.prores import tables

if TYPE_CHECKING:
    from gpupipe.format import FrameFormat

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """Slices of one width that follow each other in every row of macroblocks."""

    macroblocks: int
    """Of each slice."""
    count: int
    """Slices of this width in a row."""
    first_macroblock: int
    first_slice: int
    """Where in the row the first one lies."""


@dataclass(frozen=True)
class Layout:
    """Geometry of the pictures of one format.

    Args:
        width: of the frame, samples.
        height: of the frame, both fields together.
        chroma_444: else 4:2:2.
        fields: parity of the row that each picture of a frame begins with: (0,) for a progressive frame, (0, 1) for
            top field first, (1, 0) for bottom field first.
    """

    width: int
    height: int
    chroma_444: bool
    fields: tuple[int, ...] = (0,)

    @property
    def pictures(self) -> int:
        """Pictures a frame."""
        return len(self.fields)

    @property
    def rows(self) -> int:
        """Rows of macroblocks a picture."""
        return -(-self.height // (16 * self.pictures))

    @property
    def columns(self) -> int:
        """Macroblocks a row."""
        return -(-self.width // 16)

    @property
    def macroblocks(self) -> int:
        """Of a whole frame."""
        return self.rows * self.columns * self.pictures

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The slices of a row: as many of 8 macroblocks as fit, then 4, 2, 1."""
        found, at, size, slices = [], 0, tables.SLICE_MACROBLOCKS, 0
        while at < self.columns:
            count = (self.columns - at) // size
            if count:
                found.append(Run(size, count, at, slices))
            at, slices, size = at + count * size, slices + count, size // 2
        return tuple(found)

    @property
    def row_slices(self) -> int:
        """Slices a row of macroblocks."""
        return sum(run.count for run in self.runs)

    @property
    def slices(self) -> int:
        """Slices a picture."""
        return self.row_slices * self.rows

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Blocks a macroblock of Y, Cb, Cr."""
        return (4, 4, 4) if self.chroma_444 else (4, 2, 2)

    @property
    def macroblock_coefficients(self) -> int:
        """Coefficients a macroblock, all components."""
        return 64 * sum(self.blocks)

    @property
    def coefficients(self) -> int:
        """Coefficients a picture."""
        return self.rows * self.columns * self.macroblock_coefficients

    @property
    def scan(self) -> tuple[int, ...]:
        """Raster position of each scan position."""
        return tables.PROGRESSIVE_SCAN if self.pictures == 1 else tables.INTERLACED_SCAN

    def samples(self, component: int) -> tuple[int, int]:
        """(rows, columns) of a component in whole macroblocks."""
        return self.rows * 16, self.columns * 8 * (self.blocks[component] // 2)

    def slice_widths(self) -> Ints:
        """(slices a row,) macroblocks of each slice of a row."""
        return np.concatenate([np.full(run.count, run.macroblocks) for run in self.runs]).astype(np.int64)

    def plane_blocks(self) -> Ints:
        """(slices, 3) blocks of each plane of each slice."""
        return np.tile(self.slice_widths()[:, None] * np.array(self.blocks), (self.rows, 1))

    def stream_order(self) -> Ints:
        """(coefficients,) index of each coefficient of the stream in Y, Cb, Cr blocks lying raster by raster.

        Those lie component after component, block row after block row, 64 coefficients a block.
        """
        base, bases = 0, []
        for component in range(3):
            bases.append(base)
            high, wide = self.samples(component)
            base += high * wide
        parts, scan = [], np.array(self.scan)
        for row in range(self.rows):
            first = 0
            for width in self.slice_widths():
                for component in range(3):
                    blocks = bases[component] + 64 * self._slice_blocks(component, row, first, int(width))
                    parts.append((blocks[None, :] + scan[:, None]).ravel())
                first += int(width)
        return np.concatenate(parts)

    def _slice_blocks(self, component: int, row: int, first: int, width: int) -> Ints:
        """Raster numbers of the blocks of one plane of a slice.

        A macroblock's luma blocks run row by row, its 4:4:4 chroma blocks column by column.
        """
        across = self.blocks[component] // 2
        order = [(y, x) for y in range(2) for x in range(across)]
        if component and across == 2:
            order = [(y, x) for x in range(2) for y in range(2)]
        stride = self.columns * across
        return np.array(
            [(2 * row + y) * stride + mb * across + x for mb in range(first, first + width) for y, x in order]
        )


def layout_of(picture: FrameFormat) -> Layout:
    """The layout of such pictures: tt and tb are top field first (see `LibavEncoder`), bb and bt bottom field first."""
    fields: tuple[int, ...] = (0,)
    if picture.interlaced:
        fields = (0, 1) if picture.field_order in ("tt", "tb") else (1, 0)
    return Layout(picture.width, picture.height, picture.pixels.chroma_shift == (0, 0), fields)
