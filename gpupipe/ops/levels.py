"""From integer codes to nominal values and back (ITU-T H.273, 8.3), component by component; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpupipe.color import Range

if TYPE_CHECKING:
    from gpupipe.format import PixelFormat


@dataclass(frozen=True, slots=True)
class Levels:
    """code = scale * value + offset; value is nominally 0..1 for luma and R'G'B', -0.5..0.5 for chroma."""

    scale: float
    offset: float
    top: int
    """Highest legal code, 2^depth - 1: footroom and headroom are kept."""


UNIT = Levels(1, 0, 1)
"""Levels of what is nominal already."""


def levels(depth: int, range_: Range, *, chroma: bool) -> Levels:
    """H.273 equations 20 to 28: the codes of a component of `depth` bits."""
    top = (1 << depth) - 1
    if range_ is Range.FULL:
        return Levels(top, (1 << (depth - 1)) if chroma else 0, top)
    step = 1 << (depth - 8)
    return Levels((224 if chroma else 219) * step, (128 if chroma else 16) * step, top)


def component_levels(pixels: PixelFormat, range_: Range, index: int) -> Levels:
    """Levels of component `index` (Y, Cb, Cr or R, G, B) of a format."""
    if pixels.layout == "float":
        return UNIT
    return levels(pixels.depth, range_, chroma=pixels.family == "yuv" and index > 0)
