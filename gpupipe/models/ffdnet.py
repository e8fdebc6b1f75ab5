"""FFDNet, colour (Zhang, Zuo, Zhang 2018, arXiv 1710.04026): twelve convolutions at half size beside a noise map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from gpupipe.models import weights as data

if TYPE_CHECKING:
    from pathlib import Path


class FFDNet(nn.Module):
    """N x 3 x H x W in 0..1 and noise N x 1 x 1 x 1 (deviation, 0..1) to N x 3 x H x W; any size."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(13, 96, 3, padding=1), nn.ReLU()]
        for _ in range(10):
            layers += [nn.Conv2d(96, 96, 3, padding=1), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Conv2d(96, 12, 3, padding=1))

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        """The picture without its noise; odd sides are padded by their last line and cut again."""
        height, width = x.shape[-2:]
        if height % 2:  # not by `pad`: inductor trips over its clamped indices (sympy: "not comparable")
            x = torch.cat((x, x[..., -1:, :]), -2)
        if width % 2:
            x = torch.cat((x, x[..., -1:]), -1)
        small = functional.pixel_unshuffle(x, 2)
        noise = sigma.expand(-1, -1, small.shape[-2], small.shape[-1])
        out = functional.pixel_shuffle(self.model(torch.cat((small, noise), 1)), 2)
        return out[..., :height, :width]


def read(weights: Path) -> FFDNet:
    """The network in evaluation mode; the pickle may hold tensors and nothing else. Raises MediaError."""
    model = FFDNet()
    data.fill(model, data.state(weights, "FFDNet"), weights, "FFDNet")
    return model
