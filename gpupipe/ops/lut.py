"""Lookup tables on (N, 3, H, W) R'G'B' in float32. Input beyond the table's domain takes the value at its edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch.nn.functional import grid_sample

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.ops.cube import Table

Interpolation = Literal["trilinear", "tetrahedral"]
_TILE = 64  # rows at a time on the CPU, so that intermediate values stay in the cache


class Curve:
    """A curve a channel, linear between its points."""

    def __init__(self, table: Table, device: torch.device) -> None:
        self._size = table.values.shape[0]
        self._flat = torch.from_numpy(table.values.T.copy()).to(device).flatten()
        self._low, self._scale = _domain(table, self._size, device)
        self._channel = (torch.arange(3, device=device) * self._size).view(1, 3, 1, 1)

    def __call__(self, rgb: Tensor) -> Tensor:
        """(N, 3, H, W) float32 to the same."""
        position = ((rgb - self._low) * self._scale).clamp_(0, self._size - 1)
        below = position.to(torch.int64).clamp_(max=self._size - 2)
        part = position - below
        below += self._channel
        return torch.lerp(self._flat[below], self._flat[below + 1], part)


class Lattice3d:
    """A 3D table, trilinear or tetrahedral (Kasson et al. 1995, as ffmpeg's lut3d does it) between its points."""

    def __init__(self, table: Table, interpolation: Interpolation, device: torch.device) -> None:
        self._size = size = table.values.shape[0]
        self._low, self._scale = _domain(table, size, device)
        values = torch.from_numpy(table.values).to(device).permute(3, 0, 1, 2).contiguous()
        self._volume = values[None]
        self._points = values.flatten(1)
        self._strides = (1, size, size * size)
        self._look_up = self._trilinear if interpolation == "trilinear" else self._tetrahedral

    def __call__(self, rgb: Tensor) -> Tensor:
        """(N, 3, H, W) float32 to the same."""
        if rgb.device.type != "cpu":
            return self._look_up(rgb)
        return torch.cat([self._look_up(rgb[:, :, y : y + _TILE]) for y in range(0, rgb.shape[2], _TILE)], dim=2)

    def _trilinear(self, rgb: Tensor) -> Tensor:
        """`grid_sample` over the volume: x is red, y green, z blue, -1 and 1 the outermost points."""
        n, _, h, w = rgb.shape
        grid = ((rgb - self._low) * (self._scale * (2 / (self._size - 1))) - 1).permute(0, 2, 3, 1)
        out = grid_sample(
            self._volume, grid.reshape(1, n, h, w, 3), mode="bilinear", padding_mode="border", align_corners=True
        )
        return out[0].transpose(0, 1)

    def _tetrahedral(self, rgb: Tensor) -> Tensor:
        """From the low corner along the axis with the largest part first, then the next: four points a pixel."""
        position = ((rgb - self._low) * self._scale).clamp_(0, self._size - 1)
        below = position.to(torch.int32).clamp_(max=self._size - 2)
        red, green, blue = (position - below).unbind(1)
        stride_r, stride_g, stride_b = self._strides
        base = below[:, 0] + below[:, 1] * stride_g + below[:, 2] * stride_b
        most, least = torch.maximum(torch.maximum(red, green), blue), torch.minimum(torch.minimum(red, green), blue)
        middle = red + green + blue - most - least
        first = torch.where((red >= green) & (red >= blue), stride_r, torch.where(green >= blue, stride_g, stride_b))
        last = torch.where((blue <= green) & (blue <= red), stride_b, torch.where(green <= red, stride_g, stride_r))
        end = base + (stride_r + stride_g + stride_b)
        result = self._at(base) * (1 - most)[:, None]
        result.addcmul_(self._at(base + first), (most - middle)[:, None])
        result.addcmul_(self._at(end - last), (middle - least)[:, None])
        return result.addcmul_(self._at(end), least[:, None])

    def _at(self, index: Tensor) -> Tensor:
        """Values of the points (N, H, W) as (N, 3, H, W)."""
        n, h, w = index.shape
        return self._points.index_select(1, index.flatten().to(torch.int32)).view(3, n, h, w).transpose(0, 1)


def _domain(table: Table, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Low end, and table steps a unit of input, each (1, 3, 1, 1)."""
    low = torch.tensor(table.low, dtype=torch.float64)
    scale = (size - 1) / (torch.tensor(table.high, dtype=torch.float64) - low)
    return tuple(t.to(device, torch.float32).view(1, 3, 1, 1) for t in (low, scale))  # type: ignore[return-value]
