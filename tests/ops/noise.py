"""Pictures of noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from gpupipe.format import FrameFormat


def noise(source: FrameFormat, batch: int = 1, *, padding: int = 0, seed: int = 11) -> tuple[torch.Tensor, ...]:
    """Every code the depth holds, legal or not, and floats from -0.1 to 1.1, on the format's device; with `padding`, rows lie further apart than they are wide."""
    random, pixels, planes = np.random.default_rng(seed), source.pixels, []
    for shape in pixels.plane_shapes(source.width, source.height):
        if pixels.layout == "float":
            values = random.uniform(-0.1, 1.1, (batch, *shape)).astype(f"f{pixels.bytes_per_sample}")
        else:
            values = random.integers(0, 1 << pixels.depth, (batch, *shape)) << pixels.msb_shift
            values = values.astype(f"u{pixels.bytes_per_sample}")
        if padding:
            axis = 3 if pixels.layout == "float" else 2
            wide = np.pad(values, [(0, padding * (i == axis)) for i in range(values.ndim)])
            planes.append(torch.from_numpy(wide).to(source.device).narrow(axis, 0, values.shape[axis]))
        else:
            planes.append(torch.from_numpy(values).to(source.device))
    return tuple(planes)
