"""Runs a Plan: demux, decode, stages, encode, mux. The only place that waits."""

from __future__ import annotations

import gc
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe.device import release
from gpupipe.media.mux import Muxer, VideoHeader
from gpupipe.media.output import OutputFile, check_space
from gpupipe.render.codecs import make_encoder
from gpupipe.render.progress import Meter, Progress, RenderResult, Score, StopFlag, Tally
from gpupipe.render.segmented import in_lanes, render_segments
from gpupipe.render.session import Session
from gpupipe.render.watch import Watch, enter

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.frame import FrameBatch
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan

__all__ = ["Progress", "RenderResult", "StopFlag", "Watch", "render"]


def render(
    plan: Plan,
    *,
    overwrite: bool,
    journal: Journal,
    stop: StopFlag,
    progress: Callable[[Progress], None] = lambda _: None,
    watch: Watch | None = None,
) -> RenderResult:
    """Carries out a plan; the output appears under its name only when it is whole.

    Args:
        plan: what to do.
        overwrite: whether a file of the output's name may be replaced.
        journal: told of damage and repairs.
        stop: looked at all the time.
        progress: called some times a second, in this thread.
        watch: can be read from any thread meanwhile.

    Raises:
        StoppedError: `stop` was set; nothing is left under the output's name.
        MediaError: the source cannot be read or the output not written (disk full, permission).
        DeviceError: the GPU failed.
    """
    watch = watch or Watch()
    watch.lane("writer" if in_lanes(plan) else "run", "open")
    try:
        meter = Meter(plan, progress, watch)
        return _carry_out(plan, overwrite=overwrite, journal=journal, stop=stop, meter=meter)
    finally:
        watch.leave()
        watch.over()
        # PyAV's containers and streams refer to each other, so codecs and their threads would live on until the next
        # full collection, which may be many jobs away.
        gc.collect()
        release(plan.device)


def _carry_out(plan: Plan, *, overwrite: bool, journal: Journal, stop: StopFlag, meter: Meter) -> RenderResult:
    """See `render`; all that a run holds goes with this frame."""
    if plan.quality is not None:
        from gpupipe.render.quality import check  # noqa: PLC0415  only where it is asked

        check(plan)
    with ExitStack() as stack:
        if needed := _known_size(plan):
            check_space(plan.output, needed)
        target = stack.enter_context(OutputFile(plan.output, overwrite=overwrite, inputs=_inputs(plan)))
        muxer = Muxer(target.path, plan.container, plan.source, plan.tracks, _header(plan), journal, audio=plan.audio)
        stack.callback(muxer.abort)
        run = render_segments if in_lanes(plan) else _one_session
        tally = run(plan, muxer, stack, meter=meter, journal=journal, stop=stop)
        enter("close")
        muxer.close()
        scores = _measured(plan, target.path, stop)
        size = target.commit()
    meter.finish()
    counts = (meter.shown, tally.decoded, tally.repeated, tally.dropped)
    return RenderResult(plan.output, *counts, seconds=meter.elapsed, startup=meter.startup, bytes=size, quality=scores)


def _measured(plan: Plan, output: Path, stop: StopFlag) -> tuple[Score, ...]:
    """The quality of what was written, before it gets its name."""
    if plan.quality is None:
        return ()
    from gpupipe.render.quality import measure  # noqa: PLC0415  only where it is asked

    enter("measure")
    return measure(plan, plan.quality, output, stop)


def _inputs(plan: Plan) -> tuple[Path, ...]:
    """What the run reads, images and LUTs of stages too: none of it may become the output."""
    texts = (value for step in plan.steps for value in step.settings.values() if isinstance(value, str))
    return (plan.source.path, *(Path(text) for text in texts if os.path.isfile(text)))  # noqa: PTH113  any text is asked


def _one_session(
    plan: Plan, muxer: Muxer, stack: ExitStack, *, meter: Meter, journal: Journal, stop: StopFlag
) -> Tally:
    """The whole run in one go: one decoder, one encoder, every packet written as it comes."""
    make = partial(make_encoder, plan.encoder, batch=plan.batch)
    session = Session(plan, stack, make, journal=journal, stop=stop, copied=muxer.write_copied)
    writer, pictures = _Writer(session.encoder, muxer, meter), session.pictures
    meter.open()
    enter("decode")
    for batch in pictures:
        writer.encode(batch)
        meter.count(batch.valid, batch.pts[-1], batch.time_base)
    writer.finish()
    session.feed.check(pictures.decoded, meter.shown)
    return Tally(pictures.decoded, pictures.repeated, pictures.dropped)


class _Writer:
    """Encoder to muxer; the header is written when the first packets tell what the stream is."""

    def __init__(self, encoder: Encoder, muxer: Muxer, meter: Meter) -> None:
        self._encoder, self._muxer, self._meter, self._begun = encoder, muxer, meter, False

    def encode(self, batch: FrameBatch) -> None:
        before = enter("encode")
        self._write(self._encoder.encode(batch))
        enter(before)

    def finish(self) -> None:
        enter("encode")
        self._write(self._encoder.finish())

    def _write(self, packets: list[Packet]) -> None:
        enter("write")
        self._meter.wrote(packets)
        if packets and not self._begun:
            self._muxer.add_video(self._encoder.template(packets))
            self._begun = True
        for packet in packets:
            self._muxer.write_video(packet)


def _known_size(plan: Plan) -> int:
    """Bytes of video that a bitrate promises; 0 where quality rules, whose size nobody knows before."""
    duration = plan.source.duration
    if plan.encoder.bitrate is None or duration is None or plan.start_pts is not None or plan.end_pts is not None:
        return 0
    return int(plan.encoder.bitrate * duration / 8)


def _header(plan: Plan) -> VideoHeader:
    picture = plan.encoder.input_format
    return VideoHeader(
        display_matrix=plan.display_matrix,
        sample_aspect=picture.sample_aspect,
        field_order=picture.field_order,
        timecode=plan.timecode,
        hdr=plan.source.video.hdr,
        rate=plan.encoder.rate,
        time_base=plan.encoder.time_base,
        offset=plan.origin,
        end=None if plan.end_pts is None else plan.end_pts * plan.source.video.time_base,
        copy_metadata=plan.metadata,
        encoder=plan.encoder.encoder,
    )
