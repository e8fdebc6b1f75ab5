"""AnimeSR v2 (Wu et al. 2022, arXiv 2206.07038): three frames and what it made before, at three sizes side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from gpupipe.models import weights as data

if TYPE_CHECKING:
    from pathlib import Path

_FEATURES, _SCALE = 64, 4
_BLOCKS = (5, 3, 2)
"""At full, half and quarter size; the smaller ones begin later, so that all end together."""


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(_FEATURES, _FEATURES, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv2(functional.relu(self.conv1(x)))  # type: ignore[no-any-return]


def _first(deep: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(deep, _FEATURES, 3, stride, 1), nn.LeakyReLU(0.1))


def _larger(x: torch.Tensor, times: int) -> torch.Tensor:
    size = (x.shape[-2] * times, x.shape[-1] * times)
    return functional.interpolate(x, size, mode="bilinear", align_corners=False)


class _Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        picture = 3 * _SCALE * _SCALE
        self.conv_s1_first = _first(9 + picture + _FEATURES)
        self.conv_s2_first, self.conv_s4_first = _first(_FEATURES, 2), _first(_FEATURES, 2)
        self.body_s1_first, self.body_s2_first, self.body_s4_first = (
            nn.ModuleList(_Residual() for _ in range(count)) for count in _BLOCKS
        )
        wide = _FEATURES + picture
        self.fusion = nn.Sequential(
            nn.Conv2d(3 * _FEATURES, 2 * wide, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(2 * wide, wide, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = self.conv_s1_first(x)
        half = self.conv_s2_first(whole)
        quarter = self.conv_s4_first(half)
        late_half, late_quarter = _BLOCKS[0] - _BLOCKS[1], _BLOCKS[0] - _BLOCKS[2]
        for step, block in enumerate(self.body_s1_first):
            seen = whole
            if step > late_half:
                seen = seen + _larger(half, 2)
            if step > late_quarter:
                seen = seen + _larger(quarter, 4)
            whole = block(seen)
            if step >= late_half:
                below = half + _larger(quarter, 2) if step > late_quarter else half
                half = self.body_s2_first[step - late_half](below)
            if step >= late_quarter:
                quarter = self.body_s4_first[step - late_quarter](quarter)
        return self.fusion(torch.cat((whole, _larger(half, 2), _larger(quarter, 4)), 1))  # type: ignore[no-any-return]


class AnimeSR(nn.Module):
    """Frame before, frame and frame after (N x 3 x H x W, 0..1), the result before and its state, to result and state.

    The result is N x 3 x 4H x 4W, the state N x 64 x H x W; both begin as zeros. H and W are multiples of 4.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recurrent_cell = _Cell()

    def forward(
        self,
        before: torch.Tensor,
        frame: torch.Tensor,
        after: torch.Tensor,
        enlarged: torch.Tensor,
        state: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The frame four times as large, and what the next call wants."""
        small = functional.pixel_unshuffle(enlarged, _SCALE)
        out = self.recurrent_cell(torch.cat((before, frame, after, small, state), 1))
        picture = functional.pixel_shuffle(out[:, : 3 * _SCALE * _SCALE], _SCALE) + _larger(frame, _SCALE)
        return picture, functional.leaky_relu(out[:, 3 * _SCALE * _SCALE :], 0.1)


def read(weights: Path) -> AnimeSR:
    """The network in evaluation mode. Raises MediaError."""
    model = AnimeSR()
    data.fill(model, data.state(weights, "AnimeSR"), weights, "AnimeSR")
    return model
