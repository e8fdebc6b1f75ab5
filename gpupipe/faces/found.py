"""What is known of the faces of a batch: K places a picture, some of them filled."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Faces:
    """K places for each of N pictures; shapes never depend on what is seen, so that a CUDA Graph can hold them.

    Coordinates are pixels of the picture, float32, x to the right and y down; the centre of the top left pixel is
    (0, 0). What stands in places that are not `valid` is finite and means nothing.
    """

    boxes: Tensor
    """(N, K, 4): x1, y1, x2, y2."""
    scores: Tensor
    """(N, K), 0..1."""
    points: Tensor
    """(N, K, 5, 2): left eye, right eye, nose, left and right corner of the mouth, left as seen in the picture."""
    valid: Tensor
    """(N, K) bool."""

    def take(self, order: Tensor) -> Faces:
        """Places in another order, or some of them: (N, J) int64 indices into the K places."""
        return Faces(*(_take(getattr(self, f.name), order) for f in fields(self)))

    def where(self, keep: Tensor) -> Faces:
        """The same with fewer valid places: (N, K) bool."""
        return Faces(self.boxes, self.scores, self.points, self.valid & keep)

    def packed(self) -> Faces:
        """Valid places first, their order kept."""
        return self.take(torch.argsort((~self.valid).to(torch.uint8), dim=1, stable=True))

    @property
    def sides(self) -> Tensor:
        """(N, K): the longer side of each box."""
        return (self.boxes[..., 2:] - self.boxes[..., :2]).amax(-1)


def _take(values: Tensor, order: Tensor) -> Tensor:
    index = order.reshape(*order.shape, *[1] * (values.dim() - 2)).expand(*order.shape, *values.shape[2:])
    return values.gather(1, index)


def nothing(pictures: int, places: int, device: torch.device | str) -> Faces:
    """No face in any picture."""
    return Faces(
        torch.zeros(pictures, places, 4, device=device),
        torch.zeros(pictures, places, device=device),
        torch.zeros(pictures, places, 5, 2, device=device),
        torch.zeros(pictures, places, dtype=torch.bool, device=device),
    )
