"""Timecode against SMPTE's known values and against counting by the rule."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpupipe.media.timecode import Timecode, offset

NTSC, NTSC60 = Fraction(30000, 1001), Fraction(60000, 1001)


@pytest.mark.parametrize(
    ("text", "rate", "number"),
    [
        ("00:00:59;29", NTSC, 1799),
        ("00:01:00;02", NTSC, 1800),
        ("00:02:00;02", NTSC, 3598),
        ("00:10:00;00", NTSC, 17982),
        ("01:00:00;00", NTSC, 107892),
        ("23:59:59;29", NTSC, 2589407),
        ("00:01:00;04", NTSC60, 3600),
        ("00:10:00;00", NTSC60, 35964),
        ("01:00:00;00", NTSC60, 215784),
        ("01:00:00:00", NTSC, 108000),
        ("01:00:00:00", Fraction(25), 90000),
        ("10:00:00:23", Fraction(24000, 1001), 864023),
        ("00:00:01:00", Fraction(50), 50),
    ],
)
def test_known_values(text, rate, number):
    timecode = Timecode.parse(text)
    assert timecode.number(rate) == number
    assert Timecode.from_number(number, rate, drop=timecode.drop) == timecode


@pytest.mark.parametrize(("rate", "fps", "skipped"), [(NTSC, 30, 2), (NTSC60, 60, 4)])
def test_drop_frame_by_counting(rate, fps, skipped):
    """Every label of 21 minutes, in order, leaving out the first ones of each minute but the tens."""
    labels = (
        (m, s, f) for m in range(21) for s in range(60) for f in range(fps) if not (s == 0 and f < skipped and m % 10)
    )
    for number, (minute, second, frame) in enumerate(labels):
        timecode = Timecode.from_number(number, rate, drop=True)
        assert (timecode.minutes, timecode.seconds, timecode.frames) == (minute, second, frame)
        assert timecode.number(rate) == number


def test_offset_of_a_trim():
    """D20."""
    assert offset("03:00:00:00", Fraction(25), 131) == "03:00:05:06"
    assert offset("00:00:59;28", NTSC, 2) == "00:01:00;02"
    assert offset("00:00:59:28", NTSC, 2) == "00:01:00:00"
    assert offset("15:44:35:10", NTSC, 0) == "15:44:35:10"
    assert offset("23:59:59:24", Fraction(25), 1) == "00:00:00:00"
    assert offset("23:59:59;29", NTSC, 1) == "00:00:00;00"
    assert offset("01:00:00;00", Fraction(25), 1) == "01:00:00:01", "no drop-frame at 25"


@pytest.mark.parametrize("text", ["", "1:2:3", "00:00:60:00", "00:60:00:00", "00:00:10.5", "aa:00:00:00"])
def test_what_is_no_timecode(text):
    with pytest.raises(ValueError, match="timecode"):
        Timecode.parse(text)


def test_labels_that_do_not_exist():
    with pytest.raises(ValueError, match="leaves it out"):
        Timecode.parse("00:01:00;01").number(NTSC)
    with pytest.raises(ValueError, match="only 25 frames"):
        Timecode.parse("00:00:00:25").number(Fraction(25))


def test_packed_forms():
    """ST 12-1 as in libavutil's av_timecode_get_smpte, and MPEG's 25 bits."""
    packed = 0x15 << 24 | 0x36 << 16 | 0x59 << 8 | 0x21
    assert str(Timecode.from_smpte(packed, Fraction(25))) == "21:59:36:15"
    assert str(Timecode.from_smpte(packed | 1 << 30, NTSC)) == "21:59:36;15"
    assert str(Timecode.from_smpte(packed | 1 << 7, Fraction(50))) == "21:59:36:31"
    assert str(Timecode.from_smpte(packed | 1 << 23, NTSC60)) == "21:59:36:31"
    assert str(Timecode.from_mpeg(10 << 19 | 59 << 13 | 1 << 12 | 36 << 6 | 24)) == "10:59:36:24"
    assert str(Timecode.from_mpeg(1 << 24 | 1 << 19 | 1 << 12 | 36 << 6 | 2)) == "01:00:36;02"
