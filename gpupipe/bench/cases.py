"""Which rows a bench has: the plan cut off behind each of its steps, its encoder alone, and the baselines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpupipe.bench.alone import encoder_alone, keep, pictures_kept
from gpupipe.bench.flow import Discard, Run, unwritten, written
from gpupipe.bench.subject import first_steps
from gpupipe.errors import GpupipeError
from gpupipe.render.codecs import encoder_maker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpupipe.bench.record import Kind
    from gpupipe.bench.subject import Subject
    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan, Step
    from gpupipe.render.progress import StopFlag

BASELINE_SHARE, LEAST = 40, 240
"""Baselines, many times as slow, take one frame in 40 of the clip, but not fewer than 240."""
BASELINES = {"cpu": "same config, CPU", "host-pipe": "through numpy", "host-pipe-threads": "through numpy, 3 threads"}
"""Names and labels."""
LEAST_OF_FEW = 900
"""Frames at least for rows with fewer sessions, which else take their share of the clip."""


@dataclass(frozen=True, slots=True)
class Case:
    """A row to be measured, or the reason why it cannot be."""

    name: str
    label: str
    kind: Kind
    frames: int
    sessions: int = 1
    run: Callable[[int], Run] | None = None
    """Given a number of frames; its Run must have as many."""
    limit: str = ""
    """Name of the row that decodes alone with as many sessions."""
    output: Path | None = None
    """The file that a run leaves."""
    reason: str | None = None


def decode_only(subject: Subject, sessions: int | None, frames: int, stop: StopFlag) -> Run:
    """Decoders kept open, no step, nothing encoded."""
    return unwritten(first_steps(subject.plan(frames, sessions=sessions), 0), lambda _: Discard(), stop)


def cases(subject: Subject, tried: list[int], best: int, stop: StopFlag) -> list[Case]:
    """All rows, in the order of the table.

    Args:
        subject: what is measured.
        tried: numbers of sessions that get rows of their own besides `best`.
        best: sessions of the main rows.
        stop: ends a run early.
    """
    plan = subject.plan(sessions=best)
    frames, cut = subject.frames, len(plan.segments) > 1
    sessions = plan.sessions
    again: int | None = best if cut else None

    def made(count: int) -> Plan:
        return subject.plan(count, sessions=again)

    rows = [
        Case(
            "decode", "decode only", "limit", frames, sessions, lambda n: decode_only(subject, again, n, stop), "decode"
        )
    ]
    for n, (name, step) in enumerate(zip(step_names(plan.steps), plan.steps, strict=True), 1):
        rows.append(Case(name, f"+ {_words(step)}", "step", frames, sessions, _up_to(made, n, stop), "decode"))
    encoder = plan.encoder.encoder
    make = encoder_maker(plan)
    rows += [
        Case("encode", f"+ {encoder}", "whole", frames, sessions,
             lambda n: unwritten(made(n), make, stop), "decode"),
        Case("whole", f"whole, to {plan.output.suffix[1:]}", "whole", frames, sessions,
             lambda n: written(made(n), stop), "decode", output=plan.output),
    ]  # fmt: skip
    alone = _Alone(subject, again, stop)
    rows.append(Case("encoder-alone", f"{encoder} from memory", "limit", frames, sessions, alone))
    for few in tried if cut else ():
        if few != sessions:
            rows += _with_sessions(subject, few, sessions, len(plan.steps), stop)
    return rows + _baselines(subject, plan, stop)


def step_names(steps: tuple[Step, ...]) -> list[str]:
    """What `--only` calls each step: its stage, or what kind of step it is; a number where there are several."""
    names = [step.name if step.kind == "stage" else step.kind for step in steps]
    seen: Counter[str] = Counter()
    for n, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[n] = f"{name}-{seen[name]}"
    return names


def _words(step: Step) -> str:
    return step.name if step.kind in ("stage", "convert") else step.kind


def _up_to(made: Callable[[int], Plan], steps: int, stop: StopFlag) -> Callable[[int], Run]:
    return lambda frames: unwritten(first_steps(made(frames), steps), lambda _: Discard(), stop)


def _with_sessions(subject: Subject, few: int, best: int, steps: int, stop: StopFlag) -> list[Case]:
    """Decode alone and the whole chain with another number of sessions, on a share of the clip that takes as long."""
    frames = min(subject.frames, max(LEAST_OF_FEW, subject.frames * few // best))
    words = f"{few} session{'s' * (few > 1)}"
    limit = f"decode-{few}"
    return [
        Case(limit, f"decode only, {words}", "fewer", frames, few, lambda n: decode_only(subject, few, n, stop), limit),
        Case(f"steps-{few}", f"all steps, {words}", "fewer", frames, few,
             _up_to(lambda n: subject.plan(n, sessions=few), steps, stop), limit),
    ]  # fmt: skip


class _Alone:
    """The encoder fed from memory; pictures are made at the first call and kept."""

    def __init__(self, subject: Subject, sessions: int | None, stop: StopFlag) -> None:
        self._subject, self._sessions, self._stop = subject, sessions, stop
        self._kept: list[FrameBatch] = []

    def __call__(self, frames: int) -> Run:
        plan = self._subject.plan(sessions=self._sessions)
        if not self._kept:
            few = self._subject.plan(pictures_kept(plan), sessions=self._sessions)
            self._kept = keep(few, self._stop)
        return encoder_alone(plan, self._kept, frames)


def _baselines(subject: Subject, plan: Plan, stop: StopFlag) -> list[Case]:
    """The same config on the CPU, and the usual way through numpy; each with its reason where it cannot be had."""
    frames = min(subject.frames, max(LEAST, subject.frames // BASELINE_SHARE))
    labels = dict(BASELINES)
    if plan.device == "cpu":
        reasons = {"cpu": "this run is on the CPU: `whole` is it"}
        return [Case(name, label, "baseline", frames, reason=reasons.get(name, "it needs a GPU"))
                for name, label in labels.items()]  # fmt: skip
    try:
        on_cpu = subject.on_cpu(1)
    except GpupipeError as error:
        return [Case(name, label, "baseline", frames, reason=str(error)) for name, label in labels.items()]
    labels["cpu"] = f"same on the CPU, {on_cpu.encoder.encoder}"
    runs: dict[str, Callable[[int], Run]] = {
        "cpu": lambda n: written(subject.on_cpu(n), stop),
        "host-pipe": lambda n: _through_numpy(subject, n, plan.device, stop, threads=False),
        "host-pipe-threads": lambda n: _through_numpy(subject, n, plan.device, stop, threads=True),
    }
    rows = [
        Case(name, label, "baseline", frames, run=runs[name], output=on_cpu.output) for name, label in labels.items()
    ]
    if plan.source.video.display_matrix is not None:
        why = "it does not turn pictures as a display matrix says"
        rows[1:] = [replace(row, run=None, output=None, reason=why) for row in rows[1:]]
    return rows


def _through_numpy(subject: Subject, frames: int, device: str, stop: StopFlag, *, threads: bool) -> Run:
    from gpupipe.bench.host_pipe import host_pipe  # noqa: PLC0415  imports torch

    return host_pipe(subject, frames, device, stop, threads=threads)
