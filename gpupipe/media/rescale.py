"""Exact timestamps: from a source's time base to an output's, in integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

    from gpupipe.journal import Journal


class Rescaler:
    """Moves timestamps to another time base and origin, each by itself, so that no error adds up.

    Args:
        source: time base of what comes in.
        target: time base of what goes out.
        offset: seconds that become 0.
    """

    def __init__(self, source: Fraction, target: Fraction, offset: Fraction) -> None:
        scale, shift = source / target, offset / target
        self._den = math.lcm(scale.denominator, shift.denominator)
        self._num = scale.numerator * (self._den // scale.denominator)
        self._shift = shift.numerator * (self._den // shift.denominator)

    def __call__(self, ticks: int) -> int:
        """The nearest tick of the target, halves upwards."""
        return (2 * (ticks * self._num - self._shift) + self._den) // (2 * self._den)

    def span(self, start: int, length: int) -> int:
        """Length in target ticks of what begins at `start`, so that ends and beginnings meet."""
        return self(start + length) - self(start)


class SampleClock:
    """Gives audio packets times on their own sample grid where the source's ticks are coarser.

    Matroska says 21 or 22 ms for what is 1024 samples at 48 kHz; in MP4 that jitter would become sample durations.
    What the packets' own lengths say is believed while it stays within a source tick of the stated time.
    """

    def __init__(self, tolerance: int) -> None:
        self._tolerance = tolerance
        self._next: int | None = None

    def __call__(self, stated: int, samples: int) -> int:
        """Time of a packet of `samples` samples, stated to begin at `stated`; both in samples."""
        exact = self._next
        if exact is None or abs(exact - stated) > self._tolerance:
            exact = stated
        self._next = exact + samples
        return exact


class Monotonic:
    """Keeps decoding times rising, by the least change, and reports each repair."""

    def __init__(self, step: int, what: str, journal: Journal) -> None:
        self._step, self._what, self._journal = step, what, journal
        self._last: int | None = None

    def __call__(self, dts: int) -> int:
        """`dts`, or the least one that may follow the last."""
        last = self._last
        if last is not None and dts < last + self._step:
            self._journal.warn(
                "dts-repaired", f"{self._what}: decoding time does not rise, moved forward", place=f"dts {dts}"
            )
            dts = last + self._step
        self._last = dts
        return dts
