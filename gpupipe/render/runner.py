"""Runners: each renders one segment after another with one open file, one decoder and one set of prepared stages."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from gpupipe.device import open_lane
from gpupipe.media.timeline import Window
from gpupipe.render.board import Board, Part
from gpupipe.render.codecs import encode, make_decoder
from gpupipe.render.pictures import Pictures, make_transform
from gpupipe.render.reading import Pieces
from gpupipe.render.watch import clocked, enter

if TYPE_CHECKING:
    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.sessions import EncoderSessions


class SegmentWorker(Protocol):
    """What a lane that decodes must offer."""

    def open(self) -> None:
        """Opens file and decoder; every worker of a run is made before any is opened."""
        ...

    def render(self, index: int) -> None:
        """Renders a segment and puts its parts on the board."""
        ...

    def close(self) -> None:
        """Frees what is held; safe to call twice."""
        ...


PART = 16
"""Pictures that a runner hands to the writer at once."""


class Runner:
    """Decodes, transforms and encodes in one lane; each segment gets an encoder of its own."""

    def __init__(self, plan: Plan, journal: Journal, board: Board, encoders: EncoderSessions) -> None:
        self._plan, self._journal, self._board, self._encoders = plan, journal, board, encoders
        self._lane = open_lane(plan.device)
        self._chain = make_transform(plan, self._lane, journal)
        self._transform = clocked("stages", self._chain)
        self._opened = ExitStack()

    def open(self) -> None:
        """See `SegmentWorker`."""
        self._reading = Pieces(self._plan)
        self._opened.callback(self._reading.close)
        self._decoder = make_decoder(self._plan, self._reading.video_stream, self._lane, self._journal)
        self._opened.callback(self._decoder.close)

    def render(self, index: int) -> None:
        """See `SegmentWorker`."""
        segment = self._board.segments[index]
        encoder = self._encoders.open(index, self._lane)
        self._chain.begin(segment.number)
        pictures = Pictures(
            self._plan,
            self._reading.read(segment),
            self._decoder,
            window=Window(segment.begin, segment.end),
            shown=segment.start,
            transform=self._transform,
            lane=self._lane,
            journal=self._journal,
        )
        parts = 0
        packets: list[Packet] = []
        shown: list[int] = []
        for batch in pictures:
            before = enter("encode")
            packets += encode(encoder, batch, self._board.keep(index))
            enter(before)
            shown += batch.pts
            if len(shown) >= PART:
                self._deliver(index, parts, packets, shown, encoder)
                parts, packets, shown = parts + 1, [], []
            self._board.wait_for_room(index)
        packets += encoder.finish()
        self._decoder.restart()
        self._deliver(index, parts, packets, shown, encoder)
        self._board.complete(index, parts + 1)
        self._encoders.close(encoder)
        del encoder
        gc.collect()  # an encoder of PyAV's refers to itself, and an x264 holds some hundred MB

    def _deliver(self, index: int, number: int, packets: list[Packet], shown: list[int], encoder: Encoder) -> None:
        self._board.deliver(index, number, Part(packets, tuple(shown), None if self._board.begun else encoder))

    def close(self) -> None:
        """See `SegmentWorker`."""
        self._opened.close()
