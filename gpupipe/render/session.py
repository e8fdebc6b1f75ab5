"""One decoder, one chain and one encoder for the whole of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.device import open_lane
from gpupipe.media.demux import Demuxer
from gpupipe.media.timeline import Window
from gpupipe.render.codecs import make_decoder
from gpupipe.render.feed import Feed
from gpupipe.render.pictures import Pictures, make_transform
from gpupipe.render.watch import clocked

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.device.base import Lane
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.progress import StopFlag


class Session:
    """Opens all that a run in one go needs; it is closed when `stack` is left.

    Args:
        plan: what is run.
        stack: closes what is opened here.
        make: opens the encoder, or what stands in for it.
        journal: told of damage and repairs.
        stop: looked at between packets.
        copied: takes the packets of all streams but the main video.
    """

    def __init__(
        self, plan: Plan, stack: ExitStack, make: Callable[[Lane], Encoder], *,
        journal: Journal, stop: StopFlag, copied: Callable[[Packet], None],
    ) -> None:  # fmt: skip
        demuxer = stack.enter_context(Demuxer(plan.source, journal, range_start=plan.start_pts))
        lane = open_lane(plan.device)
        self.encoder = make(lane)
        stack.callback(self.encoder.close)
        transform = clocked("stages", make_transform(plan, lane, journal))
        decoder = make_decoder(plan, demuxer.video_stream, lane, journal)
        stack.callback(decoder.close)
        self.feed = Feed(plan, demuxer, journal, copied, stop)
        window = Window(plan.start_pts, plan.end_pts)
        self.pictures = Pictures(
            plan, self.feed, decoder, window=window, transform=transform, lane=lane, journal=journal
        )
