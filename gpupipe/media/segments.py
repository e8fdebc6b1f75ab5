"""Cuts a source at its key frames into pieces that can be decoded, resumed and rendered apart."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import av
from av.format import Flags
from av.stream import Discard

from gpupipe.codecs.matte import begins
from gpupipe.codecs.refresh import Refresh
from gpupipe.media.container import open_input
from gpupipe.media.packed import Packed, PackedReader, PacketIndex, Span
from gpupipe.media.probe import main_video

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpupipe.codecs.base import Packet
    from gpupipe.media.source import SourceInfo
    from gpupipe.media.window import Window

_UNCUT = Flags.ts_discont | Flags.no_timestamps | Flags.generic_index
_PLACED = "mov"
"""Part of the name of containers whose packets are read by their places: others say where a packet begins, not where
its data does."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A half-open piece of the video, `[start, end)` in its time base; None is open.

    A picture belongs to the segment that holds its pts: leading pictures of an open GOP, which are stored behind the
    key frame but shown before it, belong to the segment before.
    """

    start: int | None
    end: int | None
    frames: int
    """Pictures it holds, counted in the container: where another number is rendered, a warning tells it."""
    closed: bool
    """Whether all its pictures are stored before the key frame at `end`, so that reading can stop there."""
    lead: int | None = None
    """pts of the first picture that only leads in, for stages that remember; None where `start` is the first."""
    number: int = 0
    """Of the first picture, led in or shown, counted from the first of the run."""
    span: Span | None = field(default=None, compare=False, repr=False)
    """Its packets, where every packet of the file has its times."""

    @property
    def begin(self) -> int | None:
        """The pts from which pictures are needed."""
        return self.start if self.lead is None else self.lead


@dataclass(frozen=True, slots=True)
class Timetable:
    """When every picture of a source is shown, read from the container without decoding."""

    pts: Sequence[int]
    """In display order."""
    keyframes: dict[int, bool]
    """pts of each key frame in display order, and whether its GOP is closed: no picture of it is shown before it."""
    obstacle: str | None = None
    """Why the source cannot be cut; None where it can."""
    index: PacketIndex | None = None
    """Where the packets lie; None where one has no times."""

    def count(self, start: int | None, end: int | None) -> int:
        """Pictures with start <= pts < end."""
        low = 0 if start is None else bisect_left(self.pts, start)
        high = len(self.pts) if end is None else bisect_left(self.pts, end)
        return max(0, high - low)


@dataclass(slots=True)
class _Census:
    """What is learnt packet by packet, in decoding order."""

    shown: list[int] = field(default_factory=list)
    keys: dict[int, bool] = field(default_factory=dict)
    last_key: int | None = None
    obstacle: str | None = None
    index: PacketIndex | None = field(default_factory=PacketIndex)

    def add(self, packet: Packet, *, key: bool) -> None:
        """`key`: decoding may begin there."""
        if self.index is not None and not self.index.add(packet, key=key):
            self.index = None
        if packet.pts is None:
            self.obstacle = "it has pictures without timestamps"
            return
        if packet.is_corrupt:
            self.obstacle = "it is damaged"
        if packet.is_discard:
            return
        self.shown.append(packet.pts)
        if key:
            self.last_key = packet.pts
            self.keys[packet.pts] = True
        elif self.last_key is not None and packet.pts < self.last_key:
            self.keys[self.last_key] = False


def timetable(info: SourceInfo) -> Timetable:
    """Reads the times of all video packets: one pass over the file, about 200,000 packets a second, no decoding."""
    census, alpha = _Census(), info.video.format.alpha
    with open_input(info.path) as container:
        if Flags(container.format.flags) & _UNCUT:
            return Timetable((), {}, f"{info.container} has no index to find key frames by")
        video = main_video(container, str(info.path))
        refresh = Refresh(video)
        _only(container, video.index)
        try:
            for packet in container.demux(video):
                if packet.size:
                    census.add(packet, key=packet.is_keyframe and not refresh.gradual(packet))
                    if alpha and packet.is_keyframe and not begins(packet, info.video.codec):
                        census.obstacle = "its alpha has key frames elsewhere"
        except av.FFmpegError as error:
            census.obstacle = f"reading fails: {error.strerror}"
    ordered = sorted(census.shown)
    if any(a == b for a, b in pairwise(ordered)):
        census.obstacle = "its timestamps repeat"
    return Timetable(array("q", ordered), dict(sorted(census.keys.items())), census.obstacle, census.index)


def cut(
    times: Timetable, window: Window, seconds: Fraction, time_base: Fraction, lead: int = 0,
    *, tail: tuple[Fraction, Fraction] | None = None,
) -> tuple[Segment, ...]:  # fmt: skip
    """Segments of at least `seconds`, each but the first beginning at a key frame; together they are the window.

    Each is led in by up to `lead` pictures, none of them before the window. `tail` is (how many seconds before the end
    another length begins, that length).
    """
    first = window.start if window.start is not None else (times.pts[0] if times.pts else 0)
    end = window.end if window.end is not None else (times.pts[-1] if times.pts else 0)
    within, least = tail or (Fraction(0), seconds)

    def due_after(start: int) -> Fraction:
        return start + (least if start >= end - within / time_base else seconds) / time_base

    bounds: list[int | None] = [window.start]
    due = due_after(first)
    for key in times.keyframes:
        if key > first and key >= due and not window.past(key):
            bounds.append(key)
            due = due_after(key)
    bounds.append(window.end)
    return tuple(_segment(times, a, b, _lead(times, window, a, lead)) for a, b in pairwise(bounds))


def _lead(times: Timetable, window: Window, start: int | None, lead: int) -> tuple[int | None, int]:
    """The pts of the first picture that leads in, and its number in the run."""
    if start is None:
        return None, 0
    first = 0 if window.start is None else bisect_left(times.pts, window.start)
    own = bisect_left(times.pts, start)
    begin = max(first, own - lead)
    return (times.pts[begin] if begin < own else None), begin - first


def _segment(times: Timetable, start: int | None, end: int | None, lead: tuple[int | None, int]) -> Segment:
    closed = end is not None and times.keyframes.get(end, False)
    begin, number = lead
    span = _span(times.index, start if begin is None else begin, end, closed=closed)
    return Segment(start, end, times.count(start, end), closed, begin, number, span)


def located(info: SourceInfo, segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Segments of a plan that was stored, with their packets' places in the file; one pass over it.

    As they are, without that pass, where `SegmentReader` has no use for places.
    """
    if _PLACED not in info.container:
        return tuple(segments)
    index = timetable(info).index
    return tuple(
        replace(one, span=_span(index, one.begin, one.end, closed=one.closed)) if one.span is None else one
        for one in segments
    )


