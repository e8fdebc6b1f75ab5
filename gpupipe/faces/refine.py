"""Points looked at once more, where the detector is at its best: upright and always of the same size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.faces.align import apply, crops, inverse, similarity
from gpupipe.faces.detect import Wanted, faces_of, look
from gpupipe.faces.found import listed
from gpupipe.faces.templates import template

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from gpupipe.faces.found import Faces

SIDE = 160
"""Pixels of a crop."""
_WIDTH, _EYES = 72, 2 * (318.9 - 192.98) / 512
"""Pixels of a face in it, and how much of a crop of the template a face takes: about two eye distances."""
_MIRRORED = (1, 0, 2, 4, 3)
_NEAR = 0.25
"""How far, in sizes of the face, points may be put elsewhere: further off it is another face."""


class Refine:
    """Means of what the detector says of a face's crop and of its mirror image.

    CenterFace's eyes are off by 2.7 % of the face's width on average, by its size and turn; these by 1.1 %, measured on
    `astronaut_512.png` from 40 to 160 pixels and turned by up to 15 degrees.

    Args:
        detector: (n, 3, 160, 160) R'G'B' 0..255 to CenterFace's four maps.
        device: where.
    """

    def __init__(self, detector: Callable[[Tensor], tuple[Tensor, ...]], device: torch.device) -> None:
        self._detector = detector
        self._target = torch.from_numpy(template("ffhq512", SIDE, _EYES * SIDE / _WIDTH)).to(device)

    def __call__(self, rgb: Tensor, faces: Faces, number: int) -> Tensor:
        """(N, K, 5, 2): the points of all faces, of which there are `number`."""
        places = faces.valid.shape[1]
        order = listed(faces.valid, number)
        points = faces.points.flatten(0, 1)[order]
        matrix = similarity(points, self._target)
        crop = crops(rgb, order.div(places, rounding_mode="floor"), matrix, SIDE).clamp(0, 1) * 255
        maps = self._detector(torch.cat((crop, crop.flip(-1))))
        there, found = self._nearest(faces_of(maps, look(SIDE, SIDE, SIDE), Wanted(0.2, 0.0, 4)))
        straight, mirrored = there.chunk(2)
        x, y = mirrored.unbind(-1)
        mirrored = torch.stack([torch.stack((SIDE - 1 - x, y), -1)[:, n] for n in _MIRRORED], 1)
        one, other = (part.to(straight.dtype)[:, None, None] for part in found.chunk(2))
        mean = (straight * one + mirrored * other) / (one + other).clamp(min=1)
        new = apply(inverse(matrix), mean).to(points.dtype)
        size = faces.sides.flatten()[order][:, None, None].clamp(min=1)
        moved = torch.linalg.vector_norm((new - points) / size, dim=-1).amax(-1)
        good = ((one + other).flatten() > 0) & (moved < _NEAR)
        return (
            faces.points.flatten(0, 1)
            .index_copy(0, order, torch.where(good[:, None, None], new, points))
            .view(*faces.points.shape)
        )

    def _nearest(self, faces: Faces) -> tuple[Tensor, Tensor]:
        """(F, 5, 2) points of the face in the middle of each crop, and whether there is one."""
        away = torch.linalg.vector_norm(faces.points.mean(2) - self._target.mean(0).to(faces.points.dtype), dim=-1)
        away = torch.where(faces.valid, away, float("inf"))
        best = away.argmin(1)
        points = faces.points.gather(1, best.view(-1, 1, 1, 1).expand(-1, 1, 5, 2))[:, 0]
        return points, away.amin(1) < _NEAR * _WIDTH
