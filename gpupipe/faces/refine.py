"""Points looked at once more, where the detector is at its best: upright and always of the same size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from gpupipe.faces.align import apply, crops, inverse, similarity
from gpupipe.faces.detect import Wanted, faces_of, look
from gpupipe.faces.found import listed
from gpupipe.faces.templates import template

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from gpupipe.device.replay import Recorder
    from gpupipe.faces.found import Faces

SIDE = 192
"""Pixels of a crop."""
_WIDTHS, _EYES = (70, 80), 2 * (318.9 - 192.98) / 512
"""Pixels of a face in it, and how much of a crop of the template a face takes: about two eye distances."""
_MIRRORED = (1, 0, 2, 4, 3)
_NEAR = 0.25
"""How far, in sizes of the face, points may be put elsewhere: further off it is another face."""


class Refine:
    """Means of what the detector says of a face's crops in two sizes and of their mirror images.

    CenterFace's eyes are off by 2.7 % of the face's width on average, by its size and turn; these by 0.7 and 1.6 %, as
    measured on clips of `astronaut_512.png` and `dali_face_1.jpeg` that move and zoom, from 80 to 260 pixels wide.

    Args:
        detector: (n, 3, 192, 192) R'G'B' 0..255 to CenterFace's four maps.
        device: where.
        together: faces that are looked at at once, fewer being filled up; 0 for all that there are.
    """

    def __init__(
        self, detector: Callable[[Tensor], tuple[Tensor, ...]], device: torch.device, together: int = 0
    ) -> None:
        self._detector, self._together = detector, together
        targets = [template("ffhq512", SIDE, _EYES * SIDE / width) for width in _WIDTHS]
        self._targets = torch.from_numpy(np.stack(targets)).to(device)
        self._near = torch.tensor(_WIDTHS, device=device) * _NEAR
        self._look: Callable[..., Tensor] = self._better

    def record(self, recorder: Recorder, rgb: Tensor) -> None:
        """From now on it is replayed, for pictures that are in `rgb`; see `sight.Sight.record`."""
        some = torch.zeros(self._together, dtype=torch.int64, device=rgb.device)
        points = self._targets[0].to(torch.float32).expand(self._together, -1, -1).clone()
        self._look = recorder(self._better, rgb, some, points, some.to(torch.float32))

    def __call__(self, rgb: Tensor, faces: Faces, number: int) -> Tensor:
        """(N, K, 5, 2): the points of all faces, of which there are `number`."""
        places, flat, sides = faces.valid.shape[1], faces.points.flatten(0, 1), faces.sides.flatten()
        out = flat.clone()
        for order in listed(faces.valid, number, self._together):
            picture = order.div(places, rounding_mode="floor")
            out.index_copy_(0, order, self._look(rgb, picture, flat[order], sides[order]))
        return out.view(faces.points.shape)

    def _better(self, rgb: Tensor, picture: Tensor, points: Tensor, sides: Tensor) -> Tensor:
        """(F, 5, 2) of as many faces."""
        there, found = self._seen(rgb, picture, points)
        count = found.sum(0)[:, None, None]
        new = ((there * found[..., None, None]).sum(0) / count.clamp(min=1)).to(points.dtype)
        size = sides[:, None, None].clamp(min=1)
        moved = torch.linalg.vector_norm((new - points) / size, dim=-1).amax(-1)
        return torch.where(((count.flatten() > 0) & (moved < _NEAR))[:, None, None], new, points)

    def _seen(self, rgb: Tensor, picture: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        """(L, F, 5, 2) points of each face as found at each look, float64, and (L, F) where they were found.

        A look is a size of crop, as it is or mirrored; the detector is given all of them at once.
        """
        looks, many = len(_WIDTHS), len(points)
        matrix = similarity(points[None], self._targets[:, None])
        crop = crops(rgb, picture.repeat(looks), matrix.flatten(0, 1), SIDE).clamp(0, 1) * 255
        maps = self._detector(torch.cat((crop, crop.flip(-1))))
        faces = faces_of(maps, look(SIDE, SIDE, SIDE), Wanted(0.2, 0.0, 4))
        middle = self._targets.mean(1).to(points.dtype).repeat_interleave(many, 0).repeat(2, 1)
        near = self._near.repeat_interleave(many).repeat(2)
        there, found = _nearest(faces, middle, near)
        straight, mirrored = there.unflatten(0, (2, looks, many)).unbind(0)  # type: ignore[no-untyped-call]
        x, y = mirrored.unbind(-1)
        mirrored = torch.stack([torch.stack((SIDE - 1 - x, y), -1)[..., n, :] for n in _MIRRORED], -2)
        back = inverse(matrix)
        return torch.cat((apply(back, straight), apply(back, mirrored))), found.view(2 * looks, many).to(torch.float64)


def _nearest(faces: Faces, middle: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """(F, 5, 2) points of the face in the middle (F, 2) of each crop, and whether one is so near."""
    away = torch.linalg.vector_norm(faces.points.mean(2) - middle[:, None], dim=-1)
    away = torch.where(faces.valid, away, float("inf"))
    best = away.argmin(1)
    points = faces.points.gather(1, best.view(-1, 1, 1, 1).expand(-1, 1, 5, 2))[:, 0]
    return points, away.amin(1) < near
