"""From the maps of CenterFace to faces: peaks, boxes, points and suppression, in shapes that never change."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from gpupipe.faces.found import Faces

if TYPE_CHECKING:
    from torch import Tensor

STEP = 32
"""Sides of the network's input are multiples of it."""
_CELL = 4
_LARGEST = 12.0
"""exp() of more is no size of a face."""
_LAST = 2.0**-52
"""Of a score for each cell that lies before: a million of them are less than any two scores above 0.01 differ by."""


class Look(NamedTuple):
    """How a picture is shown to the detector."""

    width: int
    """Pixels of the picture as scaled, without the padding to a multiple of `STEP`."""
    height: int
    factor: float
    """Scaled pixels for each of the picture's own."""

    @property
    def padded(self) -> tuple[int, int]:
        """Width and height of what the detector gets."""
        return -(-self.width // STEP) * STEP, -(-self.height // STEP) * STEP


def look(width: int, height: int, longest: int) -> Look:
    """The picture scaled so that its longer side has about `longest` pixels."""
    factor = longest / max(width, height)
    return Look(max(1, round(width * factor)), max(1, round(height * factor)), factor)


def shown(rgb_nchw: Tensor, how: Look) -> Tensor:
    """(N, 3, h, w) float32 R'G'B' 0..255, both sides multiples of `STEP`, black to the right and below.

    On a GPU one kernel of our own where triton is installed, which gives the same to some ten-thousandths.

    Args:
        rgb_nchw: (N, 3, H, W) floats, nominal 0..1; what lies beyond is clamped.
        how: from `look`.
    """
    wide, high = how.padded
    if rgb_nchw.is_cuda and find_spec("triton") is not None:
        from gpupipe.faces import shown_triton  # noqa: PLC0415  machines without a GPU have no triton

        return shown_triton.shown(rgb_nchw, (how.height, how.width), (high, wide))
    picture = rgb_nchw.to(torch.float32).clamp(0, 1) * 255
    if (how.height, how.width) != picture.shape[-2:]:
        size = (how.height, how.width)
        picture = functional.interpolate(picture, size=size, mode="bilinear", antialias=True, align_corners=False)
    return functional.pad(picture, (0, wide - how.width, 0, high - how.height))


def decode(heat: Tensor, sizes: Tensor, offsets: Tensor, points: Tensor, *, most: int) -> Faces:
    """The `most` highest peaks of each picture, in pixels of the network's input, in falling order of score.

    Of equal scores, which half precision has many of, the one further up is first, then the one further left: `topk`
    alone orders them as it happens to go through that shape.

    CenterFace (Xu et al. 2019, arXiv 1911.03599), section 3, and its reference implementation: at the cell (r, c) of a
    peak h, w = exp(sizes) * 4, x1 = (c + offset_x + 0.5) * 4 - w / 2, likewise y1, and points are fractions of w and h
    from there. A peak is a cell that none of its eight neighbours exceeds.

    Args:
        heat: (N, 1, h, w).
        sizes: (N, 2, h, w): logarithms of height and width, in cells.
        offsets: (N, 2, h, w): y, then x.
        points: (N, 10, h, w): y and x of each point in turn.
        most: peaks of a picture; fewer where there are fewer cells.
    """
    count, _, _, width = heat.shape
    peaks = torch.where(functional.max_pool2d(heat, 3, 1, 1) == heat, heat, 0.0).flatten(1)
    scores, cells = peaks.topk(min(most, peaks.shape[1]), dim=1)
    order = torch.argsort(scores.to(torch.float64) - cells * _LAST, dim=1, descending=True)
    scores, cells = scores.gather(1, order), cells.gather(1, order)

    def at(maps: Tensor) -> Tensor:
        flat = maps.to(torch.float32).flatten(2)
        return flat.gather(2, cells[:, None].expand(-1, flat.shape[1], -1)).permute(0, 2, 1)

    places = torch.stack((cells % width, cells.div(width, rounding_mode="floor")), -1)
    size = at(sizes).clamp(max=_LARGEST).exp().flip(-1) * _CELL
    first = (places + at(offsets).flip(-1) + 0.5) * _CELL - size / 2
    five = at(points).reshape(count, -1, 5, 2).flip(-1)
    return Faces(
        torch.cat((first, first + size), -1),
        scores.to(torch.float32),
        five * size[:, :, None] + first[:, :, None],
        first.new_zeros(*scores.shape, 0),
        first.new_zeros(*scores.shape, 5),
        scores > 0,
    )


def overlaps(a: Tensor, b: Tensor) -> Tensor:
    """(..., I, J): intersection over union of boxes (..., I, 4) and (..., J, 4)."""
    low = torch.maximum(a[..., :, None, :2], b[..., None, :, :2])
    high = torch.minimum(a[..., :, None, 2:], b[..., None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    one, other = ((x[..., 2:] - x[..., :2]).clamp(min=0).prod(-1) for x in (a, b))
    return both / (one[..., :, None] + other[..., None, :] - both).clamp(min=1e-9)


def suppress(faces: Faces, overlap: float, rounds: int = 8) -> Faces:
    """Of faces that overlap keeps the one with the higher score; places are in falling order of score.

    Cluster-NMS (Zheng et al. 2020, arXiv 2005.03572, algorithm 1): all are judged at once by those that were kept the
    round before. After n rounds every decision that hangs on fewer than n others is that of the greedy algorithm.
    """
    hides = (overlaps(faces.boxes, faces.boxes) > overlap).tril(-1)
    kept = faces.valid
    for _ in range(rounds):
        kept = faces.valid & ~(hides & kept[:, None, :]).any(-1)
    return faces.keep(kept)


class Wanted(NamedTuple):
    """What counts as a face."""

    score: float
    smallest: float
    """Pixels of the picture."""
    places: int
    """Most faces in a picture."""
    overlap: float = 0.3


def faces_of(maps: tuple[Tensor, ...], how: Look, wanted: Wanted) -> Faces:
    """Faces in pixels of the picture, from the network's four maps; best first, `wanted.places` places."""
    heat, sizes, offsets, points = maps
    found = decode(heat, sizes, offsets, points, most=2 * wanted.places + 32)
    found = suppress(found.keep(found.scores >= wanted.score), wanted.overlap)
    found = replace(found, boxes=found.boxes / how.factor - 0.5, points=found.points / how.factor - 0.5)
    found = found.keep(found.sides >= wanted.smallest).packed(wanted.places)
    missing = wanted.places - found.valid.shape[1]
    return found if missing <= 0 else found.map(lambda x: _grown(x, missing))


def _grown(values: Tensor, places: int) -> Tensor:
    return torch.cat((values, values.new_zeros(values.shape[0], places, *values.shape[2:])), 1)
