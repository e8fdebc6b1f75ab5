"""Whether and where a run is cut into segments, and how many of them run side by side."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import TYPE_CHECKING

from gpupipe import stages
from gpupipe.config import SegmentLength
from gpupipe.errors import PlanError
from gpupipe.media.segments import Segment, cut, timetable
from gpupipe.stages.base import Temporal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.config import Config
    from gpupipe.format import FrameFormat
    from gpupipe.media.source import SourceInfo
    from gpupipe.media.timeline import Window
    from gpupipe.plan.model import Graphs, Step
    from gpupipe.stages.base import Stage

BATCH_BYTES = 50 << 20
SESSIONS_AN_ENGINE, WORTH_A_SESSION = 2, 300
"""Sessions that keep an NVDEC engine busy to the last frame; pictures that make up for opening another."""
MANY, WORTH_MANY, QUICK = 4, 100_000, frozenset({"hevc"})
"""The same of codecs that NVDEC decodes so fast that it waits between pictures: on an H200 28 sessions keep it busy for
98 % of the time and decode 6,340 frames/s of 1080p, 14 for 94 % and 5,900. That makes up for a second of opening them
where pictures are many."""
AHEAD = 2
"""Segments that a session may be before the one that is written."""
KEPT_LENGTH = Fraction(60)
"""Seconds of a segment that is cut only to be kept: few enough cuts to cost next to nothing, little work to lose."""
WORTH_KEEPING = Fraction(60)
"""Seconds of a run above which `resume: auto` keeps segments."""
SHORTEST, LONGEST = Fraction(1), Fraction(10)
"""Seconds of a segment under `segments: auto`: several for each session, so that all are busy to the end."""
LONGEST_ALONE = Fraction(2)
"""The same where pictures are coded by themselves, which a cut costs nothing: what waits for the writer is little, and
so is what is left to write when the last of it is encoded."""


LEAD_COSTS = 16
"""How many times longer than what leads into it a segment is, where that leaves one for each session."""


def choose_segments(
    config: Config,
    info: SourceInfo,
    window: Window,
    *,
    engines: int,
    retimed: bool,
    lead: int = 0,
    alone: bool = False,
    heavy: bool = False,
) -> tuple[tuple[Segment, ...], int, str]:
    """(segments, most sessions that are of use, the reason in words); one open segment where the run is not cut.

    `auto` cuts where decoder and encoder both run on the GPU: there one session keeps one of several engines busy. A
    CPU encoder uses all cores by itself and loses by being cut, unless `resume: keep` asks for it. Where it cuts does
    not depend on free memory.

    Args:
        config: what is asked.
        info: facts of the source.
        window: range of the run.
        engines: decoders of the GPU; 0 where decoder or encoder run on the CPU.
        retimed: the chain has an fps stage.
        lead: pictures before a segment that its first one depends on.
        alone: each picture is coded by itself.
        heavy: see `heavy_in`.

    Raises PlanError where segments are asked for and the result could not be right.
    """
    whole = (Segment(window.start, window.end, 0, closed=False),)
    wanted, on_device, keep = config.segments, engines > 0, config.resume == "keep"
    if wanted == "off" or (wanted == "auto" and not on_device and not keep):
        return whole, 1, "not cut: one encoder uses the whole machine" if wanted == "auto" else "off in the config"
    refusal = _refusal(config, retimed=retimed)
    times = None if refusal else timetable(info)
    if times is not None:
        refusal = times.obstacle
    if refusal is not None or times is None:
        if wanted != "auto" or keep:
            key, hint = ("resume", "`resume: off`") if keep else ("segments", "`segments: off`")
            key, hint = ("devices", "one `device`") if config.devices is not None else (key, hint)
            raise PlanError(f"this run cannot be cut: {refusal}", where=key, hint=f"use {hint}")
        return whole, 1, f"not cut: {refusal}"
    sessions = (
        config.sessions if isinstance(config.sessions, int) else _sessions(info, len(times.pts), engines, heavy=heavy)
    )
    tail = None
    if isinstance(wanted, SegmentLength):
        seconds = Fraction(str(wanted.seconds))
    elif not on_device:
        seconds, sessions = KEPT_LENGTH, config.sessions if isinstance(config.sessions, int) else 1
    else:
        apart = keep or config.devices is not None  # each segment is then a file
        short = alone and lead == 0 and not apart
        longest = LONGEST_ALONE if short else LONGEST
        share = len(times.pts) / info.video.rate / sessions
        worth = min(share, LEAD_COSTS * lead / info.video.rate)
        seconds = min(longest, max(SHORTEST, share / 4, worth))
        if short:
            # Sessions end close together then, and what others have done meanwhile is all that is left to write.
            tail = sessions * seconds, SHORTEST
    segments = cut(times, window, seconds, info.video.time_base, lead, tail=tail)
    reason = f"{len(segments)} at key frames"
    if len(segments) == 1:
        reason = f"one: no key frame to cut at {float(seconds):.3g} s or more from the start"
    return segments, min(sessions, len(segments)), reason


def _refusal(config: Config, *, retimed: bool) -> str | None:
    """Why the result of segments would not be right, as far as the source has nothing to do with it."""
    if retimed:
        return "an fps stage counts frames from the beginning on"
    if config.output.video.bitrate is not None:
        return "each segment would be rate-controlled by itself, and the bitrate would not hold; use quality"
    return None


def keeps(config: Config, info: SourceInfo, segments: Sequence[Segment], *, on_device: bool) -> bool:
    """Whether a run has a ledger. `auto`: cut, and more than a minute, and not from decoder to encoder on a GPU.

    There frames come so fast that writing them twice would show, and nearly every run is over soon.
    """
    if config.resume == "keep" and config.segments == "off":
        hint = "use `segments: auto`, or `resume: off`"
        raise PlanError("what is not cut cannot be kept piece by piece", where="resume", hint=hint)
    if config.resume != "auto":
        return config.resume == "keep"
    long = sum(segment.frames for segment in segments) / info.video.rate > WORTH_KEEPING
    return len(segments) > 1 and long and not on_device


def most_waiting(segments: Sequence[Segment], sessions: int) -> int:
    """Pictures of finished and begun segments that may wait for those before them."""
    longest = max((segment.frames for segment in segments), default=0)
    return min(sum(segment.frames for segment in segments), AHEAD * sessions * longest)


def _sessions(info: SourceInfo, frames: int, engines: int, *, heavy: bool) -> int:
    """On a GPU two or more for each decoder, so that each always has work; on the CPU what the cores carry.

    Opening a session and capturing its graphs costs as much as decoding some hundred frames.
    """
    if engines == 0:
        return max(1, (os.cpu_count() or 1) // 2)
    many = not heavy and info.video.codec in QUICK and frames >= WORTH_MANY
    return max(1, min((MANY if many else SESSIONS_AN_ENGINE) * engines, frames // WORTH_A_SESSION))


def batch_size(picture: FrameFormat) -> int:
    """Pictures that the GPU computes at once: 16 at 1080p, fewer of larger ones, one on the CPU."""
    return 1 if picture.device == "cpu" else max(4, min(16, BATCH_BYTES // picture.frame_bytes))


def graphs_of(config: Config, steps: Sequence[Step]) -> Graphs:
    """What of the work on a batch is captured: all of it, where every stage as it is set may be."""
    if config.graphs == "off":
        return "off"
    made = [stage_of(step) for step in steps if step.kind == "stage"]
    if all(stage.graphable for stage in made):
        return "whole"
    return "parts" if any(stage.captures for stage in made) else "off"


def lead_in(steps: Sequence[Step]) -> int:
    """Pictures before that one depends on: what each temporal stage needs comes before what the next one needs."""
    made = (stage_of(step) for step in steps if step.kind == "stage")
    return sum(stage.lead for stage in made if isinstance(stage, Temporal))


def heavy_in(steps: Sequence[Step]) -> bool:
    """Whether a stage takes so long for each picture that decoders wait for it, see `Stage.heavy`."""
    return any(stages.load(step.name).heavy for step in steps if step.kind == "stage")


def stage_of(step: Step) -> Stage:
    """The stage of a step of that kind, made from its settings and not prepared."""
    kind = stages.load(step.name)
    made: Stage = kind(kind.Settings.model_validate(step.settings, strict=False))
    return made
