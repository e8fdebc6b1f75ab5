"""A run in segments: several runners side by side, joined in order into one stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gpupipe.codecs.reorder import DtsClock
from gpupipe.device import open_lane
from gpupipe.errors import MediaError
from gpupipe.media.demux import Demuxer
from gpupipe.media.segments import SegmentReader
from gpupipe.media.timeline import Window
from gpupipe.render.codecs import make_decoder, make_encoder
from gpupipe.render.copied import CopiedStreams
from gpupipe.render.feed import check_stop
from gpupipe.render.lanes import Crew
from gpupipe.render.pictures import Pictures, make_transform
from gpupipe.render.progress import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.journal import Journal
    from gpupipe.media.mux import Muxer
    from gpupipe.media.segments import Segment
    from gpupipe.plan import Plan
    from gpupipe.render.progress import Meter, StopFlag

POLL = 0.2
"""Seconds between looks at the stop flag while the joiner waits."""


@dataclass(slots=True)
class Rendered:
    """A finished segment."""

    packets: list[Packet]
    """In decoding order; dts are given at the join."""
    encoder: Encoder
    """Kept alive for its template."""
    frames: int


class Runner:
    """Renders one segment after another with one open file, one decoder and one set of prepared stages."""

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self._plan, self._journal = plan, journal
        self._lane = open_lane(plan.device)
        self._transform = make_transform(plan, self._lane, journal)
        self._reader = SegmentReader(plan.source)
        self._decoder = make_decoder(plan, self._reader.video_stream, self._lane, journal)

    def render(self, segment: Segment) -> Rendered:
        """Decodes, transforms and encodes a segment by itself: the encoder starts anew, with a key frame."""
        encoder = make_encoder(self._plan.encoder, self._lane)
        pictures = Pictures(
            self._plan,
            _SegmentPackets(self._reader.packets(segment)),
            self._decoder,
            window=Window(segment.start, segment.end),
            transform=self._transform,
            lane=self._lane,
            journal=self._journal,
        )
        packets: list[Packet] = []
        frames = 0
        for batch in pictures:
            packets += encoder.encode(batch)
            frames += batch.valid
        packets += encoder.finish()
        self._decoder.restart()
        return Rendered(packets, encoder, frames)

    def close(self) -> None:
        """Frees decoder and file."""
        self._decoder.close()
        self._reader.close()


class _SegmentPackets:
    """The reader knows where to stop, so nothing more is to be done when the end is seen; see `pictures.Packets`."""

    def __init__(self, packets: Iterator[Packet]) -> None:
        self._packets, self.past_end = packets, False

    def __iter__(self) -> Iterator[Packet]:
        return self._packets


class Board:
    """Which segments are taken, done and written; runners stay a bounded number of segments ahead of the writer."""

    def __init__(self, crew: Crew, segments: tuple[Segment, ...], ahead: int) -> None:
        self._crew, self._segments, self._ahead = crew, segments, ahead
        self._taken = self._written = 0
        self._done: dict[int, Rendered] = {}

    def work(self, runner: Runner) -> None:
        """What the lane of a runner does: takes and renders segments until none is left."""
        while (index := self._take()) is not None:
            rendered = runner.render(self._segments[index])
            with self._crew.changed:
                self._done[index] = rendered
                self._crew.changed.notify_all()

    def _take(self) -> int | None:
        with self._crew.changed:
            if self._taken < len(self._segments):
                self._crew.wait(lambda: self._taken >= len(self._segments) or self._taken < self._written + self._ahead)
            if self._taken >= len(self._segments):
                return None
            self._taken += 1
            return self._taken - 1

    def in_order(self, stop: StopFlag) -> Iterator[tuple[Segment, Rendered]]:
        """Every segment as it is finished, in the order of the source. Raises the first error of any runner."""
        for index, segment in enumerate(self._segments):
            rendered = self._await(index, stop)
            yield segment, rendered
            with self._crew.changed:
                self._written += 1
                self._crew.changed.notify_all()

    def _await(self, index: int, stop: StopFlag) -> Rendered:
        while True:
            check_stop(stop)
            with self._crew.changed:
                self._crew.changed.wait_for(lambda: self._crew.halted or index in self._done, POLL)
                self._crew.check()
                if index in self._done:
                    return self._done.pop(index)


def render_segments(
    plan: Plan, muxer: Muxer, stack: ExitStack, *, meter: Meter, journal: Journal, stop: StopFlag
) -> Tally:
    """Carries out a plan whose video is cut into segments, and writes the joined stream."""
    runners = [Runner(plan, journal) for _ in range(plan.sessions)]
    for runner in runners:
        stack.callback(runner.close)
    copied = CopiedStreams(plan, stack.enter_context(Demuxer(plan.source, journal, range_start=plan.start_pts)), muxer)
    crew = stack.enter_context(Crew())
    board = Board(crew, plan.segments, 2 * plan.sessions)
    for number, runner in enumerate(runners):
        crew.start(f"runner-{number}", partial(board.work, runner))
    clock: DtsClock | None = None
    for segment, rendered in board.in_order(stop):
        _check(segment, rendered, journal)
        if clock is None:
            clock = DtsClock(_depth(rendered.packets))
            muxer.add_video(rendered.encoder.template(rendered.packets))
        for pts in sorted(p.pts for p in rendered.packets if p.pts is not None):
            clock.shown(pts)
        for packet in rendered.packets:
            for ready in clock.coded(packet):
                copied.up_to(ready)
                muxer.write_video(ready)
        rendered.encoder.close()
        meter.count(rendered.frames, segment.end or segment.start or 0, plan.source.video.time_base)
    for packet in clock.drain() if clock is not None else ():
        muxer.write_video(packet)
    copied.rest()
    return Tally(meter.shown)


def _depth(packets: list[Packet]) -> int:
    """How many pictures are coded before one that is shown earlier: what dts must lie ahead by."""
    place = {pts: n for n, pts in enumerate(sorted(p.pts for p in packets if p.pts is not None))}
    return max((n - place[p.pts] for n, p in enumerate(packets) if p.pts is not None), default=0)


def _check(segment: Segment, rendered: Rendered, journal: Journal) -> None:
    if len(rendered.packets) != rendered.frames:
        raise MediaError(
            f"the encoder gave {len(rendered.packets)} pictures for {rendered.frames}",
            where=f"segment at {segment.start}",
        )
    if rendered.frames != segment.frames:
        missing = segment.frames - rendered.frames
        message = f"a segment held {segment.frames} pictures and {rendered.frames} could be decoded"
        journal.warn("frames-missing", message, place=f"pts {segment.start}", count=abs(missing))