def _span(index: PacketIndex | None, start: int | None, end: int | None, *, closed: bool) -> Span | None:
    """The same packets that `SegmentReader` reads."""
    if index is None or not index.pts:
        return None
    first = 0 if start is None else index.key_at(start)
    if end is None:
        return Span(index, first, len(index.pts))
    last = bisect_left(index.dts, end, lo=first)
    return Span(index, first, min(last, index.key_from(end)) if closed else last)


def twin(packet: Packet) -> Packet:
    """A copy of a packet's data, times and key flag."""
    copy = av.Packet(bytes(packet))
    copy.pts, copy.dts, copy.is_keyframe = packet.pts, packet.dts, packet.is_keyframe
    return copy


class SegmentReader:
    """Reads the video packets of one segment after another from a file that it keeps open."""

    def __init__(self, info: SourceInfo) -> None:
        self._container = open_input(info.path)
        self.video_stream = main_video(self._container, str(info.path))
        _only(self._container, self.video_stream.index)
        self._refresh = Refresh(self.video_stream)
        self._lead_in = round(2 / info.video.time_base)
        self._earliest = info.video.start or 0
        self._peeked: Packet | None = None
        self._moved = False
        """Whether a segment was read: the file is not at its beginning any more."""
        self._packed = PackedReader(info.path, self.video_stream) if _PLACED in self._container.format.name else None

    def peek(self) -> Packet | None:
        """A copy of the first packet's data, times and key flag; before any segment is read."""
        self._peeked = next(self._container.demux(self.video_stream), None)
        if self._peeked is None or not self._peeked.size:
            return None
        return twin(self._peeked)

    def packed(self, segment: Segment) -> Packed | None:
        """All packets of a segment read at once, as Annex-B; None where they have to be demuxed: see `packets`."""
        return self._packed.read(segment.span) if self._packed is not None and segment.span is not None else None

    def packets(self, segment: Segment) -> Iterator[Packet]:
        """Packets from the key frame at or before the segment's first picture to the last that holds one of its own."""
        for packet in self._from(segment.begin):
            if segment.end is not None and packet.size and packet.pts is not None:
                if segment.closed and packet.is_keyframe and packet.pts >= segment.end:
                    return
                if packet.dts is not None and packet.dts >= segment.end:
                    return
            if packet.size:
                yield packet

    def _from(self, start: int | None) -> Iterator[Packet]:
        """Containers seek by dts or by pts and may land late, or where no picture is whole.

        Then a little earlier is tried, at last the beginning.
        """
        peeked, self._peeked = self._peeked, None
        moved, self._moved = self._moved, True
        if start is None and not moved:
            if peeked is not None:
                yield peeked
            yield from self._container.demux(self.video_stream)
            return
        start = target = self._earliest if start is None else start
        while True:
            self._container.seek(target, stream=self.video_stream, backward=True)
            packets = self._container.demux(self.video_stream)
            first = next(packets)
            whole = not self._refresh.gradual(first)
            if (first.pts is not None and first.pts <= start and whole) or target < self._earliest:
                break
            target -= self._lead_in
        yield first
        yield from packets

    def close(self) -> None:
        """Closes the file."""
        self._container.close()
        if self._packed is not None:
            self._packed.close()


def _only(container: av.container.InputContainer, index: int) -> None:
    """Has libav skip all other streams."""
    for stream in container.streams:
        if stream.index != index:
            stream.discard = Discard.all
