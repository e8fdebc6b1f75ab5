"""Times for encoders that only count frames: MPEG-1, 2 and 4 write a frame rate into their bitstream, not a clock."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpupipe.codecs.base import Packet

_MPEG = tuple(Fraction(n, 1001) for n in (24000, 30000, 60000)) + tuple(Fraction(n) for n in (24, 25, 30, 50, 60))
"""ISO/IEC 13818-2, table 6-4."""
_CLOCK = 65535
"""Largest vop_time_increment_resolution of ISO/IEC 14496-2."""


def bitstream_rate(encoder: str, rate: Fraction) -> Fraction:
    """The rate nearest to `rate` that the bitstream can name; the container's times stay exact whatever it says."""
    if encoder == "mpeg4":
        allowed = (rate.limit_denominator(d) for d in (1001, 100, 10, 1))
        return next((r for r in allowed if 0 < r.numerator <= _CLOCK), Fraction(25))
    return min(_MPEG, key=lambda one: abs(one - rate))


class FrameNumbers:
    """Gives an encoder 0, 1, 2 ... for the pts of its pictures, and its packets the real times.

    Args:
        step: nominal ticks a frame; times before the first picture, which only decoding has, are made with it.
    """

    def __init__(self, step: Fraction) -> None:
        self._step = step
        self._pts: dict[int, int] = {}
        self._next = 0
        self._first: int | None = None

    def number(self, pts: int) -> int:
        """The number of the next picture in display order, shown at `pts`."""
        self._first = pts if self._first is None else self._first
        number, self._next = self._next, self._next + 1
        self._pts[number] = pts
        return number

    def restore(self, packet: Packet) -> None:
        """Puts pts and dts of a packet on the real clock; a dts is the pts of the picture of that number."""
        decoded = packet.dts if packet.dts is not None else packet.pts
        assert decoded is not None
        packet.pts = self._time(packet.pts if packet.pts is not None else decoded)
        packet.dts = self._time(decoded)
        for number in [n for n in self._pts if n < decoded]:
            del self._pts[number]

    def _time(self, number: int) -> int:
        if number in self._pts:
            return self._pts[number]
        return floor((self._first or 0) + number * self._step)
