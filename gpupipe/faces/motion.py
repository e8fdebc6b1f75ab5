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
_RIDGE = 2e-5
"""Beside mean squares of a normalised patch's slopes, where 1 is much: what flat patches are held by."""
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
    """Luma of N pictures at several sizes, one below the other in one picture, so that one look reads any of them."""

    atlas: Tensor
    """(N, 1, h, w) float32."""
    tall: int
    """Rows of the first and largest."""
    how: Look
    """How that one shows the picture: what lies beyond its width and height is none of it."""

    def rows(self, part: slice | Tensor) -> Pyramid:
        """Some of the pictures."""
        return self._replace(atlas=self.atlas[part])


def pyramid(luma: Tensor, how: Look) -> Pyramid:
    """From (N, h, w) luma of pictures as `how` shows them, perhaps with more to the right and below."""
    levels = [luma[:, None]]
    for _ in range(_LEVELS - 1):
        levels.append(functional.avg_pool2d(levels[-1], _COARSER, ceil_mode=True))
    wide = luma.shape[2]
    return Pyramid(torch.cat([functional.pad(x, (0, wide - x.shape[3])) for x in levels], 2), luma.shape[1], how)


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
    turn, none, alike, part = still, shift, half, half
    for wide, side, rounds in _PASSES:
        patch = _patch(here, faces.centres, half * wide, side)
        weight = _shown(here, patch, patch.at(still, none)) * _shown(there, patch, patch.at(turn, shift))
        part = weight.mean(-1)
        weight = weight / weight.sum(-1, keepdim=True).clamp(min=1)
        root = weight.sqrt()
        model = _normalised(_values(here, patch, patch.at(still, none)), weight, root)
        fit = _fit(model, weight, side)
        for _ in range(rounds):
            seen = _normalised(_values(there, patch, patch.at(turn, shift)), weight, root)
            move, change = (fit @ (seen - model)[..., None]).view(*half.shape, 2, 2).clamp(-0.5, 0.5).unbind(2)
            turn = _times(turn, _inverse(change + still))
            shift = shift - patch.reach[..., None] * _times(turn, move)
        seen = _normalised(_values(there, patch, patch.at(turn, shift)), weight, root)
        alike = (seen * model * weight).sum(-1)
    fine = torch.isfinite(shift).all(-1) & (alike > _ALIKE) & (part > _SEEN)
    turn, shift = torch.where(fine[..., None], turn, still), torch.where(fine[..., None], shift, 0.0)
    return Motion(turn, shift, fine & faces.valid)


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
    """(N, K) pixels of the picture from there to the patch's edge."""
    unit: Tensor
    """(P * P, 2): places -1..1."""
    turned: Tensor
    """The same, a quarter turn on."""
    cell: Tensor
    """(N, K, 1): side, in pixels of the picture, of a pixel of the level that is looked at."""
    scale: Tensor
    """(N, K, 1, 2): that level's part of the atlas, from -1 to 1, is places * scale + offset."""
    offset: Tensor

    def at(self, turn: Tensor, shift: Tensor) -> Tensor:
        """(N, K, P * P, 2) pixels of the picture, when the face was turned and shifted so."""
        a, b = (self.reach[..., None] * turn)[..., None, None].unbind(2)
        middle = (self.centre + shift)[:, :, None]
        return torch.addcmul(torch.addcmul(middle, a, self.unit), b, self.turned)


