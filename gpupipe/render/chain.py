"""The steps of a plan as callables: planes in, planes out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from gpupipe import stages
from gpupipe.codecs.native import planes_of
from gpupipe.errors import DeviceError, GpupipeError, MediaError
from gpupipe.ops.color import Converter
from gpupipe.plan.model import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch
    from gpupipe.journal import Journal

Planes = tuple[torch.Tensor, ...]


class Transform(Protocol):
    """What every step comes down to."""

    def __call__(self, planes: Planes) -> Planes:
        """New planes from old; neither synchronises nor logs."""
        ...


class Chain:
    """Runs the steps of a plan on batch after batch.

    Everything a step needs (grids, weights, tables) is made here, before the first frame.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self._calls = tuple(_transform(step) for step in steps)

    def __call__(self, batch: FrameBatch) -> FrameBatch:
        """The batch after the last step; the same object where there is none. Errors name the stage and the pts."""
        if not self._calls:
            return batch
        planes = planes_of(batch)
        step = self._steps[0]
        try:
            with torch.inference_mode():
                for step, call in zip(self._steps, self._calls, strict=True):
                    planes = call(planes)
        except GpupipeError:
            raise
        except torch.OutOfMemoryError as error:
            raise DeviceError(f"out of GPU memory: {error}", where=f"stage {step.name}, pts {batch.pts[0]}",
                              hint="use a smaller picture or another GPU") from None  # fmt: skip
        return batch.with_(planes=planes, format=self._steps[-1].target, native=None)


def _transform(step: Step) -> Transform:
    """The callable of one step, prepared."""
    if step.kind == "stage":
        stage = stages.load(step.name)
        made = stage(stage.Settings.model_validate(step.settings, strict=False))
        made.prepare(step.source)
        call: Transform = made
        return call
    if step.kind == "convert":
        return Converter(step.source, step.target)
    if step.kind == "even":
        return _even(step.target)
    from gpupipe.device import cuda  # noqa: PLC0415  only plans with a GPU have these steps

    return cuda.Upload(step.source, step.target) if step.kind == "upload" else cuda.Download(step.source, step.target)


def _even(target: FrameFormat) -> Transform:
    """Repeats the last column or row of the planes that grow; subsampled chroma has the room already."""
    shapes = target.pixels.plane_shapes(target.width, target.height)

    def repeat(planes: Planes) -> Planes:
        grown = []
        for plane, shape in zip(planes, shapes, strict=True):
            rows = torch.arange(shape[0], device=plane.device).clamp_(max=plane.shape[1] - 1)
            columns = torch.arange(shape[1], device=plane.device).clamp_(max=plane.shape[2] - 1)
            wide = plane.view(torch.int16) if plane.dtype == torch.uint16 else plane
            grown.append(wide.index_select(1, rows).index_select(2, columns).view(plane.dtype))
        return tuple(grown)

    return repeat


class FirstSize:
    """Brings pictures of a stream that changes in mid-course to the format it began with."""

    def __init__(self, first: FrameFormat, policy: str, journal: Journal) -> None:
        self._first, self._policy, self._journal = first, policy, journal
        self._chains: dict[FrameFormat, Chain] = {}

    def __call__(self, batch: FrameBatch) -> FrameBatch:
        """The batch itself where nothing changed. Raises MediaError under `size_change: error`."""
        first, now = self._first, batch.format
        if (now.width, now.height, now.pixels) == (first.width, first.height, first.pixels):
            return batch
        change = f"picture changes from {first} to {now}"
        if self._policy == "error":
            raise MediaError(change, where=f"pts {batch.pts[0]}", hint="set `size_change: scale` to scale it to the first size")
        self._journal.warn("size-changed", f"{change}; it is scaled to the first size", place=f"pts {batch.pts[0]}")
        if now not in self._chains:
            self._chains[now] = Chain(self._steps(now))
        return self._chains[now](batch)

    def _steps(self, now: FrameFormat) -> list[Step]:
        first = self._first
        same_pixels = now.with_(pixels=first.pixels)
        sized = same_pixels.with_(width=first.width, height=first.height)
        steps = [Step("convert", "size change", now, same_pixels)] if now.pixels is not first.pixels else []
        if (now.width, now.height) != (first.width, first.height):
            settings: dict[str, object] = {"width": first.width, "height": first.height}
            steps.append(Step("stage", "resize", same_pixels, sized, settings))
        return steps

