"""The steps of a plan as callables: planes in, planes out."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from gpupipe.codecs.native import planes_of
from gpupipe.device.host import short_of_memory
from gpupipe.errors import MediaError, ShortMemoryError
from gpupipe.journal import Journal
from gpupipe.ops.color import Converter
from gpupipe.plan.model import Step
from gpupipe.plan.segments import heavy_in, stage_of
from gpupipe.render.watch import current
from gpupipe.stages.base import Memory, Stage, Temporal, seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.device.base import Lane
    from gpupipe.device.cuda import PinnedRing
    from gpupipe.engines.choice import Choice
    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch

Planes = tuple[torch.Tensor, ...]
Memories = tuple[Memory | None, ...]
"""One for each step of a chain; None where it remembers nothing."""


class Transform(Protocol):
    """What every step comes down to."""

    def __call__(self, planes: Planes) -> Planes:
        """New planes from old; neither synchronises nor logs."""
        ...


class Chain:
    """Runs the steps of a plan on batch after batch.

    Everything a step needs (grids, weights, tables, pinned memory) is made here, before the first frame, and is only
    read after that: `transform` may run on several lanes of the device at once. An upload is the first step of a plan
    and a download the last.

    Args:
        steps: of the plan.
        lane: where the work happens.
        journal: told of what stages report.
        rows: pictures that come at once, at most.
        choices: see `Plan.choices`.
        graphs: stages may capture CUDA Graphs of their own, see `Stage.attend`.
    """

    def __init__(
        self, steps: Sequence[Step], lane: Lane, journal: Journal | None = None, *, rows: int = 1,
        choices: Sequence[Choice] = (), graphs: bool = False,
    ) -> None:  # fmt: skip
        self._steps, self._lane = tuple(steps), lane
        if lane.device == "cpu":  # light stages are computed side by side, a thread for each picture (`ahead`)
            torch.set_num_threads((os.cpu_count() or 1) if heavy_in(steps) else 1)
        told = Journal() if journal is None else journal
        numbers = itertools.count()
        chosen: list[Choice] = []
        calls: list[tuple[Step, Transform]] = []
        with lane.active():
            for step in steps:
                if step.kind in ("upload", "download"):
                    continue
                if step.kind != "stage":
                    calls.append((step, _transform(step)))
                    continue
                own = bool(calls) and _fresh(calls[-1][1])
                call = _prepared(
                    step, next(numbers), told, rows=rows, held=choices, chosen=chosen, graphs=graphs, own=own
                )
                calls.append((step, call))
        self._calls = tuple(calls)
        self.choices = tuple(chosen)
        """What its networks run on: held to, or made up here."""
        lane.synchronize()  # other lanes may use what was made
        self._memories = self.remember()
        self._upload = _ring([s for s in steps if s.kind == "upload"], lane)
        self._download = _ring([s for s in steps if s.kind == "download"], lane)

    @property
    def remembers(self) -> bool:
        """Whether a step depends on pictures before, so that pictures must come in order and none may be left out."""
        return any(isinstance(call, Temporal) for _, call in self._calls)

    def remember(self) -> Memories:
        """Empty memories, for whoever runs `transform` on a piece of the run beside others."""
        return tuple(call.remember() if isinstance(call, Temporal) else None for _, call in self._calls)

    def begin(self, number: int, memories: Memories | None = None) -> None:
        """Forgets all pictures; the next one is the `number`th of the run. In order on the lane."""
        with torch.inference_mode(), self._lane.active():
            for memory in self._memories if memories is None else memories:
                if memory is not None:
                    memory.forget(number)

    def __call__(self, batch: FrameBatch) -> FrameBatch:
        """The batch after the last step; the same object where there is none. Errors name the stage and the pts."""
        if not self._steps:
            return batch
        batch = batch.with_(planes=planes_of(batch), native=None, matte=None)
        if self._upload is not None:
            batch = self._upload.upload(batch)
        batch = batch.with_(planes=self._transformed(batch), ready=None)
        if self._download is not None:
            batch = self._download.download(batch)
            batch.ready.synchronize()  # type: ignore[attr-defined]  # the CPU encoder reads it next
        return batch.with_(format=self._steps[-1].target)

    def _transformed(self, batch: FrameBatch) -> Planes:
        self._lane.wait(batch.ready)
        with torch.inference_mode(), self._lane.active():
            return self.transform(batch.planes, f"pts {batch.pts[0]}", self._memories)

    def transform(self, planes: Planes, place: str = "", memories: Memories | None = None) -> Planes:
        """All steps but upload and download on the planes of a batch; raises ShortMemoryError.

        Args:
            planes: of the next pictures.
            place: for errors.
            memories: of this piece of the run; those of the chain itself where none are given.
        """
        name, rows = "", len(planes[0])
        try:
            for (step, call), memory in zip(self._calls, memories or self._memories, strict=True):
                name = step.name
                if memory is None:
                    planes = call(planes)
                    continue
                planes = call.follow(planes, memory)  # type: ignore[attr-defined]  # a Temporal: it has a memory
                memory.number += rows
        except (RuntimeError, MemoryError) as error:  # torch's CPU allocator has no error of its own
            if not short_of_memory(error):
                raise
            asked = re.search(r"tried to allocate ([0-9.]+ \w+)", str(error), re.IGNORECASE)
            what = f"out of memory, {asked[1]} more were asked for" if asked else "out of memory"
            raise ShortMemoryError(
                what, where=f"stage {name} {place}".strip(), hint="use a smaller picture or another device"
            ) from None
        return planes


def _ring(steps: Sequence[Step], lane: Lane) -> PinnedRing | None:
    if not steps:
        return None
    from gpupipe.device.cuda import PinnedRing  # noqa: PLC0415  only plans with a GPU have these steps

    return PinnedRing(steps[0].source, lane)


def _transform(step: Step) -> Transform:
    """The callable of a step that the planner puts between stages."""
    if step.kind == "even":
        return _even(step.target)
    return Converter(step.source, step.target, dither=bool(step.settings.get("dither", True)))


def _fresh(call: Transform) -> bool:
    """Whether what comes out is new tensors, of which only the next step knows."""
    return call.kind == "matrix" if isinstance(call, Converter) else getattr(call, "fresh", False)


def _prepared(
    step: Step, number: int, journal: Journal, *,
    rows: int, held: Sequence[Choice], chosen: list[Choice], graphs: bool, own: bool,
) -> Transform:  # fmt: skip
    """A stage, the `number`th of the plan, ready to run; `chosen` gets what it runs on."""
    made = stage_of(step)
    made.hold([choice for choice in held if choice.stage == number])
    made.attend(journal, rows, graphs=graphs)
    if own:
        made.own()
    source = seen(made, step.source)
    made.prepare(source)
    chosen += [replace(choice, stage=number) for choice in made.choices()]
    if (watch := current()) is not None:
        watch.models |= {use.name: use for use in made.models()}
    if source.alpha == step.source.alpha:
        return made
    return FollowedBeside(made) if isinstance(made, Temporal) else Beside(made)


class Beside:
    """A stage that has no business with alpha: the last plane goes past it as it is."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __call__(self, planes: Planes) -> Planes:
        """See `Transform`."""
        return (*self._stage(planes[:-1]), planes[-1])


