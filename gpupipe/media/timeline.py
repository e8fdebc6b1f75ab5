"""When pictures are shown: repaired timestamps, ranges, and the change to a constant rate. Integers and Fractions only.

Policy of repairs (each is counted in the journal with its place):

* A missing pts continues from the last known one by the picture's own duration, or by the nominal rate where it has
  none. The sum is an exact rational, rounded only for the result, so a thousand missing pts do not drift.
* A pts that is not later than the one before it is moved to one tick after that: the least that makes time rise.
  Later pts are kept as they are, so sound stays in step. Nothing is dropped.
* A clock that jumps (transport and program streams) is put right on packets, before decoding, by `media.discontinuity`.

A picture sequence without any pts begins at 0, or where the caller says.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

from gpupipe.frame import NO_PTS
from gpupipe.media.window import Window, origin, resolve_range

if TYPE_CHECKING:
    from gpupipe.journal import Journal

__all__ = ["FrameClock", "Retimer", "Window", "origin", "resolve_range"]


class FrameClock:
    """Gives each decoded picture, in display order, its final pts.

    Args:
        time_base: of all pts, seconds a tick.
        rate: nominal frames a second, used only where timestamps are missing.
        journal: is told of each repair as `pts-missing` or `pts-repaired`.
        start: pts of the first picture where it has none itself.
    """

    def __init__(self, time_base: Fraction, rate: Fraction, journal: Journal, start: int = 0) -> None:
        self._nominal = 1 / (rate * time_base)
        self._journal = journal
        self._last = NO_PTS
        self._base: Fraction | int = start
        self._length = 0
        """Where the last picture was meant to be, and how long it said it lasts: the next belongs behind it."""
        self._count = 0

    def stamp(self, pts: int | None, duration: int = 0) -> int:
        """The picture's pts: strictly later than that of the one before.

        Args:
            pts: as decoded, in ticks; None or NO_PTS where missing.
            duration: the picture's own display time in ticks; 0 where unknown.
        """
        if pts is not None and pts > self._last:
            self._last = self._base = pts  # the common case, thousands of times a second: no fractions
            self._length = duration
            self._count += 1
            return pts
        return self._repaired(pts, duration)

    def _repaired(self, pts: int | None, duration: int) -> int:
        exact = Fraction(pts) if pts is not None and pts != NO_PTS else self._next()
        place = f"frame {self._count}"
        if pts is None or pts == NO_PTS:
            message = "pictures without a timestamp were timed by the frame rate"
            self._journal.warn("pts-missing", message, place=place)
        ticks = floor(exact + Fraction(1, 2))
        if ticks <= self._last:
            if pts is not None and pts != NO_PTS:
                message = f"repeated or backward timestamps were moved to just after the one before (first: pts {pts})"
                self._journal.warn("pts-repaired", message, place=f"{place}, pts {pts}")
            ticks = self._last + 1
            exact = Fraction(ticks)
        self._last, self._base, self._length = ticks, exact, duration
        self._count += 1
        return ticks

    def _next(self) -> Fraction:
        """Where the next picture belongs if it does not say."""
        return self._base + self._step(self._length) if self._count else Fraction(self._base)

    def _step(self, duration: int) -> Fraction:
        """A stated duration that is just the rounded nominal one would add up its rounding; the exact one is meant."""
        return Fraction(duration) if duration > 0 and abs(duration - self._nominal) >= 1 else self._nominal


class Retimer:
    """To an exact constant rate, by time: at each output instant the picture that was current is shown.

    Rounding is that of ffmpeg's `fps=round=near`: a picture takes over at the output instant nearest to its pts (halves
    go up), and stays until its successor takes over. A picture that gets no instant is dropped, one that gets several
    is repeated. Total duration is kept to within half an output frame. Output pts are in a time base of 1/rate.

    Each call answers for the picture *before*, since only its successor tells how long it lasts::

        for picture in pictures:
            for n in retimer.push(picture.pts, picture.duration):
                show(previous, pts=n)
            previous = picture
        for n in retimer.finish():
            show(previous, pts=n)
    """

    def __init__(self, rate: Fraction, time_base: Fraction) -> None:
        self._scale = rate * time_base
        self._from: int | None = None
        """Output instant at which the current picture takes over."""
        self._end = 0
        self.shown = 0
        """Output pictures so far."""
        self.repeated = 0
        """Output pictures that show the same input again."""
        self.dropped = 0
        """Input pictures that are never shown."""

    def push(self, pts: int, duration: int) -> range:
        """Takes a picture with a later pts than before; returns the output pts of the picture before it.

        Args:
            pts: in input ticks.
            duration: in input ticks; matters for the last picture only.
        """
        start = self._instant(pts)
        shown = range(0) if self._from is None else self._settle(start)
        self._from = start
        self._end = self._instant(pts + max(1, duration))
        return shown

    def finish(self) -> range:
        """Output pts of the last picture; at least one where nothing else was shown."""
        if self._from is None:
            return range(0)
        end = self._end if self.shown else max(self._end, self._from + 1)
        shown, self._from = self._settle(end), None
        return shown

    def _settle(self, end: int) -> range:
        assert self._from is not None
        shown = range(self._from, end)
        self.shown += len(shown)
        self.repeated += max(0, len(shown) - 1)
        self.dropped += not shown
        return shown

    def _instant(self, pts: int) -> int:
        return floor(pts * self._scale + Fraction(1, 2))
