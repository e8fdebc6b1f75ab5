"""Streams that are copied while the video is rendered elsewhere: written in step with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from av.stream import Discard

from gpupipe.render.feed import AFTER_END

if TYPE_CHECKING:
    from collections.abc import Iterator
    from fractions import Fraction

    from gpupipe.codecs.base import Packet
    from gpupipe.media.demux import Demuxer
    from gpupipe.media.mux import Muxer
    from gpupipe.plan import Plan


class CopiedStreams:
    """Reads all streams but the main video and writes each packet when the video has come to its time."""

    def __init__(self, plan: Plan, demuxer: Demuxer, muxer: Muxer) -> None:
        self._plan, self._muxer = plan, muxer
        self._bases = {s.index: s.time_base for s in plan.source.streams}
        if len(plan.segments) > 1:  # else the clock may be repaired, for which all streams must be seen
            demuxer.video_stream.discard = Discard.all
        self._packets = self._wanted(demuxer.packets())
        self._next = next(self._packets, None)

    def _wanted(self, packets: Iterator[Packet]) -> Iterator[Packet]:
        end = self._plan.end_pts
        last = None if end is None else end * self._plan.source.video.time_base + AFTER_END
        for packet in packets:
            if packet.stream_index == self._plan.source.video.index:
                continue
            at = self._time(packet)
            if last is not None and at is not None and at > last:
                return
            yield packet

    def _time(self, packet: Packet) -> Fraction | None:
        at, base = packet.dts if packet.dts is not None else packet.pts, self._bases.get(packet.stream_index)
        return None if at is None or base is None else at * base

    @property
    def left(self) -> bool:
        """Whether any are still to be written."""
        return self._next is not None

    def up_to(self, video: Packet) -> None:
        """Writes what is due before a packet of the video, whose dts is in the encoder's time base."""
        due = None if video.dts is None else video.dts * self._plan.encoder.time_base
        while self._next is not None:
            at = self._time(self._next)
            if due is not None and at is not None and at > due:
                return
            self._muxer.write_copied(self._next)
            self._next = next(self._packets, None)

    def rest(self) -> None:
        """Writes all that is left."""
        while self._next is not None:
            self._muxer.write_copied(self._next)
            self._next = next(self._packets, None)
