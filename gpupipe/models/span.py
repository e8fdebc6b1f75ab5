"""SPAN (Wan et al. 2023, arXiv 2311.12770): six blocks whose own output says how much of it counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from gpupipe.errors import MediaError
from gpupipe.models import weights as data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class _Block(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.c1_r, self.c2_r, self.c3_r = (nn.Conv2d(features, features, 3, padding=1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What goes on, and what the first convolution and its activation made."""
        first = functional.silu(self.c1_r(x))
        out = self.c3_r(functional.silu(self.c2_r(first)))
        return (out + x) * (torch.sigmoid(out) - 0.5), first


class Span(nn.Module):
    """N x 3 x H x W in 0..1 to N x 3 x (scale * H) x (scale * W); any size.

    Args:
        features: channels inside.
        scale: along one side.
        normal: whether the network was trained on (x - mean) * 255 rather than on 0..1.
    """

    mean: torch.Tensor

    def __init__(self, features: int, scale: int, *, normal: bool) -> None:
        super().__init__()
        self.normal = normal
        self.register_buffer("mean", torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1), persistent=False)
        self.conv_1 = nn.Conv2d(3, features, 3, padding=1)
        self.block_1, self.block_2, self.block_3 = _Block(features), _Block(features), _Block(features)
        self.block_4, self.block_5, self.block_6 = _Block(features), _Block(features), _Block(features)
        self.conv_cat = nn.Conv2d(4 * features, features, 1)
        self.conv_2 = nn.Conv2d(features, features, 3, padding=1)
        self.upsampler = nn.Sequential(nn.Conv2d(features, 3 * scale * scale, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The enlarged picture; in half precision and `normal` inside values reach 255, which it has room for."""
        if self.normal:
            x = (x - self.mean) * 255
        seen = self.conv_1(x)
        first, _ = self.block_1(seen)
        fourth, _ = self.block_4(self.block_3(self.block_2(first)[0])[0])
        fifth, _ = self.block_5(fourth)
        sixth, inside = self.block_6(fifth)
        merged = self.conv_cat(torch.cat((seen, self.conv_2(sixth), first, inside), 1))
        return self.upsampler(merged)  # type: ignore[no-any-return]


def _merged(tensors: Mapping[str, torch.Tensor], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The one convolution of 3 x 3 that three in a row and one beside them are when nothing is between.

    They are trained so, on a picture that is padded once; `eval_conv` in the file may be older than they are.
    """
    parts = [f"{name}.{part}" for part in ("conv.0", "conv.1", "conv.2", "sk")]
    one, three, last, beside = (tensors[f"{part}.weight"].double() for part in parts)
    b1, b2, b3, b4 = (tensors[f"{part}.bias"].double() for part in parts)
    weight = torch.einsum("oj,jkhw,ki->oihw", last[..., 0, 0], three, one[..., 0, 0])
    bias = last[..., 0, 0] @ (torch.einsum("jkhw,k->j", three, b1) + b2) + b3 + b4
    return (weight + functional.pad(beside, (1, 1, 1, 1))).float(), bias.float()


def read(weights: Path) -> Span:
    """The network, as large as its weights say, in evaluation mode. Raises MediaError."""
    tensors = data.state(weights, "SPAN")
    try:
        wide, features = tensors["upsampler.0.weight"].shape[:2]
        for name in [name.removesuffix(".sk.weight") for name in tensors if name.endswith(".sk.weight")]:
            weight, bias = _merged(tensors, name)
            tensors = {key: value for key, value in tensors.items() if not key.startswith(f"{name}.")}
            tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    except (KeyError, ValueError, RuntimeError, IndexError) as error:
        raise MediaError(f"holds no weights of SPAN: {error} is missing or wrong", where=str(weights)) from error
    model = Span(features, max(math.isqrt(wide // 3), 1), normal=tensors.pop("no_norm", None) is None)
    data.fill(model, tensors, weights, "SPAN")
    return model
