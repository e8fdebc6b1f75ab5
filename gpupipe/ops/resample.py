"""Separable resampling of planes on either device, in float32: one axis is one banded matrix.

On the CPU lines are summed by `embedding_bag` (a sparse matrix times rows, vectorised by FBGEMM) and columns by small
matmuls along the band, into buffers made once: 6 ms of one core for 1080p to 720p 4:2:0 by Lanczos, where two dense
matmuls take 60. On CUDA it is one gather and one batched matmul an axis, which a CUDA Graph can capture; TF32 must be
off there, as it is by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.functional import embedding_bag

from gpupipe.ops.kernels import Filter, bands, taps

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.ops.lattice import AxisMap


class Axis:
    """One axis of a resampling: a slice where samples fall on samples, else a banded matrix.

    Args:
        axis: which source position each target sample shows.
        name: the filter.
        vertical: whether it runs along the rows (dimension -2) or the columns (dimension -1) of a picture.
        device: where the pictures are.
    """

    def __init__(self, axis: AxisMap, name: Filter, device: torch.device, *, vertical: bool) -> None:
        self.map, self.vertical, self.is_slice = axis, vertical, axis.is_slice
        start = int(axis.start) if axis.is_slice else 0
        self.window = slice(start, start + (axis.target if axis.is_slice else axis.source))
        """What is read of the source."""
        if axis.is_slice:
            return
        if vertical and device.type == "cpu":
            index, weight = taps(axis, name)
            self._index, self._weight = torch.from_numpy(index), torch.from_numpy(weight).to(torch.float32)
            return
        band = bands(axis, name)
        self._starts = band.starts
        self._blocks = torch.from_numpy(band.blocks).to(device, torch.float32)
        starts = torch.tensor(band.starts, device=device)
        self._gather = (starts[:, None] + torch.arange(self._blocks.shape[2], device=device)).flatten()

    def on_cpu(self, picture: Tensor, out: Tensor) -> Tensor:
        """One picture (H, W) float32; columns go into `out`, rows into a tensor of their own."""
        if self.vertical:
            return embedding_bag(self._index, picture, per_sample_weights=self._weight, mode="sum")
        rows, width = self._blocks.shape[1:]
        for index, start in enumerate(self._starts):
            span = slice(index * rows, min((index + 1) * rows, self.map.target))
            block = self._blocks[index, : span.stop - span.start]
            torch.mm(picture[:, start : start + width], block.T, out=out[:, span])
        return out

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


class Resampler:
    """Resamples planes of one size; made once, used for every frame by one thread.

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
        horizontal, vertical = Axis(x, name, device, vertical=False), Axis(y, name, device, vertical=True)
        self.window = (vertical.window, horizontal.window)
        """Rows and columns of the source that are read; all there is to do where `is_slice`."""
        shrinks = y.target <= y.source  # then lines first: fewer of them are left for the dearer columns
        self._passes = [a for a in ((vertical, horizontal) if shrinks else (horizontal, vertical)) if not a.is_slice]
        self._limit, self._unit = float((1 << depth) - 1), float(1 << msb_shift)
        self._device = device
        self._buffers: dict[tuple[int, ...], Tensor] = {}

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
                self._store(self._on_cpu(plane), target)
        else:
            pictures = planes.to(torch.float32)
            for axis in self._passes:
                pictures = axis.batched(pictures)
            self._store(pictures, out)

    def _on_cpu(self, plane: Tensor) -> Tensor:
        """One plane in float32, through work space kept between frames: fresh pages cost more than the arithmetic."""
        rows, columns = plane.shape
        picture = self._buffer(rows, columns).copy_(plane)
        for axis in self._passes:
            rows, columns = (axis.map.target, columns) if axis.vertical else (rows, axis.map.target)
            picture = axis.on_cpu(picture, self._buffer(0 if axis.vertical else rows, columns))
        return picture

    def _buffer(self, *shape: int) -> Tensor:
        if shape not in self._buffers:
            self._buffers[shape] = torch.empty(shape, dtype=torch.float32)
        return self._buffers[shape]

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
