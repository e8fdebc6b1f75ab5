"""Resampling filters and their weights, in float64; no torch.

As zimg does it (resize/filter.cpp): the kernel is widened by the step when a picture shrinks, weights of one output
sample are normalised to 1, and taps beyond the edge read the mirrored picture (edge sample doubled).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpupipe.ops.lattice import AxisMap

Filter = Literal["nearest", "bilinear", "bicubic", "lanczos", "area"]
Floats = npt.NDArray[np.float64]

_SUPPORT = {"bilinear": 1.0, "bicubic": 2.0, "lanczos": 3.0}


def kernel(name: Filter, x: Floats) -> Floats:
    """Value of the filter at distance `x` in samples.

    bicubic is Catmull-Rom, b = 0 and c = 1/2 of Mitchell and Netravali 1988 (zimg's own default is 1/3, 1/3;
    libswscale's 0, 0.6); lanczos has a = 3.
    """
    x = np.abs(x)
    if name == "bilinear":
        return np.maximum(0.0, 1.0 - x)
    if name == "bicubic":
        near = (1.5 * x - 2.5) * x * x + 1.0
        far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
        return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
    return np.where(x < 3.0, np.sinc(x) * np.sinc(x / 3.0), 0.0)


def taps(axis: AxisMap, name: Filter) -> tuple[npt.NDArray[np.int64], Floats]:
    """Source indices and weights, both (target, taps). Weights of a row sum to 1; indices lie inside the source.

    nearest takes the sample whose pixel holds the position; area averages the stretch of source that one output sample
    covers, exactly, in both directions.
    """
    positions = np.array([float(axis.start + k * axis.step) for k in range(axis.target)])
    step = float(axis.step)
    if name == "nearest":
        index, weight = np.floor(positions + 0.5).astype(np.int64)[:, None], np.ones((axis.target, 1))
    else:
        reach = step / 2 + 0.5 if name == "area" else _SUPPORT[name] * max(step, 1.0)
        first = np.ceil(positions - reach - 1e-9).astype(np.int64)
        index = first[:, None] + np.arange(math.floor(2 * reach + 1e-9) + 1)[None, :]
        distance = index - positions[:, None]
        if name == "area":  # length of the overlap of a pixel with the stretch
            weight = np.clip(step / 2 + 0.5 - np.abs(distance), 0.0, min(1.0, step))
        else:
            weight = kernel(name, distance / max(step, 1.0))
        weight /= weight.sum(axis=1, keepdims=True)
    folded = np.mod(index, 2 * axis.source)
    return np.where(folded < axis.source, folded, 2 * axis.source - 1 - folded), weight


@dataclass(frozen=True)
class Bands:
    """A banded matrix cut into dense blocks: block b of rows touches columns `starts[b] .. starts[b] + width` only."""

    starts: tuple[int, ...]
    blocks: Floats
    """(blocks, rows, width); rows past the last target sample are zero."""
    target: int


def bands(axis: AxisMap, name: Filter) -> Bands:
    """The weights of `axis` as blocks of rows, small enough to waste little and large enough for a fast matmul."""
    index, weight = taps(axis, name)
    rows = _block_rows(axis, weight.shape[1])
    count = -(-axis.target // rows)
    low = [int(index[b * rows : (b + 1) * rows].min()) for b in range(count)]
    high = [int(index[b * rows : (b + 1) * rows].max()) for b in range(count)]
    width = max(h - s + 1 for s, h in zip(low, high, strict=True))
    starts = [min(s, axis.source - width) for s in low]
    blocks = np.zeros((count, rows, width))
    for k in range(axis.target):
        block, row = divmod(k, rows)
        np.add.at(blocks[block, row], index[k] - starts[block], weight[k])
    return Bands(tuple(starts), blocks, axis.target)


def _block_rows(axis: AxisMap, count: int) -> int:
    """Rows a block: about 48 source samples or as many as the filter has taps (measured best for 1080p to 720p)."""
    rows = round(max(48, count) / float(axis.step))
    return max(16, min(128, rows // 16 * 16, -(-axis.target // 16) * 16))
