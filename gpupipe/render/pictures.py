"""The pictures of a run, timed and transformed: what the encoder gets, in order."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from gpupipe.errors import MediaError
from gpupipe.frame import NO_PTS, FrameBatch
from gpupipe.media.timeline import FrameClock, Retimer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpupipe.codecs.base import Decoder, Packet
    from gpupipe.device.base import Lane
    from gpupipe.journal import Journal
    from gpupipe.media.demux import Demuxer
    from gpupipe.plan import Plan

AFTER_END = Fraction(5)
"""Seconds of video read past the end of a range for the sake of copied packets that the container stores late."""


class Pictures:
    """Iterates over finished FrameBatches; hands the packets of all other streams to `copied` on the way.

    Generators in a row: decoded, stamped, in range, brought to the first size, retimed, transformed.
    """

    def __init__(
        self,
        plan: Plan,
        demuxer: Demuxer,
        decoder: Decoder,
        *,
        lane: Lane,
        journal: Journal,
        copied: Callable[[Packet], None],
    ) -> None:
        self._plan, self._demuxer, self._decoder, self._lane = plan, demuxer, decoder, lane
        self._journal, self._copied = journal, copied
        video = plan.source.video
        self._clock = FrameClock(video.time_base, video.rate, journal, start=video.start or 0)
        self._retimer = None if plan.retime is None else Retimer(plan.retime, video.time_base)
        self._time_base = plan.encoder.time_base
        self._past_end = False
        self._discarded = 0
        self._fed = False
        self.decoded = 0
        """Pictures that the decoder gave, lead-in before a range included."""

    @property
    def repeated(self) -> int:
        """Frames shown again by retiming."""
        return 0 if self._retimer is None else self._retimer.repeated

    @property
    def dropped(self) -> int:
        """Frames left out by retiming."""
        return 0 if self._retimer is None else self._retimer.dropped

    def __iter__(self) -> Iterator[FrameBatch]:
        shown = self._timed(self._ranged(self._stamped(self._decode())))
        if not self._plan.steps and self._plan.decoder == "libav":
            return self._finished(shown, self._same_format())  # torch is never imported
        return self._finished(shown, self._transform())

    def _decode(self) -> Iterator[FrameBatch]:
        video = self._plan.source.video.index
        for packet in self._demuxer.packets():
            if packet.stream_index != video:
                self._copied(packet)
            elif not self._past_end:
                self._note(packet)
                yield from self._decoder.decode(packet)
            elif self._long_past_end(packet):
                break
        if not self._past_end:
            yield from self._decoder.decode(None)

    def _note(self, packet: Packet) -> None:
        if not self._fed and not packet.is_keyframe:
            message = "the video does not begin with a key frame: its first pictures may be missing or damaged"
            self._journal.warn("no-initial-keyframe", message, place=f"pts {packet.pts}")
        self._fed = True
        self._discarded += packet.is_discard

    def _long_past_end(self, packet: Packet) -> bool:
        at = packet.dts if packet.dts is not None else packet.pts
        end = self._plan.end_pts
        return at is not None and end is not None and (at - end) * self._plan.source.video.time_base > AFTER_END

    def _stamped(self, batches: Iterator[FrameBatch]) -> Iterator[FrameBatch]:
        for batch in batches:
            self.decoded += batch.valid
            durations = batch.durations or (0,) * batch.valid
            pts = tuple(
                self._clock.stamp(None if p == NO_PTS else p, d) for p, d in zip(batch.pts, durations, strict=True)
            )
            yield batch.with_(pts=pts)

    def _ranged(self, batches: Iterator[FrameBatch]) -> Iterator[FrameBatch]:
        start, end = self._plan.start_pts, self._plan.end_pts
        for batch in batches:
            (pts,) = batch.pts
            if end is not None and pts >= end:
                self._past_end = True
                continue
            if start is None or pts >= start:
                yield batch

    def _timed(self, batches: Iterator[FrameBatch]) -> Iterator[tuple[FrameBatch, Sequence[int]]]:
        """Each picture with the output pts at which it is shown: its own, or those that retiming gives it."""
        retimer = self._retimer
        if retimer is None:
            yield from ((batch, batch.pts) for batch in batches)
            return
        held: FrameBatch | None = None
        if self._plan.decoder == "nvdec":
            from gpupipe.device.cuda import copy_of  # noqa: PLC0415  imports torch
        for batch in batches:
            instants = retimer.push(batch.pts[0], batch.durations[0] if batch.durations else 0)
            if held is not None and instants:
                yield held, instants
            # A decoder takes its surface back at the next packet, so what is held needs memory of its own.
            held = batch if batch.native is not None else copy_of(batch, self._lane)
        instants = retimer.finish()
        if held is not None and instants:
            yield held, instants

    def _finished(
        self, shown: Iterator[tuple[FrameBatch, Sequence[int]]], transform: Callable[[FrameBatch], FrameBatch]
    ) -> Iterator[FrameBatch]:
        for batch, instants in shown:
            done = transform(batch)
            if self._retimer is None:
                yield done
                continue
            for n in instants:
                yield done.with_(pts=(n,), durations=(1,), time_base=self._time_base)

    def _same_format(self) -> Callable[[FrameBatch], FrameBatch]:
        first = self._plan.source.video.format
        same: list[Callable[[FrameBatch], FrameBatch]] = []

        def transform(batch: FrameBatch) -> FrameBatch:
            if batch.format is not first and not same:
                from gpupipe.render.chain import FirstSize  # noqa: PLC0415  imports torch

                same.append(FirstSize(first, self._plan.size_change, self._journal, self._lane))
            return same[0](batch) if same else batch

        return transform

    def _transform(self) -> Callable[[FrameBatch], FrameBatch]:
        from gpupipe.render.chain import Chain, FirstSize  # noqa: PLC0415  imports torch

        chain = Chain(self._plan.steps, self._lane)
        same = FirstSize(self._decoder.format, self._plan.size_change, self._journal, self._lane)
        return lambda batch: chain(same(batch))

    def check(self, shown: int) -> None:
        """After the last frame: nothing at all is an error, fewer than the container promises is a warning."""
        plan, promised = self._plan, self._plan.source.video.frames
        if shown == 0:
            what = "no frame could be decoded" if self.decoded == 0 else "no frame lies in the range"
            raise MediaError(what, where=str(plan.source.path), hint="see `gpupipe probe`")
        if promised and plan.start_pts is None and plan.end_pts is None:
            missing = promised - self._discarded - self.decoded
            if missing > 0:
                message = f"only {self.decoded} of the {promised} frames that the container promises could be decoded"
                self._journal.warn("frames-missing", message, count=missing)
