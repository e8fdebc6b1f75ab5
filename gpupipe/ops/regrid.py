"""Moves planes from one grid to another: crop, scale and shift in one step, chroma siting and fields exact."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import torch

from gpupipe.ops.lattice import PlaneLattice, map_axis, plane_lattices
from gpupipe.ops.resample import Resampler

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.format import FrameFormat, PixelFormat
    from gpupipe.ops.kernels import Filter


@dataclass(frozen=True, slots=True)
class Window:
    """Target picture coordinate (x, y) shows source coordinate (left + scale_x * x, top + scale_y * y)."""

    left: Fraction = Fraction(0)
    top: Fraction = Fraction(0)
    scale_x: Fraction = Fraction(1)
    scale_y: Fraction = Fraction(1)


class Regrid:
    """Resamples every plane of `source` to `target`'s size through `window`.

    Interlaced pictures are resampled field by field, each at its own phase, unless lines are only cut. Planes that
    are only cut are views of what came in.

    Args:
        source, target: formats of one pixel format; they differ in size and chroma location only.
        window: what part of the source the target shows.
        name: the filter.
        lattices: where the source's samples lie, if not where its format says.
    """

    def __init__(
        self,
        source: FrameFormat,
        target: FrameFormat,
        window: Window,
        name: Filter,
        lattices: tuple[PlaneLattice, ...] | None = None,
    ) -> None:
        self._pixels = source.pixels
        self._device = torch.device(source.device)
        self._planes: list[tuple[Resampler, ...]] = []
        known: dict[tuple[PlaneLattice, PlaneLattice, int], tuple[Resampler, ...]] = {}
        pairs = list(zip(lattices or plane_lattices(source), plane_lattices(target), strict=True))
        depths = [source.pixels.depth] * len(pairs)
        if source.alpha:
            depths[-1] = source.alpha
        for (old, new), depth in zip(pairs, depths, strict=True):
            if (old, new, depth) not in known:
                resamplers = self._resamplers(old, new, window, name, depth=depth, interlaced=source.interlaced)
                known[old, new, depth] = resamplers
            self._planes.append(known[old, new, depth])

    def _resamplers(
        self, old: PlaneLattice, new: PlaneLattice, window: Window, name: Filter, *, depth: int, interlaced: bool
    ) -> tuple[Resampler, ...]:
        """One for the frame, or one a field."""
        x = map_axis(old.x, new.x, window.left, window.scale_x)
        frame = map_axis(old.y, new.y, window.top, window.scale_y)
        rows = [frame]
        if interlaced and not frame.is_slice:
            rows = [map_axis(old.y.field(p), new.y.field(p), window.top, window.scale_y) for p in (0, 1)]
        shift = self._pixels.msb_shift
        return tuple(Resampler(x, y, name, self._device, depth=depth, msb_shift=shift) for y in rows)

    def __call__(self, planes: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Planes in the source's layout to planes in the target's."""
        assert len(planes) == len(self._planes)
        return tuple(self.plane(index, plane) for index, plane in enumerate(planes))

    def plane(self, index: int, plane: Tensor) -> Tensor:
        """One plane; of floats, which come out as they are computed, where integers would be rounded and clamped."""
        return _apply(self._planes[index], plane, self._pixels, index)


def _apply(resamplers: tuple[Resampler, ...], plane: Tensor, pixels: PixelFormat, index: int) -> Tensor:
    """Resamples one plane tensor of any layout, by frame or by field."""
    width, height = resamplers[0].width, sum(r.height for r in resamplers)
    interleaved = pixels.layout == "semiplanar" and index == 1
    if len(resamplers) == 1 and resamplers[0].is_slice:
        rows, columns = resamplers[0].window
        return plane[..., rows, columns, :] if interleaved else plane[..., rows, columns]
    if interleaved:
        out = plane.new_empty((plane.shape[0], height, width, 2))
        pairs = [(plane[..., c], out[..., c]) for c in (0, 1)]
    else:
        out = plane.new_empty((*plane.shape[:-2], height, width))
        pairs = [(plane.flatten(0, -3), out.flatten(0, -3))]
    for source, target in pairs:
        for parity, resampler in enumerate(resamplers):
            step = len(resamplers)
            resampler.into(source[:, parity::step], target[:, parity::step])
    return out
