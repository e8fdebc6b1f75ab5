"""Whether an engine computes what eager computes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from gpupipe.errors import EngineError

if TYPE_CHECKING:
    from gpupipe.engines.base import Network, Profile

LEAST = {"fp32": 70.0, "fp16": 50.0, "bf16": 40.0}
"""dB of a range of 1, by precision: less is another network. Half floats by themselves come to 55 or more."""
LEAST_ROUNDED = 35.0
"""The same for 8 bits: a value that lies between two numbers is rounded up by one engine and down by another."""


def test_pictures(profile: Profile) -> torch.Tensor:
    """Slopes, edges and noise, the same each time: N x C x H x W in 0..1.

    Of six channels and more, each three are the picture before, moved: what a network of several pictures expects.
    """
    if profile.channels > 3 and profile.channels % 3 == 0:
        first = test_pictures(replace(profile, channels=3))
        moved = [first.roll((n, 2 * n), (2, 3)) for n in range(profile.channels // 3)]
        return torch.cat(moved, 1)
    made = torch.Generator().manual_seed(1)
    y = torch.linspace(0, 1, profile.height).view(-1, 1)
    x = torch.linspace(0, 1, profile.width)
    smooth = torch.stack([0.5 + 0.4 * torch.sin(6 * (n + 1) * (x + y * (n - 1))) for n in range(profile.channels)])
    edges = ((x * 9).floor() + (y * 7).floor()) % 2 * 0.3
    noise = torch.rand(profile.shape, generator=made) * 0.1
    pictures = (0.7 * smooth + 0.7 * edges + noise).clamp(0, 1)
    return pictures.to(profile.device, profile.dtype)


test_pictures.__test__ = False  # type: ignore[attr-defined]  # no test of pytest's


def agreement(ours: torch.Tensor, wanted: torch.Tensor) -> float:
    """PSNR in dB for a range of 1; minus infinity where a value is not finite or the shapes differ."""
    if ours.shape != wanted.shape or not bool(torch.isfinite(ours).all()):
        return -math.inf
    error = float((ours.double() - wanted.double()).square().mean())
    return math.inf if error == 0 else -10 * math.log10(error)


def compare(network: Network, eager: Network, profile: Profile) -> float:
    """The agreement on test pictures, in dB. Raises EngineError where it is too little."""
    pictures = test_pictures(profile)
    found = agreement(network(pictures), eager(pictures))
    least = LEAST_ROUNDED if profile.numbers else LEAST[profile.precision]
    if not found >= least:
        raise EngineError(f"its output is not the network's: {found:.1f} dB of {least:.0f}")
    return found
