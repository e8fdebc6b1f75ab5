"""Runs a Plan: demux, decode, stages, encode, mux. The only place that waits."""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gpupipe.device import open_lane
from gpupipe.errors import StoppedError
from gpupipe.media.demux import Demuxer
from gpupipe.media.mux import Muxer, VideoHeader
from gpupipe.media.output import OutputFile
from gpupipe.render.codecs import make_decoder, make_encoder
from gpupipe.render.pictures import Pictures

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan

PROGRESS_INTERVAL = 0.1  # seconds


class StopFlag(Protocol):
    """Set from outside (a signal handler) to end a run early; threading.Event will do."""

    def is_set(self) -> bool:
        """Whether the run should end."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    frames: int
    """Frames handed to the encoder."""
    total: int | None
    """Frames expected; None where the container does not say."""
    pts_seconds: float
    """Time of the last frame, for display only."""
    elapsed: float
    """Seconds since the start."""


@dataclass(frozen=True, slots=True)
class RenderResult:
    """What a finished run did."""

    output: Path
    frames: int
    """Frames in the output."""
    decoded: int
    repeated: int
    """Frames shown again by an fps stage."""
    dropped: int
    """Frames left out by an fps stage."""
    seconds: float
    bytes: int


def render(
    plan: Plan,
    *,
    overwrite: bool,
    journal: Journal,
    stop: StopFlag,
    progress: Callable[[Progress], None] = lambda _: None,
) -> RenderResult:
    """Carries out a plan; the output appears under its name only when it is whole.

    Raises:
        StoppedError: `stop` was set; nothing is left under the output's name.
        MediaError: the source cannot be read or the output not written (disk full, permission).
        DeviceError: the GPU failed.
    """
    try:
        return _carry_out(plan, overwrite=overwrite, journal=journal, stop=stop, progress=progress)
    finally:
        # PyAV's containers and streams refer to each other, so codecs and their threads would live on until the next
        # full collection, which may be many jobs away.
        gc.collect()


def _carry_out(
    plan: Plan, *, overwrite: bool, journal: Journal, stop: StopFlag, progress: Callable[[Progress], None]
) -> RenderResult:
    """See `render`; all that a run holds goes with this frame."""
    began = time.monotonic()
    with ExitStack() as stack:
        target = stack.enter_context(OutputFile(plan.output, overwrite=overwrite, inputs=(plan.source.path,)))
        demuxer = stack.enter_context(Demuxer(plan.source, journal, range_start=plan.start_pts))
        lane = open_lane(plan.device)
        encoder = make_encoder(plan.encoder, lane)
        stack.callback(encoder.close)
        decoder = make_decoder(plan, demuxer, lane, journal)
        stack.callback(decoder.close)
        muxer = Muxer(target.path, plan.container, plan.source, plan.tracks, _header(plan), journal, audio=plan.audio)
        stack.callback(muxer.abort)
        pictures = Pictures(plan, demuxer, decoder, lane=lane, journal=journal, copied=muxer.write_copied)
        writer = _Writer(encoder, muxer)
        shown = 0
        reported = began
        for batch in pictures:
            if stop.is_set():
                raise StoppedError(
                    "stopped on request", hint="nothing was written under the output's name; run it again"
                )
            writer.encode(batch)
            shown += batch.valid
            now = time.monotonic()
            if now - reported >= PROGRESS_INTERVAL:
                reported = now
                progress(Progress(shown, _expected(plan), float(batch.pts[-1] * batch.time_base), now - began))
        writer.finish()
        pictures.check(shown)
        muxer.close()
        size = target.commit()
    elapsed = time.monotonic() - began
    progress(Progress(shown, shown, 0.0, elapsed))
    return RenderResult(plan.output, shown, pictures.decoded, pictures.repeated, pictures.dropped, elapsed, size)


class _Writer:
    """Encoder to muxer; the header is written when the first packets tell what the stream is."""

    def __init__(self, encoder: Encoder, muxer: Muxer) -> None:
        self._encoder, self._muxer, self._begun = encoder, muxer, False

    def encode(self, batch: object) -> None:
        self._write(self._encoder.encode(batch))  # type: ignore[arg-type]

    def finish(self) -> None:
        self._write(self._encoder.finish())

    def _write(self, packets: list[Packet]) -> None:
        if packets and not self._begun:
            self._muxer.add_video(self._encoder.template(packets))
            self._begun = True
        for packet in packets:
            self._muxer.write_video(packet)


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
    )


def _expected(plan: Plan) -> int | None:
    """Frames to come, for a progress bar; an estimate where there is a range or a new rate."""
    video, rate = plan.source.video, plan.encoder.rate
    if plan.start_pts is None and plan.end_pts is None and plan.retime is None and video.frames:
        return video.frames
    first = plan.start_pts if plan.start_pts is not None else video.start or 0
    if plan.end_pts is not None:
        return max(1, round((plan.end_pts - first) * video.time_base * rate))
    if video.duration is None:
        return None
    return max(1, round(((video.start or 0) + video.duration - first) * video.time_base * rate))
