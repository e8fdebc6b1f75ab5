"""Separable resampling of planes on either device, in float32: one axis is one banded matrix.

On the CPU a strip of rows at a time is summed by `embedding_bag` (a sparse matrix times rows, vectorised by FBGEMM),
turned, and summed again, so that intermediate values stay in the cache: encoder threads want it too. On CUDA it is one
gather and one batched matmul an axis, which a CUDA Graph can capture; TF32 must be off there, as it is by default.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn.functional import embedding_bag

from gpupipe.ops.kernels import Filter, bands, taps

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.ops.lattice import AxisMap


STRIP = 64
"""Target rows at a time on the CPU: what they need of a 1080p picture is half a megabyte."""


class Axis:
    """One axis of a resampling: a slice where samples fall on samples, else a banded matrix.

    Args:
        axis: which source position each target sample shows.
        name: the filter.
        vertical: whether it runs along the rows (dimension -2) or the columns (dimension -1) of a picture.
        device: where the pictures are.
        banded: keep dense blocks along the band, for `batched`; else taps, for `embedding_bag`.
    """

    def __init__(self, axis: AxisMap, name: Filter, device: torch.device, *, vertical: bool, banded: bool) -> None:
        self.map, self.vertical, self.is_slice = axis, vertical, axis.is_slice
        start = int(axis.start) if axis.is_slice else 0
        self.window = slice(start, start + (axis.target if axis.is_slice else axis.source))
        """What is read of the source."""
        if axis.is_slice:
            return
        if not banded:
            index, weight = taps(axis, name)
            self.index, self.weight = torch.from_numpy(index), torch.from_numpy(weight).to(torch.float32)
            return
        band = bands(axis, name)
        self._blocks = torch.from_numpy(band.blocks).to(device, torch.float32)
        starts = torch.tensor(band.starts, device=device)
        self._gather = (starts[:, None] + torch.arange(self._blocks.shape[2], device=device)).flatten()

    def batched(self, pictures: Tensor) -> Tensor:
        """On CUDA: (M, H, W) float32 in one gather and one batched matmul."""
        m, h, w = pictures.shape
        blocks = self._blocks
        if self.vertical:
            gathered = pictures.index_select(1, self._gather).view(m, len(blocks), -1, w)
            return torch.matmul(blocks, gathered).flatten(1, 2)[:, : self.map.target]
        gathered = pictures.index_select(2, self._gather).view(m * h, len(blocks), -1)
        result = torch.bmm(gathered.transpose(0, 1), blocks.transpose(1, 2))
        return result.transpose(0, 1).reshape(m, h, -1)[:, :, : self.map.target]


class _Strip(NamedTuple):
    """Some target rows, the source rows they need, and the taps among those where rows are computed."""

    target: slice
    source: slice
    taps: Tensor | None
    weights: Tensor | None


def _strips(vertical: Axis) -> list[_Strip]:
    """All target rows, STRIP at a time."""
    cuts = [slice(top, min(top + STRIP, vertical.map.target)) for top in range(0, vertical.map.target, STRIP)]
    if vertical.is_slice:
        return [_Strip(cut, cut, None, None) for cut in cuts]
    strips = []
    for cut in cuts:
        index = vertical.index[cut]
        low = int(index.min())
        source = slice(low, int(index.max()) + 1)
        strips.append(_Strip(cut, source, (index - low).contiguous(), vertical.weight[cut].contiguous()))
    return strips


class Resampler:
    """Resamples planes of one size; made once, used for every frame, by any number of threads at once.

    Args:
        x, y: which source position each target sample shows.
        name: the filter.
        device: where the planes are.
        depth: significant bits of integer samples, which are rounded to nearest and clamped to 0 .. 2^depth - 1.
        msb_shift: bits below the least significant one.
    """

    def __init__(
        self, x: AxisMap, y: AxisMap, name: Filter, device: torch.device, *, depth: int = 8, msb_shift: int = 0
    ) -> None:
        self.width, self.height = x.target, y.target
        banded = device.type != "cpu"
        horizontal = Axis(x, name, device, vertical=False, banded=banded)
        vertical = Axis(y, name, device, vertical=True, banded=banded)
        self.window = (vertical.window, horizontal.window)
        """Rows and columns of the source that are read; all there is to do where `is_slice`."""
        shrinks = y.target <= y.source  # then lines first: fewer of them are left for the dearer columns
        self._passes = [a for a in ((vertical, horizontal) if shrinks else (horizontal, vertical)) if not a.is_slice]
        self._limit, self._unit = float((1 << depth) - 1), float(1 << msb_shift)
        self._device = device
        self._horizontal = None if horizontal.is_slice else horizontal
        self._strips = _strips(vertical) if device.type == "cpu" else []
        self._work = threading.local()

    @property
    def is_slice(self) -> bool:
        """Whether planes are only cut, not computed."""
        return not self._passes

    def into(self, planes: Tensor, out: Tensor) -> None:
        """(M, H, W) of uint8, uint16 or floating point into (M, height, width) of the same dtype, views allowed."""
        planes = planes[:, *self.window]
        if self.is_slice:
            out.copy_(planes)
        elif self._device.type == "cpu":
            for plane, target in zip(planes, out, strict=True):
                self._on_cpu(plane, target)
        else:
            pictures = planes.to(torch.float32)
            for axis in self._passes:
                pictures = axis.batched(pictures)
            self._store(pictures, out)

    def _on_cpu(self, plane: Tensor, out: Tensor) -> None:
        """One plane, by way of work space kept between frames: fresh pages cost more than the arithmetic."""
        for strip in self._strips:
            rows = plane[strip.source]
            picture = self._buffer(*rows.shape).copy_(rows)
            if strip.taps is not None:
                picture = embedding_bag(strip.taps, picture, per_sample_weights=strip.weights, mode="sum")
            if self._horizontal is not None:
                turned = self._buffer(picture.shape[1], picture.shape[0], 1).squeeze(2).copy_(picture.T)
                axis = self._horizontal
                picture = embedding_bag(axis.index, turned, per_sample_weights=axis.weight, mode="sum").T
            self._store(picture, out[strip.target])

    def _buffer(self, *shape: int) -> Tensor:
        """Work space of this thread: pictures are computed side by side."""
        buffers: dict[tuple[int, ...], Tensor] = vars(self._work).setdefault("buffers", {})
        if shape not in buffers:
            buffers[shape] = torch.empty(shape, dtype=torch.float32)
        return buffers[shape]

    def _store(self, picture: Tensor, out: Tensor) -> None:
        """Rounds to nearest (halves up), clamps and converts; floating point passes as it is."""
        if out.dtype.is_floating_point:
            out.copy_(picture)
            return
        if self._unit != 1.0:
            picture.mul_(1 / self._unit)
        codes = picture.add_(0.5).clamp_(0.0, self._limit + 0.5)
        if out.dtype == torch.uint8:
            out.copy_(codes.to(torch.int16))  # by way of int16: torch converts float to uint8 one by one
        else:
            out.view(torch.int16).copy_(codes.to(torch.int32).mul_(int(self._unit)))
