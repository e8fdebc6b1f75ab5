"""What is measured: a config on a source, planned for any number of frames, sessions and devices."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.config import Config, MemoryLimits, Output, SegmentLength, TimeRange, VideoOutput
from gpupipe.errors import MediaError, PlanError
from gpupipe.media.probe import probe
from gpupipe.media.segments import Timetable, timetable
from gpupipe.media.timeline import resolve_range
from gpupipe.plan import Plan, make_plan
from gpupipe.render.learnt import learnt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpupipe.media.source import SourceInfo

SUFFIXES = {"h264": ".mp4", "hevc": ".mp4", "av1": ".mp4", "mjpeg": ".mov", "prores": ".mov", "dnxhd": ".mov"}


@dataclass(frozen=True, slots=True)
class Subject:
    """See the module; `folder` takes what runs write."""

    config: Config
    source: SourceInfo
    device: str
    """`auto`, `cpu`, `cuda` or `cuda:N`."""
    folder: Path
    times: Timetable
    first: int
    """Index in `times.pts` of the first picture shown."""
    frames: int
    """Pictures shown by the longest run."""

    @property
    def pts(self) -> Sequence[int]:
        """Of every picture shown, in the source's time base."""
        return self.times.pts[self.first : self.first + self.frames]

    def plan(
        self, frames: int | None = None, *, sessions: int | None = None, device: str | None = None,
        video: VideoOutput | None = None, name: str = "out", segments: SegmentLength | None = None,
    ) -> Plan:  # fmt: skip
        """The plan for the first `frames` pictures, with what else is given changed."""
        config, output = self.config, self.config.output
        last = self.first + min(frames or self.frames, self.frames)
        if last < len(self.times.pts):
            config = _with(config, range=TimeRange(start=config.range.start, end=f"pts:{self.times.pts[last]}"))
        if sessions is not None:
            config = _with(config, sessions=sessions)
        if segments is not None:
            config = _with(config, segments=segments, sessions="auto")
        if device is not None:
            config = _with(config, memory=MemoryLimits())
        if video is not None:
            output = output.model_copy(update={"video": video, "path": None})
        config = _with(config, output=output)
        path = self.folder / f"{name}{_suffix(output)}"
        return learnt(make_plan(config, self.source, path, device=device or self.device))

    def on_cpu(self, frames: int) -> Plan:
        """The same config on all cores of the CPU, with the encoder that it has for the codec. Raises PlanError."""
        video = self.config.output.video
        if encoder_facts(video.encoder).needs_gpu:
            codec = self.plan(1).encoder.codec
            video = video.model_copy(update={"encoder": "auto", "codec": codec, "options": {}})
        plan = self.plan(frames, device="cpu", video=video, name="cpu")
        if not plan.steps or self.config.segments != "auto":
            return plan  # a CPU encoder by itself takes all cores
        try:
            return self.plan(frames, device="cpu", video=video, name="cpu", segments=SegmentLength(seconds=1))
        except PlanError:  # it cannot be cut
            return plan


def _with(config: Config, **changes: object) -> Config:
    return config.model_copy(update=changes)


def _suffix(output: Output) -> str:
    """Of the config's own file name, else of the usual container for its codec."""
    if output.path is not None and (own := PurePath(output.path).suffix):
        return own
    video = output.video
    named = "codec" in video.model_fields_set or video.encoder == "auto"
    codec = video.codec if named else (*encoder_facts(video.encoder).codecs, "")[0]
    return SUFFIXES.get(codec, ".mkv")


def open_subject(config: Config, path: Path, folder: Path, *, device: str, frames: int | None) -> Subject:
    """Looks at the source and counts its pictures.

    Args:
        config: its range, stages and encoder; `input` and the folder of `output.path` are not looked at.
        path: the source.
        folder: takes what runs write.
        device: see `Subject`.
        frames: use no more than so many; None uses all.

    Raises PlanError or MediaError for what cannot be counted frame by frame.
    """
    if any(entry.name == "fps" for entry in config.stages):
        raise PlanError(
            "a bench counts one frame out for one in, and an fps stage changes that",
            where="stages",
            hint="leave the fps stage out",
        )
    info = probe(path)
    times = timetable(info)
    if times.obstacle is not None:
        hint = "measure a copy in .mp4 or .mkv"
        raise MediaError(f"its pictures cannot be counted: {times.obstacle}", where=str(path), hint=hint)
    window = resolve_range(config.range.start, config.range.end, info)
    first = 0 if window.start is None else bisect_left(times.pts, window.start)
    there = times.count(window.start, window.end)
    if not there:
        raise MediaError("no picture lies in the range", where=str(path))
    return Subject(config, info, device, folder, times, first, min(frames or there, there))


def first_steps(plan: Plan, steps: int) -> Plan:
    """The plan cut off behind its first `steps` steps."""
    return replace(plan, steps=plan.steps[:steps])