class FollowedBeside(Beside):
    """The same for a stage that remembers; see `stages.base.Temporal`."""

    def __init__(self, stage: Temporal) -> None:
        super().__init__(stage)  # type: ignore[arg-type]  # a Temporal is a Stage
        self._temporal, self.lead = stage, stage.lead

    def remember(self) -> Memory:
        """See `Temporal`."""
        return self._temporal.remember()

    def follow(self, planes: Planes, memory: Memory) -> Planes:
        """See `Temporal`."""
        return (*self._temporal.follow(planes[:-1], memory), planes[-1])


def _even(target: FrameFormat) -> Transform:
    """Repeats the last column and row (of each field); subsampled chroma may have the room already."""
    fields = 2 if target.interlaced else 1
    shapes = target.plane_shapes

    def repeat(planes: Planes) -> Planes:
        grown = []
        for plane, shape in zip(planes, shapes, strict=True):
            rows = torch.arange(shape[0], device=plane.device)
            rows -= ((rows - plane.shape[1]).clamp_(min=-fields) + fields) // fields * fields
            columns = torch.arange(shape[1], device=plane.device).clamp_(max=plane.shape[2] - 1)
            wide = plane.view(torch.int16) if plane.dtype == torch.uint16 else plane
            grown.append(wide.index_select(1, rows).index_select(2, columns).view(plane.dtype))
        return tuple(grown)

    return repeat


class FirstSize:
    """Brings pictures of a stream that changes in mid-course to the format it began with."""

    def __init__(self, first: FrameFormat, policy: str, journal: Journal, lane: Lane) -> None:
        self._first, self._policy, self._journal, self._lane = first, policy, journal, lane
        self._chains: dict[FrameFormat, Chain] = {}

    def __call__(self, batch: FrameBatch) -> FrameBatch:
        """The batch itself where nothing changed. Raises MediaError under `size_change: error`."""
        first, now = self._first, batch.format
        if (now.width, now.height, now.pixels, now.alpha) == (first.width, first.height, first.pixels, first.alpha):
            return batch
        change = f"picture changes from {first} to {now}"
        if self._policy == "error":
            raise MediaError(
                change, where=f"pts {batch.pts[0]}", hint="set `size_change: scale` to scale it to the first size"
            )
        same_size = (now.width, now.height) == (first.width, first.height)
        kept = "it is brought to the first format" if same_size else "it is scaled to the first size"
        opaque = ", opaque" if first.alpha and not now.alpha else ""
        self._journal.warn("size-changed", f"{change}; {kept}{opaque}", place=f"pts {batch.pts[0]}")
        if now not in self._chains:
            self._chains[now] = Chain(self._steps(now), self._lane, self._journal)
        return self._chains[now](batch)

    def _steps(self, now: FrameFormat) -> list[Step]:
        first = self._first
        same_pixels = now.with_(pixels=first.pixels, alpha=first.alpha)
        sized = same_pixels.with_(width=first.width, height=first.height)
        steps = [Step("convert", "size change", now, same_pixels)] if now != same_pixels else []
        if (now.width, now.height) != (first.width, first.height):
            settings: dict[str, object] = {"width": first.width, "height": first.height}
            steps.append(Step("stage", "resize", same_pixels, sized, settings))
        return steps
