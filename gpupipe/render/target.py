"""The output of a run: its muxer, what is known of its size before, and how good it became."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.media.mux import Muxer, VideoHeader
from gpupipe.render.watch import enter

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.progress import Score, StopFlag


def open_muxer(plan: Plan, path: Path, journal: Journal) -> Muxer:
    """A muxer that writes the plan's output to `path`."""
    picture = plan.encoder.input_format
    header = VideoHeader(
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
        provenance=plan.provenance,
    )
    return Muxer(path, plan.container, plan.source, plan.tracks, header, journal, audio=plan.audio)


def known_size(plan: Plan) -> int:
    """Bytes of video that a bitrate promises; 0 where quality rules, whose size nobody knows before."""
    duration = plan.source.duration
    if plan.encoder.bitrate is None or duration is None or plan.start_pts is not None or plan.end_pts is not None:
        return 0
    return int(plan.encoder.bitrate * duration / 8)


def measured(plan: Plan, output: Path, stop: StopFlag) -> tuple[Score, ...]:
    """The quality of what was written, before it gets its name."""
    if plan.quality is None:
        return ()
    from gpupipe.render.quality import measure  # noqa: PLC0415  only where it is asked

    enter("measure")
    return measure(plan, plan.quality, output, stop)
