"""Clocks that jump inside a transport or program stream: joins, resets, second wraps.

libavformat undoes one 33-bit wrap; everything else reaches us as a jump of dts. As ffmpeg's `dts_delta_threshold` does,
a jump is answered by one offset for all streams, so that sound and picture stay together. Unlike ffmpeg:

* The main video sets the offset, such that its pictures go on after exactly one frame. Packets of other streams that
  jump first wait for it.
* Each stream changes to the new offset at its own first packet after the join. Demuxers hand out the last packets of
  one stream after the first of another, and those late ones keep the old offset.
* A picture stream is continued by pts, since the old and the new part may reorder pictures by different depths.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import av

    from gpupipe.journal import Journal
    from gpupipe.media.source import SourceInfo

    Packet: TypeAlias = av.Packet[Any]

FORWARD = Fraction(10)
"""Seconds ahead of its expected time from which a packet is a jump (ffmpeg's dts_delta_threshold)."""
BACKWARD = Fraction(1, 2)
"""Seconds behind."""
PATIENCE = 2000
"""Packets that wait for the main video to jump too; after that the jump is the stream's own."""


@dataclass(slots=True)
class _Track:
    """Where one stream stands, on the repaired time line."""

    offset: Fraction = Fraction(0)
    expected: Fraction | None = None
    """Seconds at which its next packet is due."""
    ends: Fraction | None = None
    """Seconds at which the last-shown picture so far ends."""
    last_dts: int | None = None


class ClockRepair:
    """Shifts packet timestamps so that time goes on across jumps of the clock.

    Args:
        info: the source; jumps are seen by its video and audio, which have no pauses.
        journal: is told of each jump as `clock-reset`, with byte position and pts.
    """

    def __init__(self, info: SourceInfo, journal: Journal) -> None:
        self._video, self._journal = info.video.index, journal
        self._continuous = frozenset(s.index for s in info.streams if s.kind in ("video", "audio"))
        self._ticks = {s.index: s.time_base or Fraction(1, 90000) for s in info.streams}
        self._frame = 1 / info.video.rate
        self._tracks: dict[int, _Track] = {}
        self._offsets = [Fraction(0)]
        """Of each part of the file so far, seconds."""
        self._waiting: list[Packet] = []

    def place(self, packet: Packet) -> list[Packet]:
        """Takes a packet in file order; returns those that are ready, repaired."""
        if self._waiting and packet.stream_index != self._video:
            self._waiting.append(packet)
            return self._release() if len(self._waiting) > PATIENCE else []
        jumped = self._jumps(packet)
        if packet.stream_index != self._video:
            if jumped and not self._follow(packet):
                self._waiting.append(packet)
                return []
            return [self._shift(packet)]
        if jumped:
            self._join(packet)
            return [self._shift(packet), *self._release()]
        return [self._shift(packet)]

    def finish(self) -> list[Packet]:
        """Returns what still waits at the end of the file."""
        return self._release()

    def _release(self) -> list[Packet]:
        waiting, self._waiting = self._waiting, []
        for packet in waiting:
            if self._jumps(packet) and not self._follow(packet):
                self._join(packet)
            self._shift(packet)
        return waiting

    def _track(self, packet: Packet) -> _Track:
        """The packet's stream; a new one, or one with pauses, takes the offset that brings it nearest to the video."""
        track = self._tracks.get(packet.stream_index)
        if track is None:
            track = self._tracks[packet.stream_index] = _Track()
        video = self._tracks.get(self._video)
        sparse = track.expected is None or packet.stream_index not in self._continuous
        if sparse and packet.stream_index != self._video and video is not None and video.expected is not None:
            at, due = self._time(packet), video.expected
            if at is not None:
                track.offset = min(self._offsets, key=lambda o: abs(at + o - due))
        return track

    def _time(self, packet: Packet) -> Fraction | None:
        """Seconds at which the packet is due by its own clock."""
        ticks = packet.dts if packet.dts is not None else packet.pts
        return None if ticks is None else ticks * self._ticks[packet.stream_index]

    def _jumps(self, packet: Packet) -> bool:
        track, at = self._track(packet), self._time(packet)
        if at is None or track.expected is None or packet.stream_index not in self._continuous:
            return False
        delta = at + track.offset - track.expected
        return delta > FORWARD or delta < -BACKWARD

    def _follow(self, packet: Packet) -> bool:
        """Takes over an offset that another stream's jump has set, where it fits."""
        track, at = self._tracks[packet.stream_index], self._time(packet)
        assert at is not None
        assert track.expected is not None
        fitting = [o for o in self._offsets if -FORWARD < at + o - track.expected < FORWARD]
        if fitting:
            track.offset = fitting[-1]
        return bool(fitting)

    def _join(self, packet: Packet) -> None:
        """A new offset, by which this packet goes on where its stream ended."""
        track, at = self._tracks[packet.stream_index], self._time(packet)
        assert at is not None
        assert track.expected is not None
        if packet.stream_index == self._video and packet.pts is not None and track.ends is not None:
            track.offset = track.ends - packet.pts * self._ticks[packet.stream_index]
        else:
            track.offset = track.expected - at
        self._offsets.append(track.offset)
        self._journal.warn(
            "clock-reset",
            f"the stream's clock jumps at byte {packet.pos}, pts {packet.pts} of stream {packet.stream_index}; "
            "all later timestamps were shifted to go on without a gap",
            place=f"byte {packet.pos}, pts {packet.pts}",
        )

    def _shift(self, packet: Packet) -> Packet:
        track, tick = self._track(packet), self._ticks[packet.stream_index]
        video = packet.stream_index == self._video
        duration = packet.duration * tick if packet.duration else (self._frame if video else Fraction(0))
        if track.offset:
            shift = round(track.offset / tick)
            packet.pts = None if packet.pts is None else packet.pts + shift
            packet.dts = None if packet.dts is None else packet.dts + shift
        at = self._time(packet)
        if at is not None:
            track.expected = at + duration
        if packet.pts is not None:
            end = packet.pts * tick + duration
            track.ends = end if track.ends is None else max(track.ends, end)
        return self._rising(packet, track)

    def _rising(self, packet: Packet, track: _Track) -> Packet:
        """Sound of the old and the new part may overlap by some packets; each moves just behind the one before."""
        if packet.dts is None or packet.stream_index == self._video:
            return packet
        if track.last_dts is not None and packet.dts <= track.last_dts and len(self._offsets) > 1:
            late = track.last_dts + 1 - packet.dts
            message = f"packets of stream {packet.stream_index} overlap where the clock jumped and were moved"
            self._journal.warn("dts-repaired", message, place=f"stream {packet.stream_index}, dts {packet.dts}")
            packet.dts += late
            packet.pts = None if packet.pts is None else max(packet.pts, packet.dts)
        track.last_dts = packet.dts
        return packet
