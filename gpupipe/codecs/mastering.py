"""Mastering display colour volume, SMPTE ST 2086: the one place that knows how it is written."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from gpupipe.errors import PlanError

_NUMBERS = r"\(\s*(\d+)\s*,\s*(\d+)\s*\)"
_TEXT = re.compile(rf"G{_NUMBERS}\s*B{_NUMBERS}\s*R{_NUMBERS}\s*WP{_NUMBERS}\s*L{_NUMBERS}\s*$")
COORDINATE, LUMINANCE = 50_000, 10_000
"""Units in 1 and in a cd/m2."""


class MasteringDisplay(NamedTuple):
    """Primaries in the standard's order, white point and luminance.

    Units are 0.00002 for coordinates and 0.0001 cd/m2. As text it is x265's notation, which plans hold:
    `G(x,y)B(x,y)R(x,y)WP(x,y)L(max,min)`.
    """

    green: tuple[int, int]
    blue: tuple[int, int]
    red: tuple[int, int]
    white: tuple[int, int]
    most: int
    least: int

    @classmethod
    def parse(cls, text: str) -> MasteringDisplay:
        """Raises PlanError where the text is not of that form."""
        match = _TEXT.match(text.strip())
        if match is None:
            raise PlanError(
                f"mastering display {text!r} is not understood",
                hint="write G(x,y)B(x,y)R(x,y)WP(x,y)L(max,min), all integers",
            )
        gx, gy, bx, by, rx, ry, wx, wy, most, least = map(int, match.groups())
        found = cls((gx, gy), (bx, by), (rx, ry), (wx, wy), most, least)
        if not found.valid:
            message = f"mastering display {text!r} has a number that a bitstream cannot hold"
            raise PlanError(message, hint="coordinates are 0 to 65535, in 0.00002; luminance is in 0.0001 cd/m2")
        return found

    def __str__(self) -> str:
        (gx, gy), (bx, by), (rx, ry), (wx, wy), most, least = self
        return f"G({gx},{gy})B({bx},{by})R({rx},{ry})WP({wx},{wy})L({most},{least})"

    @property
    def valid(self) -> bool:
        """Whether a bitstream can hold it: 16 bits a coordinate, 32 a luminance, none below 0."""
        coordinates = (*self.green, *self.blue, *self.red, *self.white)
        return all(0 <= n < 1 << 16 for n in coordinates) and all(0 <= n < 1 << 32 for n in (self.most, self.least))

    def payload(self) -> bytes:
        """The 24 bytes of an SEI message (H.264 and H.265 annex D, 137) and of MP4's `mdcv`."""
        return struct.pack(">8H2I", *self.green, *self.blue, *self.red, *self.white, self.most, self.least)
