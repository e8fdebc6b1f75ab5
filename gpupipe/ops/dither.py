"""Dither thresholds: fixed in place and time, the same on every device, evenly spread at every scale.

Ordered dither by the R2 low-discrepancy lattice (M. Roberts, "The Unreasonable Effectiveness of Quasirandom Sequences",
2018): position (x, y) gets the triangle wave of frac(x / g + y / g^2), g the plastic number. In 32-bit integers, so a
Triton kernel computes the very same numbers; not a function of the frame, so segment cuts leave no trace.
"""

from __future__ import annotations

import torch

STEP_X = 3242174889  # 2^32 / g
STEP_Y = 2447445414  # 2^32 / g^2
PHASE = 1431655765  # 2^32 / 3: the components get patterns of their own


def thresholds(height: int, width: int, component: int) -> torch.Tensor:
    """Thresholds (height, width) in float32, each of 1/512, 3/512 .. 511/512 equally often.

    floor(v + t) then has v as its mean, and returns v itself where v is within 1/512 of a whole number, so float32
    noise does not disturb codes that fit exactly.
    """
    x = torch.arange(width, dtype=torch.int64)
    y = torch.arange(height, dtype=torch.int64)[:, None]
    wave = (((x * STEP_X + y * STEP_Y + component * PHASE) & 0xFFFFFFFF) >> 23).to(torch.int32)
    level = torch.where(wave < 256, wave, 511 - wave)
    return (level.to(torch.float32) + 0.5) / 256
