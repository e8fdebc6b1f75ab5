"""Where a runner's packets come from: pieces of a file that is read by seeking, or a whole file in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpupipe.media.demux import Demuxer
from gpupipe.media.segments import SegmentReader
from gpupipe.render.feed import Feed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import av

    from gpupipe.codecs.base import Packet
    from gpupipe.journal import Journal
    from gpupipe.media.packed import Packed
    from gpupipe.media.segments import Segment
    from gpupipe.plan import Plan
    from gpupipe.render.pictures import Packets
    from gpupipe.render.progress import StopFlag


class Reading(Protocol):
    """An open source of video packets, used by one runner."""

    video_stream: av.VideoStream

    def read(self, segment: Segment) -> Packets:
        """The packets needed for a segment."""
        ...

    def packed(self, segment: Segment) -> Packed | None:
        """The same, read at once; None where they have to come one by one."""
        ...

    def first(self) -> Packet | None:
        """A key frame to try a decoder on, before anything is read; None where there is none."""
        ...

    def check(self, decoded: int, shown: int) -> None:
        """After a segment: raises or warns where pictures are missing."""
        ...

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        ...


class Pieces:
    """Any number of segments, each found by seeking; the plan has made sure that this source can be cut."""

    def __init__(self, plan: Plan) -> None:
        self._reader = SegmentReader(plan.source)
        self.video_stream = self._reader.video_stream

    def read(self, segment: Segment) -> Packets:
        """See `Reading`; the reader knows where to stop."""
        return _Bounded(self._reader.packets(segment))

    def packed(self, segment: Segment) -> Packed | None:
        """See `Reading`."""
        return self._reader.packed(segment)

    def first(self) -> Packet | None:
        """See `Reading`."""
        return self._reader.peek()

    def check(self, decoded: int, shown: int) -> None:
        """See `Reading`; the writer counts segments."""

    def close(self) -> None:
        """See `Reading`."""
        self._reader.close()


class _Bounded:
    def __init__(self, packets: Iterator[Packet]) -> None:
        self._packets, self.past_end = packets, False

    def __iter__(self) -> Iterator[Packet]:
        return self._packets


class Whole:
    """The only segment of a run: read from front to back, with every repair of the demuxer.

    All streams are demuxed, since a clock reset shows in all of them; the copied ones are taken from a demuxer of their
    own, which repairs the same way.
    """

    def __init__(self, plan: Plan, journal: Journal, stop: StopFlag) -> None:
        self._demuxer = Demuxer(plan.source, journal, range_start=plan.start_pts)
        self.video_stream = self._demuxer.video_stream
        self._feed = Feed(plan, self._demuxer, journal, lambda _: None, stop)

    def read(self, segment: Segment) -> Packets:  # noqa: ARG002  there is only one
        """See `Reading`."""
        return self._feed

    def packed(self, segment: Segment) -> Packed | None:  # noqa: ARG002
        """See `Reading`; repairs are made packet by packet."""
        return None

    def first(self) -> Packet | None:
        """See `Reading`."""
        return self._feed.first()

    def check(self, decoded: int, shown: int) -> None:
        """See `Reading`."""
        self._feed.check(decoded, shown)

    def close(self) -> None:
        """See `Reading`."""
        self._demuxer.close()


def open_reading(plan: Plan, journal: Journal, stop: StopFlag) -> Reading:
    """What the plan's segments ask for."""
    return Pieces(plan) if len(plan.segments) > 1 else Whole(plan, journal, stop)
