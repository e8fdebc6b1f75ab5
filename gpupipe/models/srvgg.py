"""SRVGGNetCompact (Real-ESRGAN, realesrgan/archs/srvgg_arch.py): convolutions at the small size, then one shuffle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from gpupipe.errors import MediaError
from gpupipe.models import weights as data

if TYPE_CHECKING:
    from pathlib import Path


class Srvgg(nn.Module):
    """N x 3 x H x W in 0..1 to N x 3 x (scale * H) x (scale * W); any size."""

    def __init__(self, features: int, convolutions: int, scale: int) -> None:
        super().__init__()
        body: list[nn.Module] = [nn.Conv2d(3, features, 3, padding=1), nn.PReLU(features)]
        for _ in range(convolutions):
            body += [nn.Conv2d(features, features, 3, padding=1), nn.PReLU(features)]
        self.body = nn.Sequential(*body, nn.Conv2d(features, 3 * scale * scale, 3, padding=1))
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What the body adds to the picture enlarged by its nearest pixels."""
        large = functional.pixel_shuffle(self.body(x), self.scale)
        return large + functional.interpolate(x, scale_factor=float(self.scale), mode="nearest")


def read(weights: Path) -> Srvgg:
    """The network, as large as its weights say, in evaluation mode. Raises MediaError."""
    tensors = data.state(weights, "SRVGG")
    try:
        last = max(int(name.split(".")[1]) for name in tensors if name.startswith("body."))
        features, wide = tensors["body.0.weight"].shape[0], tensors[f"body.{last}.weight"].shape[0]
    except (ValueError, IndexError, KeyError) as error:
        raise MediaError("holds no weights of SRVGG: no layers body.0 and on", where=str(weights)) from error
    model = Srvgg(features, max(last - 2, 0) // 2, max(math.isqrt(wide // 3), 1))
    data.fill(model, tensors, weights, "SRVGG")
    return model
