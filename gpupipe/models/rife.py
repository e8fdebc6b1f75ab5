"""RIFE 3.9 (Huang et al. 2020, arXiv 2011.06294; Practical-RIFE, IFNet_HDv3): a picture between two."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from gpupipe.models import weights as data

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def _convolution(deep: int, wide: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(deep, wide, 3, stride, 1), nn.PReLU(wide))


def _resized(x: torch.Tensor, height: int, width: int) -> torch.Tensor:
    return functional.interpolate(x, (height, width), mode="bilinear", align_corners=False)


class _Block(nn.Module):
    """Pictures, time, mask and flow so far to what flow and mask lack, seen at 1 / scale."""

    def __init__(self, deep: int, wide: int) -> None:
        super().__init__()
        self.conv0 = nn.Sequential(_convolution(deep, wide // 2, 2), _convolution(wide // 2, wide, 2))
        self.convblock = nn.Sequential(*(_convolution(wide, wide) for _ in range(8)))
        self.lastconv = nn.ConvTranspose2d(wide, 5, 4, 2, 1)

    def forward(self, x: torch.Tensor, flow: torch.Tensor | None, scale: int) -> tuple[torch.Tensor, torch.Tensor]:
        height, width = x.shape[-2:]
        x = _resized(x, height // scale, width // scale)
        if flow is not None:
            x = torch.cat((x, (_resized(flow, height // scale, width // scale) / scale).to(x.dtype)), 1)
        x = self.conv0(x)
        x = self.lastconv(self.convblock(x) + x)
        x = _resized(x, height, width).float()
        return x[:, :4] * (scale * 2), x[:, 4:5]


def _warped(x: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
    """Takes each pixel from where the flow (x, y in pixels, fp32) says; fp16 coordinates would be half a pixel off."""
    height, width = x.shape[-2:]
    columns = torch.arange(width, dtype=torch.float32, device=x.device).view(1, 1, width)
    rows = torch.arange(height, dtype=torch.float32, device=x.device).view(1, height, 1)
    across = (columns + flow[:, 0]) / ((width - 1) / 2) - 1
    down = (rows + flow[:, 1]) / ((height - 1) / 2) - 1
    grid = torch.stack((across, down), -1)
    return functional.grid_sample(x.float(), grid, padding_mode="border", align_corners=True).to(x.dtype)


class Rife(nn.Module):
    """Two pictures N x 3 x H x W in 0..1 and a time N x 1 x 1 x 1 in 0..1 to the picture at that time.

    H and W are multiples of 4 * scales[0].

    Args:
        scales: how small each block sees the pictures; (16, 8, 4, 2) finds motion twice as far. The original doubles
            them by itself where it finds more than 32 pixels; that look at the values would make the GPU wait, so here
            it is the caller's choice.
    """

    def __init__(self, scales: Sequence[int] = (8, 4, 2, 1)) -> None:
        super().__init__()
        self.block0, self.block1 = _Block(7, 192), _Block(12, 128)
        self.block2, self.block3 = _Block(12, 96), _Block(12, 64)
        self.scales = tuple(scales)

    def forward(self, frame0: torch.Tensor, frame1: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """The picture between."""
        time = time.to(frame0.dtype).expand(-1, 1, *frame0.shape[-2:])
        flow, mask = self.block0(torch.cat((frame0, frame1, time), 1), None, self.scales[0])
        warped0, warped1 = _warped(frame0, flow[:, :2]), _warped(frame1, flow[:, 2:])
        for block, scale in zip((self.block1, self.block2, self.block3), self.scales[1:], strict=True):
            seen = torch.cat((warped0, warped1, time, mask.to(frame0.dtype)), 1)
            more_flow, more_mask = block(seen, flow, scale)
            flow, mask = flow + more_flow, mask + more_mask
            warped0, warped1 = _warped(frame0, flow[:, :2]), _warped(frame1, flow[:, 2:])
        share = torch.sigmoid(mask).to(frame0.dtype)
        return warped0 * share + warped1 * (1 - share)


def read(weights: Path) -> Rife:
    """The network in evaluation mode; parts of the file for training are left out. Raises MediaError."""
    tensors = {name.removeprefix("module."): value for name, value in data.state(weights, "RIFE").items()}
    model = Rife()
    blocks = {name for name, _ in model.named_children()}
    wanted = {name: value for name, value in tensors.items() if name.partition(".")[0] in blocks}
    data.fill(model, wanted, weights, "RIFE")
    return model
