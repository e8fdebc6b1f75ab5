"""Where a face is in another picture, to a fraction of a pixel, without a detector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.faces.found import Faces

_GRID = 24
_PASSES = ((2.0, 5), (1.2, 5))
"""How much wider than the face the patch is, and how often it is fitted."""
_ALIKE = 0.6
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
    factor: float
    """Pixels of the first level for each of the picture's own."""

    def rows(self, part: slice) -> Pyramid:
        """Some of the pictures."""
        return Pyramid(tuple(level[part] for level in self.levels), self.factor)


def pyramid(luma: Tensor, factor: float) -> Pyramid:
    """From (N, H, W) luma that was scaled by `factor`."""
    levels = [luma[:, None]]
    for _ in range(_LEVELS - 1):
        levels.append(functional.avg_pool2d(levels[-1], _COARSER, ceil_mode=True))
    return Pyramid(tuple(levels), factor)


def motion(faces: Faces, here: Pyramid, there: Pyramid) -> Motion:
    """How each face goes from its own picture to another one.

    Inverse compositional alignment (Baker, Matthews 2004, Lucas-Kanade 20 Years On, figure 4) of a patch of 24 x 24
    samples, for similarities, first of twice the face's size. Patches are normalised, so that light may change.

    Args:
        faces: (N, K).
        here: the pictures in which they were found.
        there: as many others.
    """
    half = (faces.sides / 2).clamp(min=2)
    turn = torch.zeros_like(faces.centres)
    turn[..., 0] = 1
    shift = torch.zeros_like(turn)
    unit = _grid(turn.device).expand(*half.shape, -1, -1)
    alike = half
    for wide, rounds in _PASSES:
        reach = half * wide
        model = _normalised(_patches(here, faces.centres, reach, unit))
        fit = _fit(model)
        for _ in range(rounds):
            seen = _normalised(_patches(there, faces.centres + shift, reach, _times(turn[:, :, None], unit)))
            step = (fit @ (seen - model)[..., None])[..., 0].clamp(-0.5, 0.5)
            turn = _times(turn, _inverse(torch.stack((step[..., 2] + 1, step[..., 3]), -1)))
            shift = shift - reach[..., None] * _times(turn, step[..., :2])
        seen = _normalised(_patches(there, faces.centres + shift, reach, _times(turn[:, :, None], unit)))
        alike = (seen * model).mean(-1)
    fine = torch.isfinite(shift).all(-1) & (alike > _ALIKE)
    a, b = (torch.where(fine, turn[..., i], still) for i, still in ((0, 1.0), (1, 0.0)))
    return Motion(torch.stack((a, b), -1), torch.where(fine[..., None], shift, 0.0), fine & faces.valid)


def forth(move: Motion, centres: Tensor, points: Tensor) -> Tensor:
    """Points (N, K, P, 2) of the faces' own pictures in the others."""
    centre = centres[:, :, None]
    return centre + move.shift[:, :, None] + _times(move.turn[:, :, None], points - centre)


def back(move: Motion, centres: Tensor, points: Tensor) -> Tensor:
    """The inverse of `forth`, about the same centres."""
    centre = centres[:, :, None]
    return centre + _times(_inverse(move.turn)[:, :, None], points - centre - move.shift[:, :, None])


def _grid(device: torch.device) -> Tensor:
    """(P * P, 2): places -1..1, row by row."""
    line = (torch.arange(_GRID, dtype=torch.float32, device=device) + 0.5) * (2 / _GRID) - 1
    return torch.cartesian_prod(line, line).flip(-1)


def _patches(pictures: Pyramid, centre: Tensor, reach: Tensor, unit: Tensor) -> Tensor:
    """(N, K, P * P): the level whose pixels lie closest to the samples of each face."""
    sparse = reach * (2 / _GRID) * pictures.factor
    x, y = ((centre[:, :, None] + reach[:, :, None, None] * unit + 0.5) * pictures.factor).unbind(-1)
    out, limit = None, _SPARSE
    for step, level in enumerate(pictures.levels):
        # A level rounded up is a little wider than the picture: its edges lie where its own pixels end.
        high, wide = (side * float(_COARSER**step) for side in level.shape[-2:])
        grid = torch.stack((x / wide * 2 - 1, y / high * 2 - 1), -1)
        values = functional.grid_sample(level, grid, padding_mode="border", align_corners=False)[:, 0]
        out = values if out is None else torch.where((sparse > limit)[..., None], values, out)
        limit = _SPARSE * _COARSER**step
    assert out is not None, "a pyramid has a first level"
    return out


def _normalised(patch: Tensor) -> Tensor:
    away = patch - patch.mean(-1, keepdim=True)
    return away / away.square().mean(-1, keepdim=True).sqrt().clamp(min=1e-3)


def _fit(model: Tensor) -> Tensor:
    """(N, K, 4, P * P): what a difference from the model says of x, y, scale and turn; ridge against flat patches."""
    square = model.view(*model.shape[:2], _GRID, _GRID)
    down, across = torch.gradient(square, spacing=2 / _GRID, dim=(2, 3))
    x, y = _grid(model.device).view(_GRID, _GRID, 2).unbind(-1)
    steepest = torch.stack((across, down, across * x + down * y, down * x - across * y), 2).flatten(3)
    normal = steepest @ steepest.mT + 1e-2 * torch.eye(4, device=model.device)
    fit: Tensor = torch.linalg.solve_ex(normal, steepest)[0]
    return fit


def _times(p: Tensor, q: Tensor) -> Tensor:
    """Products of complex numbers."""
    (a, b), (c, d) = p.unbind(-1), q.unbind(-1)
    return torch.stack((a * c - b * d, a * d + b * c), -1)


def _inverse(p: Tensor) -> Tensor:
    a, b = p.unbind(-1)
    square = (a * a + b * b).clamp(min=1e-6)
    return torch.stack((a / square, -b / square), -1)
