"""Calm points and boxes: a One-Euro filter that moves along with the face, over a window of pictures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from gpupipe.faces.found import take
from gpupipe.faces.motion import Motion, back

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
    values = torch.cat((faces.points, faces.boxes.view(*faces.valid.shape, 2, 2)), 2)
    size = _linked(faces.sides, links[0], 0)[..., None, None].clamp(min=1e-3)
    steady = _alpha(torch.full_like(size, calm.slope))
    begun = links[-1] >= 0
    value = _linked(values, links[-1], length - 1)
    speed = torch.zeros_like(value)
    number = begun.to(torch.float32)
    for ago in range(length - 2, -1, -1):
        now = _linked(values, links[ago], ago)
        before = back(_motion(faces, links[ago], ago), _linked(faces.centres, links[ago], ago), value)
        speed = torch.lerp(speed, now - before, steady)
        pace = speed.square().mean((-1, -2), keepdim=True).sqrt() / size
        number = number + 1
        weight = torch.maximum(_alpha(calm.cutoff + calm.beta * pace), 1 / number[..., None, None])
        filled = begun[..., None, None]
        value = torch.where(filled, torch.lerp(before, now, weight), now)
        speed = torch.where(filled, speed, 0.0)
        begun = begun | (links[ago] >= 0)
        number = torch.where(begun, number, 0.0)
    recent = faces.map(lambda x: x[len(x) - count :])
    return replace(recent, points=value[:, :, :5], boxes=value[:, :, 5:].reshape(count, places, 4))


def _alpha(cutoff: Tensor) -> Tensor:
    """Weight of the newest value at a cutoff in cycles a picture: equation 4 with a period of one."""
    turn = 2 * math.pi * cutoff
    return turn / (turn + 1)


def _linked(values: Tensor, link: Tensor, ago: int) -> Tensor:
    """(N, K, ...): values that `link` points at, `ago` pictures ago."""
    end = len(values) - ago
    return take(values[end - len(link) : end], link.clamp(min=0))


def _motion(faces: Faces, link: Tensor, ago: int) -> Motion:
    """To the picture before; standing still where it is not known."""
    known = _linked(faces.motion, link, ago)
    found = known[..., 4] > 0
    a, b, x, y = (torch.where(found, known[..., i], still) for i, still in enumerate((1.0, 0.0, 0.0, 0.0)))
    return Motion(torch.stack((a, b), -1), torch.stack((x, y), -1), found)


def averaged(values: Tensor, links: Tensor) -> Tensor:
    """(N, K, D): means of values (T, K, D) along chains."""
    kept = (links >= 0).to(values.dtype)[..., None]
    seen = torch.stack([_linked(values, link, ago) for ago, link in enumerate(links)])
    return (seen * kept).sum(0) / kept.sum(0).clamp(min=1)
