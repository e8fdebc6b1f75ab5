"""Which of the faces are worked on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.faces.found import Faces


def largest(faces: Faces) -> Tensor:
    """(N, K) bool: the face with the largest box."""
    area = (faces.boxes[..., 2:] - faces.boxes[..., :2]).clamp(min=0).prod(-1)
    return _only(torch.where(faces.valid, area, -1.0).argmax(1), faces)


def numbered(faces: Faces, index: int) -> Tensor:
    """(N, K) bool: the face that `index` others lie to the left of."""
    x = torch.where(faces.valid, faces.centres[..., 0], float("inf"))
    order = torch.argsort(x, dim=1, stable=True)
    if index >= order.shape[1]:
        return torch.zeros_like(faces.valid)
    return _only(order[:, index], faces)


def within(faces: Faces, region: tuple[float, float, float, float]) -> Tensor:
    """(N, K) bool: faces whose centre lies in x, y, width, height."""
    x, y, width, height = region
    across, down = faces.centres.unbind(-1)
    return faces.valid & (across >= x) & (across < x + width) & (down >= y) & (down < y + height)


def like(embeddings: Tensor, valid: Tensor, reference: Tensor, distance: float) -> Tensor:
    """(N, K) bool: the face nearest to (E,) `reference`, and it alone, where that is near enough."""
    away = torch.linalg.vector_norm(embeddings - reference, dim=-1)
    away = torch.where(valid, away, float("inf"))
    nearest = torch.zeros_like(valid).scatter(1, away.argmin(1, keepdim=True), value=True)
    return nearest & (away <= distance)


def _only(place: Tensor, faces: Faces) -> Tensor:
    return torch.zeros_like(faces.valid).scatter(1, place[:, None], value=True) & faces.valid


def back_to_front(faces: Faces) -> Tensor:
    """(N, K) int64: valid faces by their size, then from left to right, so that what is nearer covers what is behind.

    The order does not depend on the places that faces had.
    """
    x = torch.argsort(torch.where(faces.valid, faces.centres[..., 0], float("inf")), dim=1, stable=True)
    side = torch.where(faces.valid, faces.sides, float("inf")).gather(1, x)
    return x.gather(1, torch.argsort(side, dim=1, stable=True))