def _patch(pictures: Pyramid, centre: Tensor, reach: Tensor, side: int) -> _Patch:
    """On the level whose pixels lie closest to the samples of each face."""
    factor, (high, wide) = pictures.how.factor, pictures.atlas.shape[-2:]
    sparse = reach * (2 / side) * factor
    second, third = sparse > _SPARSE, sparse > _SPARSE * _COARSER
    smaller = torch.pow(1 / _COARSER, second.to(torch.float32) + third)
    start = second * float(pictures.tall) + third * float(-(-pictures.tall // _COARSER))
    scale = torch.stack((smaller * (2 * factor / wide), smaller * (2 * factor / high)), -1)
    first = torch.stack((torch.zeros_like(start), start * (2 / high)), -1)
    offset = scale / 2 + first - 1
    unit = _grid(side, reach.device)
    cell = 1 / (smaller * factor)
    return _Patch(centre, reach, unit, turned(unit), cell[..., None], scale[:, :, None], offset[:, :, None])


def _grid(side: int, device: torch.device) -> Tensor:
    """(P * P, 2): places -1..1, row by row."""
    line = (torch.arange(side, dtype=torch.float32, device=device) + 0.5) * (2 / side) - 1
    return torch.stack((line.repeat(side), line.repeat_interleave(side)), -1)


def _shown(pictures: Pyramid, patch: _Patch, places: Tensor) -> Tensor:
    """(N, K, P * P): 1 where a sample is made of pixels of the picture alone, else 0."""
    how = pictures.how
    x, y = (places + 0.5).unbind(-1)
    inside = torch.minimum(torch.minimum(x, how.width / how.factor - x), torch.minimum(y, how.height / how.factor - y))
    return (inside >= patch.cell).to(torch.float32)


def _values(pictures: Pyramid, patch: _Patch, places: Tensor) -> Tensor:
    """(N, K, P * P) luma. Places beyond the level read what lies beside it: they are not `_shown`."""
    grid = torch.addcmul(patch.offset, places, patch.scale)
    return functional.grid_sample(pictures.atlas, grid, padding_mode="border", align_corners=False)[:, 0]


def _normalised(patch: Tensor, weight: Tensor, root: Tensor) -> Tensor:
    """Of mean 0 and mean square 1, by weights that add up to one, and their roots."""
    away = patch - (patch * weight).sum(-1, keepdim=True)
    spread: Tensor = torch.linalg.vector_norm(away * root, dim=-1, keepdim=True)
    return away / spread.clamp(min=1e-3)


def _fit(model: Tensor, weight: Tensor, side: int) -> Tensor:
    """(N, K, 4, P * P): what a difference from the model says of x, y, scale and turn; ridge against flat patches."""
    square = model.view(*model.shape[:2], side, side)
    down, across = torch.gradient(square, spacing=2 / side, dim=(2, 3))
    x, y = _grid(side, model.device).view(side, side, 2).unbind(-1)
    steepest = torch.stack((across, down, across * x + down * y, down * x - across * y), 2).flatten(3)
    counted = steepest * weight[:, :, None]
    normal = counted @ steepest.mT + _RIDGE * torch.eye(4, device=model.device)
    return inverted(normal).to(counted.dtype) @ counted


def inverted(matrix: Tensor) -> Tensor:
    """Inverses of symmetric positive definite matrices (..., n, n), in float64.

    Gauss and Jordan's, an operator on all of them at a time. It needs no pivots (Golub, Van Loan, Matrix Computations,
    4.2), so nothing is decided by values, and a CUDA Graph takes it; the batched solver that `torch.linalg` calls on a
    GPU is waited for, and cannot be captured.
    """
    side = matrix.shape[-1]
    one = torch.eye(side, dtype=torch.float64, device=matrix.device)
    both = torch.cat((matrix.to(torch.float64), one.expand(matrix.shape)), -1)
    for n in range(side):
        row = both[..., n : n + 1, :] / both[..., n : n + 1, n : n + 1]
        both = torch.addcmul(both, both[..., n : n + 1] - one[:, n : n + 1], row, value=-1)
    return both[..., side:]


def turned(p: Tensor) -> Tensor:
    """A quarter turn on: i times (..., 2) as complex numbers.

    There is no complex64 here: on the CPU the last bits of its products depend on where in a tensor they stand.
    """
    return torch.stack((-p[..., 1], p[..., 0]), -1)


def _times(p: Tensor, q: Tensor) -> Tensor:
    """Products of complex numbers."""
    a, b = p[..., None].unbind(-2)
    return torch.addcmul(a * q, b, turned(q))


def _inverse(p: Tensor) -> Tensor:
    a, b = p.unbind(-1)
    return torch.stack((a, -b), -1) / p.square().sum(-1, keepdim=True).clamp(min=1e-6)
