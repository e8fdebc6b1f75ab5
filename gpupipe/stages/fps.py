"""Constant frame rate by time: frames are repeated or dropped, none is blended."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from gpupipe.stages import base

_LARGEST = 1000
_INT32 = (1 << 31) - 1  # libav keeps rates and time bases as two of these
_NUMBER = re.compile(r"-?[0-9]{1,10}(\.[0-9]{0,10})?|-?[0-9]{1,10}\s*/\s*[0-9]{1,10}")
_NTSC = {"23.976": 24, "23.98": 24, "29.97": 30, "47.952": 48, "47.95": 48, "59.94": 60, "119.88": 120}
"""Rounded names of N * 1000 / 1001, as SMPTE ST 12 and every camera menu use them."""


def _exact_rate(value: object) -> Fraction:
    """25, 12.5, "24000/1001", and the rounded NTSC names 23.976, 23.98, 29.97, 47.952, 59.94, 119.88 as N*1000/1001."""
    text = str(value).strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(f'a rate is frames a second: 25, 29.97 or "24000/1001", not {value!r}')
    if text in _NTSC:
        return Fraction(1000 * _NTSC[text], 1001)
    try:
        rate = Fraction(text)
    except ZeroDivisionError:
        raise ValueError(f"a rate lies above 0 and up to {_LARGEST} frames a second, not {value}") from None
    if "." in text and (rate * 8).denominator != 1:
        raise ValueError(f'{text} is not an exact rate; write it as a fraction such as "24000/1001"')
    if not 0 < rate <= _LARGEST:
        raise ValueError(f"a rate lies above 0 and up to {_LARGEST} frames a second, not {value}")
    if max(rate.numerator, rate.denominator) > _INT32:
        raise ValueError(f"a rate's two numbers go up to {_INT32}, not {value}")
    return rate


class FpsSettings(base.Settings):
    """The new rate."""

    rate: Annotated[Fraction, BeforeValidator(_exact_rate)]
    """Frames a second, exact."""


class Fps:
    """Not a pixel stage: the executor reads `rate` and shows, at every output time, the frame of that time."""

    Settings: ClassVar[type[base.Settings]] = FpsSettings

    def __init__(self, settings: FpsSettings) -> None:
        self.settings = settings
        self.rate: Fraction = settings.rate


STAGE = Fps
