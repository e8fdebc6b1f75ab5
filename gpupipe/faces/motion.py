"""Where a face is in another picture, to a fraction of a pixel, without a detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.faces.detect import Look
    from gpupipe.faces.found import Faces

_PASSES = ((2.0, 24, 5), (1.2, 48, 3))
"""How much wider than the face the patch is, its samples along a side, and how often it is fitted. Samples lie closer
than the motion is to be known; of 24 alone a third of the accuracy is left."""
_ALIKE, _SEEN = 0.6, 0.2
"""Least correlation, and least part of the patch that both pictures show."""
_LEVELS, _COARSER, _SPARSE = 3, 4, 3.0
"""Pictures of the pyramid, each this much smaller than the one before; most pixels between two samples of a patch."""


class Motion(NamedTuple):
    """A similarity for each face: p goes to centre + shift + turn * (p - centre), with `turn` as a complex number."""

    turn: Tensor
    """(N, K, 2)."""
    shift: Tensor
    """(N, K, 2) pixels of the picture."""
    found: Tensor
    """(N, K) bool."""


class Pyramid(NamedTuple):
    """Luma of N pictures at several sizes."""

    levels: tuple[Tensor, ...]
    """(N, 1, h, w) float32."""
    how: Look
    """How the first level shows the picture: what lies beyond its width and height is none of it."""

    def rows(self, part: slice) -> Pyramid:
        """Some of the pictures."""
        return Pyramid(tuple(level[part] for level in self.levels), self.how)


def pyramid(luma: Tensor, how: Look) -> Pyramid:
    """From (N, h, w) luma of pictures as `how` shows them, perhaps with more to the right and below."""
    levels = [luma[:, None]]
    for _ in range(_LEVELS - 1):
        levels.append(functional.avg_pool2d(levels[-1], _COARSER, ceil_mode=True))
    return Pyramid(tuple(levels), how)


def motion(faces: Faces, here: Pyramid, there: Pyramid) -> Motion:
    """How each face goes from its own picture to another one.

    Inverse compositional alignment (Baker, Matthews 2004, Lucas-Kanade 20 Years On, figure 4) of a patch of samples,
    for similarities, first of twice the face's size, then finer. Patches are normalised, so that light may change.
    Samples that either picture does not show have no weight: its edge stands still while a large face moves, and would
    hold it back.

    Args:
        faces: (N, K).
        here: the pictures in which they were found.
        there: as many others.
    """
    half = (faces.sides / 2).clamp(min=2)
    still, shift = torch.zeros_like(faces.centres), torch.zeros_like(faces.centres)
    still[..., 0] = 1
    turn, alike, part = still, half, half
    for wide, side, rounds in _PASSES:
        patch = _Patch(faces.centres, half * wide, _grid(side, half.device).expand(*half.shape, -1, -1))
        level = _level(patch, side, here.how.factor)
        weight = _shown(here, patch.at(still, torch.zeros_like(shift)), level) * _shown(
            there, patch.at(turn, shift), level
        )
        part = weight.mean(-1)
        model = _normalised(_values(here, patch.at(still, torch.zeros_like(shift)), level), weight)
        fit = _fit(model, weight, side)
        for _ in range(rounds):
            seen = _normalised(_values(there, patch.at(turn, shift), level), weight)
            step = (fit @ (seen - model)[..., None])[..., 0].clamp(-0.5, 0.5)
            turn = _times(turn, _inverse(torch.stack((step[..., 2] + 1, step[..., 3]), -1)))
            shift = shift - patch.reach[..., None] * _times(turn, step[..., :2])
        seen = _normalised(_values(there, patch.at(turn, shift), level), weight)
        alike = (seen * model * weight).mean(-1) / part.clamp(min=_SEEN)
    fine = torch.isfinite(shift).all(-1) & (alike > _ALIKE) & (part > _SEEN)
    turn = torch.where(fine[..., None], turn, still)
    return Motion(turn, torch.where(fine[..., None], shift, 0.0), fine & faces.valid)


def forth(move: Motion, centres: Tensor, points: Tensor) -> Tensor:
    """Points (N, K, P, 2) of the faces' own pictures in the others."""
    centre = centres[:, :, None]
    return centre + move.shift[:, :, None] + _times(move.turn[:, :, None], points - centre)


