"""Looks at a joined output before it gets its name: every picture there, at its time, and whole at the joins."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import av

from gpupipe.errors import MediaError
from gpupipe.media.container import open_input
from gpupipe.media.output import shown
from gpupipe.media.probe import main_video
from gpupipe.render.feed import check_stop
from gpupipe.render.pieces import times
from gpupipe.render.watch import enter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpupipe.codecs.base import Packet
    from gpupipe.render.ledger import Ledger
    from gpupipe.render.progress import StopFlag

MOST_DECODED = 16
"""Joins that are decoded, evenly over the run: each costs up to two groups of pictures."""
_BACK = Fraction(1)
BEYOND = 2
"""Pictures decoded behind a join."""


@dataclass(frozen=True, slots=True)
class _Seam:
    """Where two segments meet, on the output's clock."""

    key: int
    """pts of the last key frame before it."""
    last: int
    """pts of the last picture before it."""


class _Seen(NamedTuple):
    """What counts of a packet of the output."""

    pts: Any
    duration: int | None
    key: bool


def inspect(ledger: Ledger, path: Path, stop: StopFlag) -> None:
    """Raises MediaError where the file at `path` is not what the ledger's segments make together."""
    enter("inspect")
    where = shown(path)
    with open_input(path) as container:
        seams = _count(ledger, container, where, stop)
    step = max(1, -(-len(seams) // MOST_DECODED))
    with open_input(path) as container:
        for seam in seams[::step]:
            check_stop(stop)
            _decode(container, seam, where)


def _count(ledger: Ledger, container: Any, where: str, stop: StopFlag) -> list[_Seam]:
    """Compares number and times of the packets, segment by segment; returns where segments meet."""
    video = main_video(container, where)
    # Without their bytes: a segment of ProRes holds gigabytes.
    packets = (_Seen(p.pts, p.duration, p.is_keyframe) for p in container.demux(video) if p.size)
    seams: list[_Seam] = []
    clock = _Clock(ledger, video.time_base or Fraction(1, 1), where)
    for index in range(len(ledger.plan.segments)):
        check_stop(stop)
        wanted = times(ledger.path(index))
        found = list(islice(packets, len(wanted)))
        clock.compare(index, wanted, found)
        if found:
            keys = [packet.pts for packet in found if packet.key]
            if not found[0].key:
                raise MediaError("a segment does not begin with a key frame", where=f"{where}: pts {found[0].pts}")
            seams.append(_Seam(max(keys), max(packet.pts for packet in found)))
    if (more := next(packets, None)) is not None:
        raise MediaError("the output has more pictures than were rendered", where=f"{where}: pts {more.pts}")
    clock.compare_end(video)
    return seams[:-1]


class _Clock:
    """Compares times of the output with those that were rendered: the same but for a constant, within one tick."""

    def __init__(self, ledger: Ledger, time_base: Fraction, where: str) -> None:
        self._source, self._target, self._where = ledger.plan.encoder.time_base, Fraction(time_base), where
        self._shift: Fraction | None = None
        self._begin = Fraction(0)
        self._rendered, self._end, self._first = Fraction(0), Fraction(0), 0
        self._longest = 1 / ledger.plan.encoder.rate
        """Seconds of a picture. MP4 states times between decoding: at a variable rate the last may seem as long."""

    def compare(self, index: int, wanted: list[tuple[int, int]], found: list[_Seen]) -> None:
        """(pts, duration) of a segment's pictures, and its packets in the output."""
        if len(wanted) != len(found):
            message = f"segment {index} has {len(wanted)} pictures and the output {len(found)} of them"
            raise MediaError(message, where=self._where)
        for (pts, duration), at in zip(wanted, sorted(p.pts for p in found if p.pts is not None), strict=True):
            here, there = pts * self._source, at * self._target
            if self._shift is None:
                self._shift, self._first = there - here, pts
                self._begin = there
            if abs(there - here - self._shift) > self._target:
                raise MediaError(
                    f"a picture is at {float(there):.6f} s, not at {float(here + self._shift):.6f} s",
                    where=f"{self._where}: segment {index}",
                )
            self._rendered = (pts + duration - self._first) * self._source
            self._longest = max(self._longest, duration * self._source)
        ends = [packet.pts + packet.duration for packet in found if packet.pts is not None and packet.duration]
        self._end = max(ends, default=0) * self._target

    def compare_end(self, video: av.VideoStream) -> None:
        """How long the pictures are shown together: when the last one ends, and what the header says, if it does."""
        stated = Fraction(video.duration or 0) * self._target
        for seconds in (self._end - self._begin if self._end else 0, stated):
            if seconds and abs(seconds - self._rendered) > self._longest + self._target:
                message = f"its pictures last {float(seconds):.6f} s, not {float(self._rendered):.6f} s"
                raise MediaError(message, where=self._where)


def _decode(container: Any, seam: _Seam, where: str) -> None:
    """Decodes from the last key frame before a join to some pictures behind it."""
    video = main_video(container, where)
    behind = 0
    reached = False
    for frame in _frames(_from_key(container, video, seam.key), video, where):
        if frame.is_corrupt:
            raise MediaError("a picture at a join is damaged", where=f"{where}: pts {frame.pts}")
        reached = reached or frame.pts == seam.last
        behind += frame.pts is not None and frame.pts > seam.last
        if behind == BEYOND:
            break
    if not reached or not behind:
        raise MediaError("the pictures at a join cannot be decoded", where=f"{where}: pts {seam.last}")


def _from_key(container: Any, video: av.VideoStream, key: int) -> Iterator[Packet]:
    """Packets from the key frame at that pts on; containers without an index are searched, and may be found late."""
    back = round(_BACK / Fraction(video.time_base or 1))
    for target in (key, key - back, key - 4 * back, key - 16 * back, None):
        container.seek(0 if target is None else target, stream=None if target is None else video, backward=True)
        packets = container.demux(video)
        for packet in packets:
            if packet.size and packet.pts == key:
                yield packet
                yield from packets
                return
            if packet.pts is not None and packet.dts is not None and packet.dts > key:
                break  # too late: once more, from further in front


def _frames(packets: Iterator[Packet], video: av.VideoStream, where: str) -> Iterator[av.VideoFrame]:
    try:
        for packet in packets:
            yield from video.codec_context.decode(packet)
    except av.EOFError:
        return
    except av.FFmpegError as error:
        raise MediaError(f"it does not decode at a join: {error.strerror}", where=where) from None
