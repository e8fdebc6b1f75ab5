"""Gradient-domain blending (Perez, Gangnet, Blake 2003, Poisson Image Editing), solved exactly in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def blend(faces: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """What has the face's gradients under the mask, the target's elsewhere, and the target's values on the border.

    The discrete Poisson equation of the paper (7) with Omega the inside of the crop: its eigenvectors are those of the
    type I discrete sine transform, so two transforms and a division solve it (Numerical Recipes, 20.4.1). Between
    pixels where the mask is between 0 and 1 gradients are mixed.

    Args:
        faces: (F, 3, S, S) float32.
        target: of the same shape.
        mask: (F, S, S), 0..1.

    Returns:
        (F, 3, S, S) float32, the target's own on the outermost pixels.
    """
    divergence = _divergence(faces, target, mask[:, None])
    inner = target.clone()
    inner[..., 1:-1, 1:-1] = 0
    known = inner[..., :-2, 1:-1] + inner[..., 2:, 1:-1] + inner[..., 1:-1, :-2] + inner[..., 1:-1, 2:]
    inner[..., 1:-1, 1:-1] = _solve(divergence - known)
    return inner


def _divergence(faces: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """(F, 3, S - 2, S - 2): sum of the guidance from each inner pixel to its four neighbours."""
    total = torch.zeros((), dtype=faces.dtype, device=faces.device)
    for axis in (-2, -1):
        part = mask.unfold(axis, 2, 1).mean(-1)
        guidance = torch.lerp(target.diff(dim=axis), faces.diff(dim=axis), part)
        total = total + guidance.diff(dim=axis).narrow(-3 - axis, 1, faces.shape[-1] - 2)
    return total


def _solve(right: Tensor) -> Tensor:
    """Laplacian(u) = right with u = 0 around: the sine transform as a product of matrices, which any size allows."""
    n = right.shape[-1]
    k = torch.arange(1, n + 1, dtype=torch.float64, device=right.device)
    angle = torch.pi / (n + 1) * k
    sines = (torch.sin(angle[:, None] * k) * (2 / (n + 1)) ** 0.5).to(right.dtype)
    values = 2 * torch.cos(angle) - 2
    spectrum = sines @ right @ sines / (values[:, None] + values).to(right.dtype)
    solution: Tensor = sines @ spectrum @ sines
    return solution