def back(move: Motion, centres: Tensor, points: Tensor) -> Tensor:
    """The inverse of `forth`, about the same centres."""
    centre = centres[:, :, None]
    return centre + _times(_inverse(move.turn)[:, :, None], points - centre - move.shift[:, :, None])


class _Patch(NamedTuple):
    """Where samples of each face lie."""

    centre: Tensor
    """(N, K, 2) pixels of the picture."""
    reach: Tensor
    """(N, K) pixels from there to the patch's edge."""
    unit: Tensor
    """(N, K, P * P, 2): places -1..1."""

    def at(self, turn: Tensor, shift: Tensor) -> Tensor:
        """(N, K, P * P, 2) pixels of the picture, when the face was turned and shifted so."""
        away = self.reach[:, :, None, None] * _times(turn[:, :, None], self.unit)
        return (self.centre + shift)[:, :, None] + away


def _grid(side: int, device: torch.device) -> Tensor:
    """(P * P, 2): places -1..1, row by row."""
    line = (torch.arange(side, dtype=torch.float32, device=device) + 0.5) * (2 / side) - 1
    return torch.cartesian_prod(line, line).flip(-1)


def _level(patch: _Patch, side: int, factor: float) -> Tensor:
    """(N, K) int64: the level whose pixels lie closest to the samples of each face."""
    sparse = patch.reach * (2 / side) * factor
    limits = [_SPARSE * _COARSER**step for step in range(_LEVELS - 1)]
    return torch.stack([sparse > limit for limit in limits]).sum(0)


def _shown(pictures: Pyramid, places: Tensor, level: Tensor) -> Tensor:
    """(N, K, P * P): 1 where a sample is made of pixels of the picture alone, else 0."""
    how = pictures.how
    x, y = ((places + 0.5) * how.factor).unbind(-1)
    inside = torch.minimum(torch.minimum(x, how.width - x), torch.minimum(y, how.height - y))
    return (inside >= torch.pow(float(_COARSER), level)[..., None]).to(torch.float32)


def _values(pictures: Pyramid, places: Tensor, level: Tensor) -> Tensor:
    """(N, K, P * P) luma of each face's level."""
    x, y = ((places + 0.5) * pictures.how.factor).unbind(-1)
    out = None
    for step, luma in enumerate(pictures.levels):
        # A level rounded up is a little wider than the picture: its edges lie where its own pixels end.
        high, wide = (side * float(_COARSER**step) for side in luma.shape[-2:])
        grid = torch.stack((x / wide * 2 - 1, y / high * 2 - 1), -1)
        values = functional.grid_sample(luma, grid, padding_mode="border", align_corners=False)[:, 0]
        out = values if out is None else torch.where((level >= step)[..., None], values, out)
    assert out is not None, "a pyramid has a first level"
    return out


def _normalised(patch: Tensor, weight: Tensor) -> Tensor:
    total = weight.sum(-1, keepdim=True).clamp(min=1)
    away = patch - (patch * weight).sum(-1, keepdim=True) / total
    return away / ((away.square() * weight).sum(-1, keepdim=True) / total).sqrt().clamp(min=1e-3)


def _fit(model: Tensor, weight: Tensor, side: int) -> Tensor:
    """(N, K, 4, P * P): what a difference from the model says of x, y, scale and turn; ridge against flat patches."""
    square = model.view(*model.shape[:2], side, side)
    down, across = torch.gradient(square, spacing=2 / side, dim=(2, 3))
    x, y = _grid(side, model.device).view(side, side, 2).unbind(-1)
    steepest = torch.stack((across, down, across * x + down * y, down * x - across * y), 2).flatten(3)
    counted = steepest * weight[:, :, None]
    normal = counted @ steepest.mT + 1e-2 * torch.eye(4, device=model.device)
    fit: Tensor = torch.linalg.solve_ex(normal, counted)[0]
    return fit


def _times(p: Tensor, q: Tensor) -> Tensor:
    """Products of complex numbers."""
    (a, b), (c, d) = p.unbind(-1), q.unbind(-1)
    return torch.stack((a * c - b * d, a * d + b * c), -1)


def _inverse(p: Tensor) -> Tensor:
    a, b = p.unbind(-1)
    square = (a * a + b * b).clamp(min=1e-6)
    return torch.stack((a / square, -b / square), -1)
