"""Packets of the main video, one after another; those of all other streams are handed on as they come by."""

from __future__ import annotations

from array import array
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from gpupipe.errors import MediaError, SourceError, StoppedError
from gpupipe.media.segments import twin
from gpupipe.media.timeline import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpupipe.codecs.base import Packet
    from gpupipe.journal import Journal
    from gpupipe.media.demux import Demuxer
    from gpupipe.plan import Plan
    from gpupipe.render.progress import StopFlag

AFTER_END = Fraction(5)
"""Seconds of video read past the end of a range for the sake of copied packets that the container stores late."""


class Feed:
    """Iterates over the video packets of a whole run.

    Args:
        plan: what is run.
        demuxer: open, from the range's start on.
        journal: told of a stream that begins without a key frame, and of missing pictures.
        copied: takes the packets of all other streams.
        stop: looked at between packets.
    """

    def __init__(
        self, plan: Plan, demuxer: Demuxer, journal: Journal, copied: Callable[[Packet], None], stop: StopFlag
    ) -> None:
        self._plan, self._demuxer, self._journal, self._copied, self._stop = plan, demuxer, journal, copied, stop
        self._begun: Iterator[Packet] | None = None
        self._peeked: list[Packet] = []
        self._fed = False
        self._discarded = 0
        self._promised: Promised | None = Promised(plan)
        self.past_end = False
        """See `pictures.Packets`; what other streams still hold is handed on all the same."""

    def first(self) -> Packet | None:
        """A copy of the first packet, which still comes; None where it is no whole key frame with a time."""
        self._begun = self._video()
        packet = next(self._begun, None)
        if packet is None:
            return None
        self._peeked.append(packet)
        whole = packet.size and packet.is_keyframe and packet.pts is not None and not packet.is_corrupt
        return twin(packet) if whole else None

    def __iter__(self) -> Iterator[Packet]:
        while self._peeked:
            yield self._peeked.pop()
        yield from self._begun or self._video()

    def _video(self) -> Iterator[Packet]:
        video = self._plan.source.video.index
        for packet in self._demuxer.packets():
            check_stop(self._stop)
            if packet.stream_index != video:
                self._copied(packet)
            elif not self.past_end:
                self._note(packet)
                yield packet
            elif self._long_past_end(packet):
                break

    def _note(self, packet: Packet) -> None:
        if not self._fed and not packet.is_keyframe:
            message = "the video does not begin with a key frame: its first pictures may be missing or damaged"
            self._journal.warn("no-initial-keyframe", message, place=f"pts {packet.pts}")
        self._fed = True
        self._discarded += packet.is_discard
        if self._promised is not None and not self._promised.add(packet):
            self._promised = None

    def _long_past_end(self, packet: Packet) -> bool:
        at = packet.dts if packet.dts is not None else packet.pts
        end = self._plan.end_pts
        return at is not None and end is not None and (at - end) * self._plan.source.video.time_base > AFTER_END

    def check(self, decoded: int, shown: int) -> None:
        """After the last frame: nothing at all is an error, fewer than the container promises is a warning."""
        plan, promised = self._plan, self._plan.source.video.frames
        if shown == 0:
            what = "no frame could be decoded" if decoded == 0 else "no frame lies in the range"
            raise (SourceError if decoded == 0 else MediaError)(
                what, where=str(plan.source.path), hint="see `gpupipe probe`"
            )
        ranged = plan.start_pts is not None or plan.end_pts is not None
        if promised and not ranged:
            many, whose = promised - self._discarded, "that the container promises"
            seen, told = decoded, promised
        elif self._promised is not None:
            many, whose = self._promised.pictures, "of the range" if ranged else "of the file"
            seen, told = shown, many
        else:
            return
        fields = plan.source.video.format.interlaced and abs(many - 2 * seen) <= 1  # each is counted as a picture
        if many > seen and not fields:
            self._journal.warn("frames-missing", f"only {seen} of the {told} frames {whose} could be decoded")


class Promised:
    """How many pictures the packets of a run should show: of a range, and of containers that have no count."""

    def __init__(self, plan: Plan) -> None:
        video = plan.source.video
        self._window = Window(plan.start_pts, plan.end_pts)
        self._field = 1 / (2 * video.rate * video.time_base) if video.format.interlaced else None
        self._whole, self._fields = array("q"), array("q")

    def add(self, packet: Packet) -> bool:
        """False for a packet without a time, from which on nothing is known."""
        if packet.pts is None:
            return packet.size == 0
        if packet.size and not packet.is_discard and self._window.holds(packet.pts):
            (self._fields if packet.duration == self._field else self._whole).append(packet.pts)
        return True

    @property
    def pictures(self) -> int:
        """A field is half a picture; packets of one time may be one, of which an encoder hides the other."""
        return int(np.unique(self._whole).size + np.unique(self._fields).size // 2)


def check_stop(stop: StopFlag) -> None:
    """Raises StoppedError where the run is to end."""
    if stop.is_set():
        raise StoppedError("stopped on request", hint="nothing was written under the output's name; run it again")
