"""Parts of many segments, one after another in one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.codecs.reorder import DtsClock
from gpupipe.errors import MediaError, SourceError
from gpupipe.render.repeat import Given

if TYPE_CHECKING:
    from gpupipe.codecs.base import Packet
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.board import Board, Part
    from gpupipe.render.writer import Writer

DEEPEST = 2
"""Pictures that x264 and x265 decode ahead of one shown before them: a P, and a B that other B pictures refer to."""


class Join:
    """Writes parts as they come: one header, one run of decoding times over the whole stream."""

    def __init__(self, plan: Plan, writer: Writer, journal: Journal) -> None:
        self._plan, self._writer, self._journal = plan, writer, journal
        self._board: Board | None = None
        self._alone = encoder_facts(plan.encoder.encoder).alone
        self._clock: DtsClock | None = None
        self._index, self._frames, self._coded = 0, 0, 0
        self._given = self._nothing()
        self._begun = False
        self.writing = False
        """A part is being written; where that fails nobody knows how much of it was."""
        self._early: list[int] = []
        """pts of the pictures that went in before the first packet came out."""

    @property
    def segment(self) -> int:
        """The first that is not written to its end."""
        return self._index if self._board is None else self._board.written

    def _nothing(self) -> Given:
        return Given(exact=not self._alone)

    def start(self, board: Board) -> None:
        """Parts come from that board from now on; the segment that is being written comes again from its beginning."""
        self._board, board.begun = board, self._begun
        self._given.rewind()

    def add(self, index: int, part: Part) -> Part:
        """The next part in the order of the source; returns what of it was new."""
        self.writing = True
        if index != self._index:
            self._check()
            self._index, self._frames, self._coded, self._given = index, 0, 0, self._nothing()
        part = self._given.new_of(part)
        self._frames += part.frames
        self._coded += len(part.packets)
        if not self._begun:
            self._early += part.pts
            if part.packets:
                self._begin(part)
        elif self._clock is not None:
            for pts in part.pts:
                self._clock.shown(pts)
        self._writer.write(self._timed(part.packets))
        self.writing = False
        return part

    def _begin(self, part: Part) -> None:
        assert self._board is not None
        assert part.encoder is not None  # runners leave it out only when they are told that this was done
        self._begun = self._board.begun = True
        self._writer = self._writer.begin(part.encoder.template, part.packets)
        several = len(self._plan.segments) > 1
        if (
            several and not self._alone
        ):  # one encoder's own times are right, as is each picture's; of others they overlap
            codec = part.encoder.settings.codec
            self._clock = DtsClock(_depth(part.packets[0], self._early, codec))
            for pts in self._early:
                self._clock.shown(pts)

    def _timed(self, packets: list[Packet]) -> list[Packet]:
        clock = self._clock
        return packets if clock is None else [ready for packet in packets for ready in clock.coded(packet)]

    def finish(self) -> None:
        """Writes what the clock still holds; raises MediaError where nothing at all came."""
        self._check()
        if self._clock is not None:
            self._writer.write(list(self._clock.drain()))
        if not self._begun:
            raise SourceError(
                "no frame could be decoded", where=str(self._plan.source.path), hint="see `gpupipe probe`"
            )

    def close(self) -> None:
        """Makes the file whole."""
        self._writer.close()

    def _check(self) -> None:
        """A segment is accepted when the encoder gave what it got; fewer pictures than the container has are told."""
        segment = self._plan.segments[self._index]
        began = "from the start" if segment.start is None else f"pts {segment.start}"
        if self._coded != self._frames:
            raise MediaError(
                f"the encoder gave {self._coded} pictures for {self._frames}",
                where=f"segment {self._index}, {began}",
            )
        missing = segment.frames - self._frames
        if segment.frames and missing:
            message = f"a segment held {segment.frames} pictures and {self._frames} could be decoded"
            self._journal.warn("frames-missing", message, place=f"segment {self._index}, {began}")


def _depth(first: Packet, shown: list[int], codec: str) -> int:
    """How many pictures are coded before one that is shown earlier: what dts must lie ahead by.

    Encoders put the first packet's dts before its pts by the time of so many pictures.

    Args:
        first: packet of the stream.
        shown: pts of the pictures that went in until it came out.
        codec: as libav names it.
    """
    if av.Codec(codec).reorder and len(shown) <= DEEPEST:  # so few say nothing of the segments to come
        return DEEPEST
    assert first.pts is not None  # encoders give every packet the pts of its picture
    ahead = 0 if first.dts is None else first.pts - first.dts
    return sum(pts - shown[0] < ahead for pts in shown)
