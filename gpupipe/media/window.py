"""Ranges of a source: from the user's words to pts."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING, NamedTuple

from gpupipe.errors import ConfigError, PlanError
from gpupipe.media.timecode import Timecode, frames_per_second

if TYPE_CHECKING:
    from gpupipe.media.source import SourceInfo

# Digits are counted: 1e99999999 is a number that takes minutes to write out, and no time of any file.
_SECONDS = re.compile(r"[0-9]{1,12}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,2})?|\.[0-9]{1,40}")
_CLOCK = re.compile(r"(?:([0-9]{1,6}):)?([0-9]{1,2}):([0-9]{1,2}(?:\.[0-9]{1,40})?)")
_PTS = re.compile(r"pts:\s*(-?[0-9]{1,18})")
_UNTRUSTED = frozenset({"mpegts", "mpeg"})
"""Containers whose duration is a difference of clocks that may have been reset in between."""


class Window(NamedTuple):
    """Half-open, in ticks of the video's time base; None is open."""

    start: int | None
    end: int | None

    def holds(self, pts: int) -> bool:
        """Whether a picture of that pts is inside."""
        return (self.start is None or pts >= self.start) and not self.past(pts)

    def past(self, pts: int) -> bool:
        """Whether that pts and all later ones are behind the end."""
        return self.end is not None and pts >= self.end


def resolve_range(start: str | None, end: str | None, info: SourceInfo) -> Window:
    """The frames from the first at or after `start` up to, and without, the first at or after `end`.

    Forms: seconds ('12.5') and 'HH:MM:SS.fff' or 'MM:SS', both counted from the file's start (a player's zero); a
    timecode 'HH:MM:SS:FF' or 'HH:MM:SS;FF' as burnt in or shown by a deck; 'pts:N' in the video's own ticks.

    Raises:
        ConfigError: a text is none of these.
        PlanError: the range is empty or lies outside the file, or a timecode was asked of a source without one.
    """
    window = Window(_ticks(start, "range.start", info), _ticks(end, "range.end", info))
    _check(window, start, end, info)
    return window


def origin(text: str | None, start: int | None, info: SourceInfo) -> Fraction:
    """Seconds on the source's clock that become 0 of the output: where the file begins, or the range.

    A range from a timecode begins with the very frame of that label, not with the tolerance before it.

    Args:
        text: `start` as `resolve_range` was given it.
        start: what it made of that, in ticks.
        info: the source.
    """
    if start is None or text is None:
        return info.start
    video = info.video
    if not any(form.fullmatch(text.strip()) for form in (_PTS, _SECONDS, _CLOCK)):
        first = video.start or 0
        frames = ceil((start - first) * video.time_base * video.rate)
        start = first + floor(frames / (video.rate * video.time_base))  # a rounded pts is never earlier than that
    return start * video.time_base


def _ticks(text: str | None, key: str, info: SourceInfo) -> int | None:
    if text is None:
        return None
    text = text.strip()
    tick = info.video.time_base
    if match := _PTS.fullmatch(text):
        return int(match[1])
    if _SECONDS.fullmatch(text):
        return ceil((info.start + Fraction(text)) / tick)
    if match := _CLOCK.fullmatch(text):
        if int(match[2]) > 59 or Fraction(match[3]) >= 60:
            raise ConfigError(f"{text!r} is not a time: minutes and seconds end at 59", where=key)
        seconds = (int(match[1] or 0) * 60 + int(match[2])) * 60 + Fraction(match[3])
        return ceil((info.start + seconds) / tick)
    try:
        timecode = Timecode.parse(text)
    except ValueError:
        hint = "seconds (12.5), 'HH:MM:SS.fff', a timecode 'HH:MM:SS:FF' or 'pts:N'"
        raise ConfigError(f"{text!r} is not a time", where=key, hint=hint) from None
    return _timecode_ticks(timecode, key, info)


def _timecode_ticks(wanted: Timecode, key: str, info: SourceInfo) -> int:
    """Half a frame early, because real pts are rounded to ticks and may lie just before the exact instant."""
    video = info.video
    if video.timecode is None:
        hint = "give seconds or 'HH:MM:SS.fff' instead"
        raise PlanError(f"timecode {wanted} asked of a source that has none", where=key, hint=hint)
    try:
        first = Timecode.parse(video.timecode)
        if wanted.drop != first.drop:
            mark = "drop-frame (;)" if first.drop else "non-drop-frame (:)"
            raise PlanError(f"the source's timecode {first} is {mark}", where=key, hint=f"write {wanted} that way")
        frames = wanted.number(video.rate) - first.number(video.rate)
    except ValueError as error:
        raise PlanError(str(error), where=key) from None
    if frames < 0:
        day = Timecode(24, 0, 0, 0, first.drop).number(video.rate)
        if frames + day > 12 * 3600 * frames_per_second(video.rate):
            raise PlanError(f"timecode {wanted} lies before the source's first, {first}", where=key)
        frames += day  # the recording runs over midnight
    return (video.start or 0) + ceil((frames - Fraction(1, 2)) / (video.rate * video.time_base))


def _check(window: Window, start: str | None, end: str | None, info: SourceInfo) -> None:
    if window.start is not None and window.end is not None and window.end <= window.start:
        raise PlanError(f"range.end {end} is not after range.start {start}", where="range")
    video = info.video
    if window.end is not None and window.end <= (video.start if video.start is not None else 0):
        raise PlanError(f"range.end {end} lies before the first picture", where="range.end")
    if info.duration is None or info.container in _UNTRUSTED:
        return
    last = (info.start + info.duration) / video.time_base
    if video.start is not None and video.duration is not None:
        last = max(last, Fraction(video.start + video.duration))
    for key, text, ticks, slack in (
        ("range.start", start, window.start, Fraction(0)),
        ("range.end", end, window.end, 1 + 1 / (video.rate * video.time_base)),
    ):
        if ticks is not None and ticks >= last + slack:
            length = float(last * video.time_base - info.start)
            raise PlanError(
                f"{text} lies beyond the end, the file lasts {length:.3f} s", where=key, hint="see `gpupipe probe`"
            )
