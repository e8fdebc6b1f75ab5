"""Calm points and boxes: a One-Euro filter that moves along with the face, over a window of pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from gpupipe.faces.motion import turned

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.faces.found import Faces


class Calm(NamedTuple):
    """How calm, against how quick."""

    cutoff: float = 0.01
    """Of what does not change but by motion, in cycles a picture: lower is calmer."""
    beta: float = 0.5
    """Added to the cutoff for each face width a picture that points move against the face: higher is quicker."""
    slope: float = 0.1
    """Cutoff of that speed itself."""
    window: int = 16
    """Pictures."""


def smoothed(faces: Faces, links: Tensor, calm: Calm) -> Faces:
    """Faces of the last N pictures, their points and boxes filtered along their chains.

    Casiez, Roussel, Vogel (2012), 1 Euro Filter, equations 1 to 4 and algorithm 1, with two changes. What was known is
    first moved on by the face's measured motion (`motion.motion`), so that the filter sees only what the detector adds
    to it, and does not lag behind. And the filter is begun anew for each picture at the oldest link of its chain, as a
    plain mean (a weight of at least one in n at the nth), so that a result depends on `window` pictures and on nothing
    else: cutting a clip in pieces cannot show. Where no motion was found it is the filter of the paper. The speed that
    sets the cutoff is one for all points of a face, in sizes of the face.

    Args:
        faces: (T, K) of consecutive pictures.
        links: (length, N, K) from `follow.chains`.
        calm: the filter's numbers.
    """
    length, count, places = links.shape
    known = links >= 0
    linked = _Linked(len(faces.valid), links)
    # All that does not follow from the filter itself is worked out for the whole chain at once.
    corners = faces.boxes.view(*faces.valid.shape, 2, 2)
    now = linked(torch.cat((faces.points, corners), 2))
    a, b, shift = linked.back(faces)
    least = 1 / known.flip(0).cumsum(0).flip(0).clamp(min=1)[..., None, None]
    size = linked(faces.sides)[0, ..., None, None].clamp(min=1e-3)
    steady, still = _alpha(calm.slope), _turns(calm.cutoff)
    quick = _turns(calm.beta) / math.sqrt(now.shape[-1] * now.shape[-2]) / size  # a turn for a norm, not for a mean
    value, speed, known = now[-1], torch.zeros_like(now[-1]), known[..., None, None]
    for ago in range(length - 2, -1, -1):  # few steps, since each is one of Python's for every link
        before = torch.addcmul(torch.addcmul(shift[ago], value, a[ago]), value.flip(-1), b[ago])
        away = now[ago] - before
        speed = torch.lerp(speed, away, steady)
        turn = torch.linalg.vector_norm(speed, dim=(-1, -2), keepdim=True) * quick + still
        weight = torch.maximum(turn / (turn + 1), least[ago])
        value = torch.where(known[ago + 1], torch.addcmul(before, weight, away), now[ago])
        speed = torch.where(known[ago + 1], speed, 0.0)
    recent = faces.map(lambda x: x[len(x) - count :])
    return replace(recent, points=value[:, :, :5], boxes=value[:, :, 5:].reshape(count, places, 4))


def _turns(cutoff: float) -> float:
    """Radians a picture of cycles a picture."""
    return 2 * math.pi * cutoff


def _alpha(cutoff: float) -> float:
    """Weight of the newest value at a cutoff in cycles a picture: equation 4 with a period of one."""
    return _turns(cutoff) / (_turns(cutoff) + 1)


class _Linked:
    """Looks up what chains point at."""

    def __init__(self, total: int, links: Tensor) -> None:
        length, count, places = links.shape
        newest = torch.arange(count, device=links.device) + (total - count)
        picture = newest[:, None] - torch.arange(length, device=links.device)[:, None, None]
        self._at = picture * places + links.clamp(min=0)

    def __call__(self, values: Tensor) -> Tensor:
        """(length, N, K, ...) of (T, K, ...)."""
        return values.flatten(0, 1)[self._at]

    def back(self, faces: Faces) -> tuple[Tensor, Tensor, Tensor]:
        """How a point p of the picture before comes to each: a * p + b * (its y, its x) + shift; 1, 0, 0 where unknown.

        (length, N, K, 1, 1) of a, (length, N, K, 1, 2) of the others. b times the two is `turned(p)` as often.
        """
        known = self(faces.motion)[..., None, :]
        found = known[..., 4:] > 0
        square = known[..., :2].square().sum(-1, keepdim=True).clamp(min=1e-6)
        a, b = (torch.where(found, part, still) for part, still in
                ((known[..., :1] / square, 1.0), (-known[..., 1:2] / square, 0.0)))  # fmt: skip
        centre = self(faces.centres)[..., None, :]
        here = centre + known[..., 2:4]
        shift = centre - torch.addcmul(a * here, b, turned(here))
        return a, torch.cat((-b, b), -1), torch.where(found, shift, 0.0)


def averaged(values: Tensor, links: Tensor) -> Tensor:
    """(N, K, D): means of values (T, K, D) along chains."""
    kept = (links >= 0).to(values.dtype)[..., None]
    return (_Linked(len(values), links)(values) * kept).sum(0) / kept.sum(0).clamp(min=1)
