"""How fast a plan runs, part by part, beside what limits it and beside the usual ways; checked before it is timed."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import gpupipe
from gpupipe.bench.cases import cases, decode_only
from gpupipe.bench.chain import ENCODES, built_in, encoded
from gpupipe.bench.check import CHECKED, check
from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.bench.flow import expect
from gpupipe.bench.machine import machine
from gpupipe.bench.measure import bottleneck, measure, ratios, rows
from gpupipe.bench.nvml import Sampler
from gpupipe.bench.record import SCHEMA, Clip, Report
from gpupipe.bench.subject import open_subject
from gpupipe.device import pick_device
from gpupipe.errors import ConfigError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpupipe.bench.cases import Case
    from gpupipe.bench.record import Row
    from gpupipe.bench.subject import Subject
    from gpupipe.config import Config
    from gpupipe.plan import Plan
    from gpupipe.render import StopFlag

__all__ = ["ENCODES", "RECIPES", "Report", "Request", "bench"]

GPU_FRAMES, CPU_FRAMES = 6000, 60
"""Of a generated clip, where no number is asked for."""
PICTURE_BYTES = 1 << 20
"""Room for a picture of clip and output, at most, where files are to lie in memory."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be measured."""

    command: str
    """How it was asked for, for the report."""
    config: Config | None = None
    """None: the built-in chain, a warp and an overlay."""
    encode: str | None = None
    """A name in `ENCODES`, instead of the config's encoder."""
    source: Path | None = None
    """None: a generated clip."""
    recipe: str = "h264"
    """Which one: a name in `RECIPES`."""
    device: str | None = None
    """Overrides the config's."""
    frames: int | None = None
    """Of the clip; at most so many of a source."""
    runs: int = 3
    sessions: tuple[int, ...] = ()
    """Numbers to try; empty: one, half of what the plan takes, and all of that."""
    only: tuple[str, ...] = ()
    """Names of rows; empty: all."""
    checked: int = CHECKED
    """Pictures that are compared with the CPU backend's."""


def bench(request: Request, *, say: Callable[[str], None], stop: StopFlag) -> Report:
    """Makes or opens the clip, checks what comes out of it, and times every row.

    Args:
        request: what is to be measured.
        say: told of each figure as it comes.
        stop: ends it early.

    Raises GpupipeError: the plan cannot be made, or what comes out of it is not what should.
    """
    device = pick_device(request.device or (request.config.device if request.config else "auto"))
    frames = request.frames or (None if request.source else CPU_FRAMES if device == "cpu" else GPU_FRAMES)
    with _folder(request, frames or 0) as folder:
        path = request.source
        if path is None:
            assert frames is not None
            path = folder / f"{request.recipe}.mp4"
            say(f"making {path.name}: {frames} frames")
            make_clip(path, RECIPES[request.recipe], frames)
        config = request.config or built_in(folder)
        if request.encode is not None:
            config = encoded(config, request.encode)
        subject = open_subject(config, path, folder, device=device, frames=frames)
        return _report(request, subject, say, stop)


@contextmanager
def _folder(request: Request, frames: int) -> Iterator[Path]:
    """Where clip and outputs lie: in memory where there is room, so that no disk is measured."""
    memory = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it
    size = request.source.stat().st_size * 4 if request.source and request.source.is_file() else frames * PICTURE_BYTES
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 2 * size
    with tempfile.TemporaryDirectory(prefix="gpupipe-bench-", dir=memory if roomy else None) as name:
        yield Path(name)


def _report(request: Request, subject: Subject, say: Callable[[str], None], stop: StopFlag) -> Report:
    plan = subject.plan()
    tried = _sessions(request, subject, plan, say, stop)
    best = max(tried, key=lambda n: tried[n]) if tried else plan.sessions
    every = cases(subject, list(tried), best, stop)
    chosen = _chosen(every, request.only)
    say("checking what comes out")
    files = [case for case in every if case.name == "whole" or case in chosen]
    checked = check(subject, files, stop, request.checked)
    sampler = Sampler(subject.plan(1).device)
    found = measure(chosen, request.runs, sampler, say)
    table = rows(found)
    return Report(
        schema=SCHEMA,
        gpupipe=gpupipe.__version__,
        command=request.command,
        date=dt.datetime.now(dt.UTC).date().isoformat(),
        machine=machine(plan.device),
        clip=_clip(request, subject),
        plan=_words(subject.plan(sessions=best)),
        check=checked,
        runs=request.runs,
        tried={str(n): round(value, 1) for n, value in tried.items()},
        rows=table,
        ratios=ratios(found),
        bottleneck=bottleneck(table),
        not_measured=_missing(table, sampler, plan.segments_reason if request.sessions and not tried else None),
    )


def _sessions(
    request: Request, subject: Subject, plan: Plan, say: Callable[[str], None], stop: StopFlag
) -> dict[int, float]:
    """Frames a second of decode alone by number of sessions; nothing where the plan is not cut."""
    if len(plan.segments) <= 1:
        return {}
    wanted = request.sessions or _numbers(subject, plan)
    tried = {}
    for number in wanted:
        frames = min(subject.frames, max(900, subject.frames * number // max(wanted)))
        decode_only(subject, number, min(frames, 300), stop)
        run = expect(decode_only(subject, number, frames, stop), frames, f"decode, {number} sessions")
        tried[number] = run.rate
        say(f"decode only, {number} sessions: {run.rate:.1f} frames a second")
    return tried


def _numbers(subject: Subject, plan: Plan) -> tuple[int, ...]:
    """One, half of what is planned, that, and twice that on a GPU that has room for it."""
    numbers = {1, max(1, plan.sessions // 2), plan.sessions}
    if plan.device != "cpu":
        with suppress(PlanError):
            numbers.add(subject.plan(sessions=2 * plan.sessions).sessions)
    return tuple(sorted(numbers))


def _chosen(every: list[Case], only: tuple[str, ...]) -> list[Case]:
    names = [case.name for case in every]
    for name in only:
        if name not in names:
            raise ConfigError(f"there is no row {name!r} here", where="--only", hint=f"one of {', '.join(names)}")
    return [case for case in every if not only or case.name in only]


def _missing(table: tuple[Row, ...], sampler: Sampler, uncut: str | None) -> tuple[str, ...]:
    """What could not be measured, by reason."""
    reasons: dict[str, list[str]] = {}
    if sampler.reason:
        reasons[sampler.reason] = ["how busy GPU and NVDEC are"]
    if uncut:
        reasons[uncut] = ["other numbers of sessions"]
    for row in table:
        if row.reason:
            reasons.setdefault(row.reason, []).append(f"`{row.name}`")
    return tuple(f"{', '.join(what)} ({why})" for why, what in reasons.items())


def _words(plan: Plan) -> tuple[str, ...]:
    """The plan's lines from the decoder to the encoder; its scratch folder is nobody's business."""
    shown = (line.replace(f"{plan.output.parent}/", "") for line in plan.lines())
    return tuple(line for line in shown if line.startswith(("decode", "segments", "  ", "encode")))


def _clip(request: Request, subject: Subject) -> Clip:
    video = subject.source.video
    duration = subject.source.duration or 0
    return Clip(
        name="generated clip" if request.source is None else request.source.name,
        codec=video.codec,
        profile=video.profile,
        pixels=video.native_pixels,
        width=video.format.width,
        height=video.format.height,
        rate=str(video.rate),
        frames=subject.frames,
        megabits=round(float(subject.source.size_bytes * 8 / duration / 1_000_000), 2) if duration else 0.0,
    )
