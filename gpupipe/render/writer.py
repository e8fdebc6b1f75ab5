"""Writes an output: the encoded video, and the copied streams in step with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpupipe.codecs.intra import plain
from gpupipe.journal import Journal
from gpupipe.media.demux import Demuxer
from gpupipe.render.copied import CopiedStreams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

    import av

    from gpupipe.codecs.base import Packet
    from gpupipe.media.mux import Muxer
    from gpupipe.plan import Plan

    Template = Callable[[Sequence[Packet]], av.VideoStream]


class Writer(Protocol):
    """Used by one thread; ends with `close` or `abort`. All but `abort` raise MediaError where it cannot be written."""

    def begin(self, template: Template, packets: list[Packet]) -> Writer:
        """Before the first `write`, with the packets that come first, and their encoder's `template`.

        Returns who writes from then on, and is closed: another one where this cannot.
        """
        ...

    def write(self, packets: list[Packet]) -> None:
        """Packets of the video in decoding order, with times in the plan's time base of the encoder."""
        ...

    def close(self) -> None:
        """Writes what is left of the copied streams and makes the file whole."""
        ...

    def abort(self) -> None:
        """Gives up and removes the file; safe to call at any time, and after `close`."""
        ...


class DirectWriter:
    """Meets `Writer` in this thread.

    Args:
        plan: what is run.
        muxer: of the output, nothing written yet.
        stack: closes the source, which is opened for the copied streams.
    """

    def __init__(self, plan: Plan, muxer: Muxer, stack: ExitStack) -> None:
        self._muxer = muxer
        demuxer = stack.enter_context(Demuxer(plan.source, Journal(), range_start=plan.start_pts))
        self._copied = CopiedStreams(plan, demuxer, muxer)

    def begin(self, template: Template, packets: list[Packet]) -> Writer:
        """See `Writer`."""
        self._muxer.add_video(template(packets))
        return self

    def write(self, packets: list[Packet]) -> None:
        """See `Writer`."""
        if packets and not self._copied.left:
            self._muxer.write_video(*packets)
            return
        for packet in packets:
            self._copied.up_to(packet)
            self._muxer.write_video(packet)

    def close(self) -> None:
        """See `Writer`."""
        self._copied.rest()
        self._muxer.close()

    def abort(self) -> None:
        """See `Writer`."""
        self._muxer.abort()


class PlainWriter(DirectWriter):
    """For a run whose first packets are meant for another process, see `codecs.intra.Placed`."""

    def write(self, packets: list[Packet]) -> None:
        """See `Writer`."""
        super().write([plain(one) for one in packets])
