"""Timestamps in integers, against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpupipe.journal import Journal
from gpupipe.media.rescale import Monotonic, Rescaler, SampleClock


@pytest.mark.parametrize("source", [Fraction(1, 90000), Fraction(1001, 24000), Fraction(1, 1000), Fraction(1, 48000)])
@pytest.mark.parametrize("target", [Fraction(1, 1000), Fraction(1, 24000), Fraction(1, 90000)])
@pytest.mark.parametrize("offset", [Fraction(0), Fraction(7, 3), Fraction(-23, 1000)])
def test_every_tick_is_the_nearest_one(source, target, offset):
    rescale = Rescaler(source, target, offset)
    for ticks in (-2049, -1, 0, 1, 7, 1001, 123457, 1 << 40):
        exact = (ticks * source - offset) / target
        assert abs(rescale(ticks) - exact) <= Fraction(1, 2)
        assert rescale.span(ticks, 1001) == rescale(ticks + 1001) - rescale(ticks)


def test_samples_leave_out_the_jitter_of_milliseconds_and_follow_a_gap():
    clock = SampleClock(tolerance=49)
    stated = [round(Fraction(n * 1024, 48)) * 48 for n in range(1000)]
    assert [clock(t, 1024) for t in stated] == [n * 1024 for n in range(1000)]
    assert clock(stated[-1] + 48000, 1024) == stated[-1] + 48000


def test_order_is_repaired_by_the_least_change():
    journal = Journal()
    rising = Monotonic(1, "stream 1", journal)
    assert [rising(t) for t in (0, 5, 5, 4, 10)] == [0, 5, 6, 7, 10]
    assert journal.entries["dts-repaired"].count == 2
    equal = Monotonic(0, "stream 1", Journal())
    assert [equal(t) for t in (0, 5, 5, 4)] == [0, 5, 5, 5]
