"""Where a face is laid over the picture, as a function of the place in its crop: exact at any resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from torch import Tensor

Shape = Literal["ellipse", "hull", "box"]

AXES = (0.86, 0.98)
"""Half axes of the ellipse, where the crop's are 1: a face is taller than it is wide."""

NARROW = 0.45
"""Least half distance of the eyes, in distances from the eyes to the mouth; seen from the front it is a half."""
OUTLINE = (
    (-0.95, -1.25), (0.95, -1.25), (1.85, -0.7), (2.15, 0.1), (2.0, 1.0),
    (1.1, 1.95), (0.0, 2.25), (-1.1, 1.95), (-2.0, 1.0), (-2.15, 0.1), (-1.85, -0.7),
)  # fmt: skip
"""Corners of a hull from between the eyes: half distances of the eyes across, distances to the mouth down."""


def cover(shape: Shape, unit: Tensor, points: Tensor, feather: float) -> Tensor:
    """How much of the face is seen: 1 inside, 0 from the shape's edge on, smooth between.

    The ramp is Hermite's 3t^2 - 2t^3, so that neither of its ends shows as a line. All shapes end inside the crop.

    Args:
        shape: an ellipse, the hull of the face's points with chin and forehead, or the whole crop.
        unit: (F, h, w, 2) places, -1..1 across the crop.
        points: (F, 5, 2), the face's points in the same measure; the hull is made of them.
        feather: width of the ramp inside the edge, as a part of half the crop; 0 is a hard edge.

    Returns:
        (F, h, w) float32.
    """
    edge = 1 - unit.abs().amax(-1)
    if shape == "ellipse":
        x, y = unit.unbind(-1)
        inside = (1 - torch.hypot(x / AXES[0], y / AXES[1])) * min(AXES)
    elif shape == "hull":
        inside = _inside(_outline(points), unit)
    else:
        inside = edge
    t = (torch.minimum(inside, edge) / max(feather, 1e-6)).clamp(0, 1).to(torch.float32)
    return t * t * (3 - 2 * t)


def _outline(points: Tensor) -> Tensor:
    """(F, 11, 2): a convex outline, clockwise as seen, of a face of which five points are known.

    Chin, jaw, cheeks and forehead are put where they lie on average (Farkas, Anthropometry of the Head and Face:
    from the mouth to the chin it is about as far as from the eyes to the mouth; a face is about two eye distances
    wide), and a little beyond. Of a profile the eyes are almost one, and the face lies behind the nose: it stays about
    as wide as its height says, and moves away from the nose by as much as that stands out.
    """
    left, right, nose, mouth_left, mouth_right = points.unbind(-2)
    eyes, mouth = (left + right) / 2, (mouth_left + mouth_right) / 2
    down = mouth - eyes
    side = torch.stack((down[..., 1], -down[..., 0]), -1)
    square = down.square().sum(-1, keepdim=True).clamp(min=1e-12)
    wide = ((right - left) * side).sum(-1, keepdim=True) / (2 * square)
    turned = ((nose - (eyes + mouth) / 2) * side).sum(-1, keepdim=True) / square
    across, eyes = side * wide.clamp(min=NARROW), eyes - side * turned
    return torch.stack([eyes + x * across + y * down for x, y in OUTLINE], -2)


def _inside(outline: Tensor, unit: Tensor) -> Tensor:
    """(F, h, w): distance to the nearest edge of a convex outline, negative outside."""
    start, end = outline, outline.roll(-1, -2)
    along = end - start
    normal = torch.stack((-along[..., 1], along[..., 0]), -1)
    normal = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True).clamp(min=1e-9)
    offset = (normal * start).sum(-1)
    (across, down), (x, y) = normal[:, None, None].to(unit.dtype).unbind(-1), unit[..., None].unbind(-2)
    beyond = torch.addcmul(-offset[:, None, None].to(unit.dtype), x, across)
    return torch.addcmul(beyond, y, down).amin(-1)


def unit_of(xy: Tensor, size: int) -> Tensor:
    """Pixels of a crop as -1..1 from edge to edge."""
    return (xy + 0.5) * (2 / size) - 1
