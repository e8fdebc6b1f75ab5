"""A picture through a network piece by piece, without a seam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Span:
    """One piece along one axis, in input pixels; `begin` to `end` is kept of what `low` on is computed from."""

    begin: int
    end: int
    low: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """Windows of one size over a picture: what an engine or a CUDA Graph of one shape can go through.

    Windows at the picture's edge lie inside it, with more overlap instead of made-up pixels, so an edge is computed as
    it is when the picture goes through as a whole.
    """

    height: int
    width: int
    """Of the padded picture: at least the network's smallest size, in whole multiples."""
    window: tuple[int, int]
    """Height and width of what the network gets."""
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]

    @property
    def pieces(self) -> tuple[tuple[Span, Span], ...]:
        """(row, column) of every window."""
        return tuple((row, column) for row in self.rows for column in self.columns)

    @property
    def whole(self) -> bool:
        """Whether the picture goes through in one piece."""
        return len(self.rows) == len(self.columns) == 1


def tiling(height: int, width: int, tile: int | None, *, halo: int, multiple: int = 1, least: int = 1) -> Tiling:
    """Windows for a picture.

    Args:
        height: of the picture.
        width: of the picture.
        tile: longest side of what is kept of a window, in input pixels; None takes the picture whole.
        halo: input pixels on each side that an output pixel depends on; fewer show as seams.
        multiple: sides the network takes are multiples of it, and windows begin on them.
        least: shortest side the network takes.
    """
    if tile is not None and tile < 1:
        raise ValueError(f"a tile of {tile} pixels")
    high, wide = (_up(max(side, least), multiple) for side in (height, width))
    tall, rows = _spans(high, tile, halo, multiple, least)
    broad, columns = _spans(wide, tile, halo, multiple, least)
    return Tiling(high, wide, (tall, broad), rows, columns)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _spans(length: int, tile: int | None, halo: int, multiple: int, least: int) -> tuple[int, tuple[Span, ...]]:
    """Length of the windows along an axis, and the windows: as even as the multiple lets them be."""
    if tile is None or tile >= length:
        return length, (Span(0, length, 0),)
    kept = _up(-(-length // -(-length // tile)), multiple)
    window = min(length, max(_up(kept, multiple) + 2 * _up(halo, multiple), _up(least, multiple)))
    spans = []
    for begin in range(0, length, kept):
        end = min(begin + kept, length)
        low = min(max(begin - _up(halo, multiple), 0), length - window)
        spans.append(Span(begin, end, low))
    return window, tuple(spans)


def padded(x: torch.Tensor, plan: Tiling) -> torch.Tensor:
    """The picture with its last row and column repeated up to the size of the tiling."""
    from torch.nn import functional  # noqa: PLC0415  so that tilings can be planned without torch

    below, right = plan.height - x.shape[-2], plan.width - x.shape[-1]
    return functional.pad(x, (0, right, 0, below), mode="replicate") if below or right else x


def cut(x: torch.Tensor, plan: Tiling, row: Span, column: Span) -> torch.Tensor:
    """A window of the padded picture, a view."""
    high, wide = plan.window
    return x[..., row.low : row.low + high, column.low : column.low + wide]


def keep(piece: torch.Tensor, out: torch.Tensor, row: Span, column: Span, scale: int) -> None:
    """Copies what is kept of a window's result into the picture `out`, which is without padding."""
    bottom, right = min(row.end * scale, out.shape[-2]), min(column.end * scale, out.shape[-1])
    top, left = row.begin * scale, column.begin * scale
    if top >= bottom or left >= right:
        return
    y, x = top - row.low * scale, left - column.low * scale
    out[..., top:bottom, left:right].copy_(piece[..., y : y + bottom - top, x : x + right - left])
