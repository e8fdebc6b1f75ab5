"""Chroma up- and downsampling with siting.

The kernel is the triangle, as zimg's `filter=bilinear`: linear interpolation upwards; downwards the triangle is widened
by the ratio, 2, so that it suppresses what the coarser grid cannot hold (1 2 1 or 1 3 3 1 taps). It neither rings nor
goes out of range, and an up-down round trip stays close. Samples beyond the edge repeat the edge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from gpupipe.ops.lattice import Lattice, PlaneLattice

Phase = tuple[tuple[int, float], ...]


def taps(source: Lattice, target: Lattice) -> tuple[int, tuple[Phase, ...]]:
    """Step S and phases: output j * P + p is the sum of weight * input[j * S + k] over phase p's (k, weight)."""
    reach = max(source.pitch, target.pitch)
    phases = []
    for p in range(int(reach / target.pitch)):
        at = target.first + p * target.pitch
        near = round((at - source.first) / source.pitch)
        weights = [(k, 1 - abs(source.first + k * source.pitch - at) / reach) for k in range(near - 3, near + 4)]
        total = sum(w for _, w in weights if w > 0)
        phases.append(tuple((k, float(w / total)) for k, w in weights if w > 0))
    return int(reach / source.pitch), tuple(phases)


def _spans(length: int, count: int, step: int, k: int) -> list[tuple[int, int, int, int]]:
    """For the tap input[j * step + k]: runs of j as (first j, end, first input, input stride); stride 0 is the edge."""
    low = min(max(-(k // step), 0), count)  # the first j that falls inside
    high = min(max((length - 1 - k) // step + 1, low), count)
    runs = [(0, low, 0, 0), (low, high, low * step + k, step), (high, count, length - 1, 0)]
    return [run for run in runs if run[1] > run[0]]


def _filter(x: torch.Tensor, out: torch.Tensor, dim: int, step: int, phases: tuple[Phase, ...]) -> None:
    """Writes the resampled `x` to `out` along `dim`; each tap is a slice, beyond the edge the edge sample."""
    x, out = x.transpose(dim, 0), out.transpose(dim, 0)
    for p, phase in enumerate(phases):
        part = out[p :: len(phases)]
        for order, (k, weight) in enumerate(phase):
            for start, end, first, stride in _spans(len(x), len(part), step, k):
                target = part[start:end]
                span = x[first : first + stride * (end - start - 1) + 1 : stride] if stride else x[first : first + 1]
                if order:
                    target.add_(span, alpha=weight)
                else:
                    torch.mul(span.expand_as(target), weight, out=target)


class ChromaFilter:
    """Moves a chroma component from one siting to another.

    Args:
        source: where the samples that come in sit (`ops.lattice`).
        target: where those that go out sit.
        interlaced: treat the two fields as pictures of their own.
    """

    def __init__(self, source: PlaneLattice, target: PlaneLattice, *, interlaced: bool) -> None:
        self._size = (target.y.count, target.x.count)
        self._horizontal = None if source.x == target.x else taps(source.x, target.x)
        self._vertical = [] if source.y == target.y else [taps(source.y, target.y)]
        self.by_field = interlaced and bool(self._vertical) and min(source.y.count, target.y.count) > 1
        """Whether the fields are filtered apart."""
        if self.by_field:
            self._vertical = [taps(source.y.field(p), target.y.field(p)) for p in (0, 1)]

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self._horizontal is None and not self._vertical

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Resamples (N, H, W) in float32; returns `x` itself where there is nothing to do."""
        height, width = self._size
        if self._vertical:  # first: whole rows are the cheaper direction
            out = x.new_empty((x.shape[0], height, x.shape[2]))
            fields = len(self._vertical)
            for parity, (step, phases) in enumerate(self._vertical):
                _filter(x[:, parity::fields], out[:, parity::fields], -2, step, phases)
            x = out
        if self._horizontal is not None:
            out = x.new_empty((x.shape[0], height, width))
            _filter(x, out, -1, *self._horizontal)
            x = out
        return x
