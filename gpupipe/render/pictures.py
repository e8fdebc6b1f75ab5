"""Pictures of a run or a segment, timed and transformed: what the encoder gets, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gpupipe.frame import NO_PTS, FrameBatch
from gpupipe.media.timeline import FrameClock, Retimer
from gpupipe.render.ahead import abreast, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpupipe.codecs.base import Decoder, Packet
    from gpupipe.device.base import Lane
    from gpupipe.journal import Journal
    from gpupipe.media.timeline import Window
    from gpupipe.plan import Plan
    from gpupipe.render.chain import Chain


class Packets(Protocol):
    """Packets of the main video that can be told to end."""

    past_end: bool
    """Set when a picture at or after the window's end was seen: packets that follow hold nothing more."""

    def __iter__(self) -> Iterator[Packet]: ...


class Pictures:
    """Iterates over finished FrameBatches. Generators in a row: decoded, stamped, in the window, retimed, transformed.

    Args:
        plan: what is run.
        packets: of the main video, from a key frame at or before the window on.
        decoder: gets every packet, and the end.
        window: pictures outside it are decoded and dropped.
        shown: pts of the first picture that comes out; those before it in the window are transformed and dropped.
        transform: the stages, see `make_transform`.
        lane: where the work happens.
        journal: told of repaired timestamps.
    """

    def __init__(
        self,
        plan: Plan,
        packets: Packets,
        decoder: Decoder,
        *,
        window: Window,
        transform: Callable[[FrameBatch], FrameBatch],
        lane: Lane,
        journal: Journal,
        shown: int | None = None,
    ) -> None:
        self._plan, self._packets, self._decoder, self._window = plan, packets, decoder, window
        self._transform, self._lane, self._shown = transform, lane, shown
        video = plan.source.video
        self._clock = FrameClock(video.time_base, video.rate, journal, start=video.start or 0)
        self._retimer = None if plan.retime is None else Retimer(plan.retime, video.time_base)
        self._time_base = plan.encoder.time_base
        self._abreast = abreast(plan)
        frame = round(1 / (video.rate * video.time_base))
        self._field = frame // 2 if video.format.interlaced and frame % 2 == 0 else 0
        self.decoded = 0
        """Pictures that the decoder gave, lead-in before the window included."""

    @property
    def repeated(self) -> int:
        """Frames shown again by retiming."""
        return 0 if self._retimer is None else self._retimer.repeated

    @property
    def dropped(self) -> int:
        """Frames left out by retiming."""
        return 0 if self._retimer is None else self._retimer.dropped

    def __iter__(self) -> Iterator[FrameBatch]:
        for done, instants in in_order(self._transform, self._timed(self._wanted()), self._abreast):
            if self._retimer is None:
                if self._shown is None or done.pts[0] >= self._shown:
                    yield done
                continue
            for n in instants:
                yield done.with_(pts=(n,), durations=(1,), time_base=self._time_base)

    def _decode(self) -> Iterator[FrameBatch]:
        for packet in self._packets:
            yield from self._decoder.decode(packet)
        if not self._packets.past_end:
            yield from self._decoder.decode(None)

    def _wanted(self) -> Iterator[FrameBatch]:
        """Pictures inside the window, with their final pts."""
        window = self._window
        for batch in self._decode():
            self.decoded += batch.valid
            (given,) = batch.pts
            stated = batch.durations[0] if batch.durations else 0
            duration = self._whole(stated)
            pts = self._clock.stamp(None if given == NO_PTS else given, duration)
            if window.past(pts):
                self._packets.past_end = True
            elif window.holds(pts):
                same = (pts, duration) == (given, stated)
                yield batch if same else batch.with_(pts=(pts,), durations=(duration,))

    def _whole(self, duration: int) -> int:
        """A picture that was stored as two fields states the time of one of them."""
        return 2 * duration if self._field and duration == self._field else duration

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


class Transform:
    """All steps of a plan as one function of a batch, which may remember the batches before."""

    def __init__(self, call: Callable[[FrameBatch], FrameBatch], chain: Chain | None = None) -> None:
        self._call, self._chain = call, chain

    def __call__(self, batch: FrameBatch) -> FrameBatch:
        """The batch after the last step."""
        return self._call(batch)

    @property
    def remembers(self) -> bool:
        """See `Chain.remembers`."""
        return self._chain is not None and self._chain.remembers

    def begin(self, number: int) -> None:
        """See `Chain.begin`."""
        if self._chain is not None:
            self._chain.begin(number)


def make_transform(plan: Plan, lane: Lane, journal: Journal) -> Transform:
    """All steps of a plan as one function of a batch, a change of size in mid-stream included.

    Where nothing is to be done, decoded frames go on as they are, and torch is not imported unless the size changes.
    """
    first = plan.source.video.format
    if plan.steps or plan.decoder != "libav":
        from gpupipe.render.chain import Chain, FirstSize  # noqa: PLC0415  imports torch

        if plan.decoder == "nvdec":
            from gpupipe.codecs.nvdec import surface_format  # noqa: PLC0415

            first = surface_format(plan.source.video, lane.device)
        same = FirstSize(first, plan.size_change, journal, lane)
        chain = Chain(plan.steps, lane, journal, choices=plan.choices)
        return Transform(lambda batch: chain(same(batch)), chain)
    rescale: list[Callable[[FrameBatch], FrameBatch]] = []

    def untouched(batch: FrameBatch) -> FrameBatch:
        if batch.format is not first and not rescale:
            from gpupipe.render.chain import FirstSize  # noqa: PLC0415  imports torch

            rescale.append(FirstSize(first, plan.size_change, journal, lane))
        return rescale[0](batch) if rescale else batch

    return Transform(untouched)
