"""SMPTE ST 12-1 timecode: labels of frames, drop-frame included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

_FORM = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})([:;.])(\d{2,3})")


def frames_per_second(rate: Fraction) -> int:
    """Frames that a second of timecode counts: 30 for 30000/1001."""
    return max(1, round(rate))


def can_drop(rate: Fraction) -> bool:
    """Whether drop-frame counting is defined: 29.97 and its multiples (59.94, 119.88)."""
    return rate.denominator != 1 and frames_per_second(rate) % 30 == 0


@dataclass(frozen=True, slots=True)
class Timecode:
    """One label; `str()` gives HH:MM:SS:FF, or HH:MM:SS;FF where drop-frame."""

    hours: int
    minutes: int
    seconds: int
    frames: int
    drop: bool = False

    def __str__(self) -> str:
        mark = ";" if self.drop else ":"
        return f"{self.hours:02}:{self.minutes:02}:{self.seconds:02}{mark}{self.frames:02}"

    @classmethod
    def parse(cls, text: str) -> Timecode:
        """Reads HH:MM:SS:FF; `;` or `.` before the frames means drop-frame. Raises ValueError."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a timecode HH:MM:SS:FF")
        hours, minutes, seconds, frames = (int(match[i]) for i in (1, 2, 3, 5))
        if minutes > 59 or seconds > 59:
            raise ValueError(f"{text!r} is not a timecode: minutes and seconds end at 59")
        return cls(hours, minutes, seconds, frames, match[4] != ":")

    @classmethod
    def from_number(cls, number: int, rate: Fraction, *, drop: bool) -> Timecode:
        """The label of the frame `number` frames after 00:00:00:00; wraps at 24 hours.

        Drop-frame skips the labels 0 and 1 (0..3 at 59.94) of each minute that is not a multiple of ten.
        """
        fps = frames_per_second(rate)
        drop = drop and can_drop(rate)
        skipped = fps // 15 if drop else 0
        ten_minutes = 600 * fps - 9 * skipped
        number %= 144 * ten_minutes
        tens, rest = divmod(number, ten_minutes)
        if drop and rest >= 60 * fps:
            number += skipped * (1 + (rest - 60 * fps) // (60 * fps - skipped))
        number += 9 * skipped * tens
        seconds, frames = divmod(number, fps)
        return cls(seconds // 3600, seconds // 60 % 60, seconds % 60, frames, drop)

    def number(self, rate: Fraction) -> int:
        """Frames since 00:00:00:00. Raises ValueError where the label does not exist at `rate`."""
        fps = frames_per_second(rate)
        if self.frames >= fps:
            raise ValueError(f"{self} does not exist: there are only {fps} frames a second")
        number = ((self.hours * 60 + self.minutes) * 60 + self.seconds) * fps + self.frames
        if not (self.drop and can_drop(rate)):
            return number
        skipped = fps // 15
        if self.seconds == 0 and self.frames < skipped and self.minutes % 10:
            raise ValueError(f"{self} does not exist: drop-frame timecode leaves it out")
        minutes = self.hours * 60 + self.minutes
        return number - skipped * (minutes - minutes // 10)

    @classmethod
    def from_smpte(cls, word: int, rate: Fraction) -> Timecode:
        """Unpacks the 32-bit binary form of ST 12-1 as libavutil keeps it (frames on top, hours at the bottom)."""
        hours, minutes, seconds, frames = (
            ((word >> shift) & units) + 10 * ((word >> (shift + 4)) & tens)
            for shift, units, tens in ((0, 15, 3), (8, 15, 7), (16, 15, 7), (24, 15, 3))
        )
        if rate > 30:  # two frames share a label, told apart by the field bit
            frames = 2 * frames + ((word >> (7 if rate == 50 else 23)) & 1)
        return cls(hours, minutes, seconds, frames, bool(word >> 30 & 1))

    @classmethod
    def from_mpeg(cls, code: int) -> Timecode:
        """Unpacks the 25-bit time_code of an MPEG GOP header."""
        return cls(code >> 19 & 31, code >> 13 & 63, code >> 6 & 63, code & 63, bool(code >> 24 & 1))


def offset(timecode: str, rate: Fraction, frames: int) -> str:
    """The label `frames` frames after `timecode`, at a nominal `rate`; drop-frame stays drop-frame.

    Raises ValueError for a label that is malformed or does not exist.
    """
    start = Timecode.parse(timecode)
    if start.drop and not can_drop(rate):
        start = Timecode(start.hours, start.minutes, start.seconds, start.frames)
    return str(Timecode.from_number(start.number(rate) + frames, rate, drop=start.drop))
