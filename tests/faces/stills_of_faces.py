"""The still pictures of faces, as planes, and what is known of them."""

from __future__ import annotations

import functools
from pathlib import Path

import av
import numpy as np
import torch

FACES = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "faces"
ASTRONAUT_POINTS = torch.tensor([[202.5, 100.7], [246.9, 103.1], [223.1, 123.5], [203.5, 140.1], [241.1, 142.5]])
"""Eyes, nose and corners of the mouth of astronaut_512.png, read off the picture by eye."""
DALI_POINTS = torch.tensor([[384.4, 355.2], [516.6, 352.4], [448.0, 436.6], [385.2, 507.5], [512.9, 500.3]])
"""Likewise of dali_face_1.jpeg."""


@functools.cache
def still(name: str) -> torch.Tensor:
    """(1, 3, H, W) float32, 0..1."""
    with av.open(str(FACES / name)) as container:
        codes = next(container.decode(video=0)).to_ndarray(format="rgb24")
    return torch.from_numpy(codes.astype(np.float32) / 255).permute(2, 0, 1)[None].contiguous()


def psnr(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(-10 * torch.log10((a.double() - b.double()).square().mean()))
