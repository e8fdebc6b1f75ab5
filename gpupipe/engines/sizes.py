"""How large the windows are that a network gets, and how many at once."""

from __future__ import annotations

from dataclasses import dataclass

from gpupipe.models.tile import Tiling, tiling

ENOUGH = 1920 * 1088
"""Pixels that keep a large GPU busy: batches go no further by themselves."""
SMALLEST_TILE = 32
_MOST_BATCH = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a network and of the pictures that it gets."""

    height: int
    width: int
    scale: int
    halo: int | None
    """None: the network must have the picture whole."""
    multiple: int = 1
    least: int = 1

    def tiling(self, tile: int | None) -> Tiling:
        """Windows with that much kept of each; None for the whole picture."""
        return tiling(self.height, self.width, tile, halo=self.halo or 0, multiple=self.multiple, least=self.least)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much the network gets at once."""

    tile: int | None
    """Longest side of what is kept of a window; None: pictures go through whole."""
    batch: int
    """Windows at once."""

    def __str__(self) -> str:
        what = "whole pictures" if self.tile is None else f"tiles of {self.tile}"
        return f"{what}, {self.batch} at once"


def choose_sizes(
    shape: Shape, *, rows: int, room: int | None, pixel_bytes: float, tile: int | str, batch: int | str
) -> Sizes:
    """The largest windows that fit, and as many at once as fit and are of use, in batches as even as can be.

    Args:
        shape: of network and pictures.
        rows: pictures that come at once, at most.
        room: bytes there are; None where nobody knows.
        pixel_bytes: what the network takes for each input pixel.
        tile: `auto`, `off`, or a side in pixels.
        batch: `auto`, or a number.
    """
    most = float("inf") if room is None else room / max(pixel_bytes, 1)
    side: int | None = tile if isinstance(tile, int) else None
    if tile == "auto":
        while window_pixels(shape, side) > most and (less := smaller(shape, side)) is not None:
            side = less
    pieces = rows * len(shape.tiling(side).pieces)
    if isinstance(batch, int):
        return Sizes(side, min(batch, pieces))
    window = window_pixels(shape, side)
    at_once = max(1, min(pieces, _MOST_BATCH, int(min(most, max(ENOUGH, window)) // window)))
    batches = -(-pieces // at_once)
    return Sizes(side, -(-pieces // batches))  # the last batch is filled up with what is thrown away


def window_pixels(shape: Shape, tile: int | None) -> int:
    """Of one window."""
    high, wide = shape.tiling(tile).window
    return high * wide


def smaller(shape: Shape, tile: int | None) -> int | None:
    """Half the tile, or None where that is no smaller or too small to be of use."""
    if shape.halo is None:
        return None
    half = -(-(tile or max(shape.height, shape.width)) // 2)
    if half < min(SMALLEST_TILE, tile or SMALLEST_TILE) or window_pixels(shape, half) >= window_pixels(shape, tile):
        return None
    return half
