"""What is known of the faces of a batch: K places a picture, some of them filled."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    embeddings: Tensor
    """(N, K, E): who it is; E is 0 where nobody asks."""
    motion: Tensor
    """(N, K, 5): how each goes to the picture before, see `motion.Motion`: turn, shift, and 1 where it was found."""
    valid: Tensor
    """(N, K) bool."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Faces:
        """The same change to every tensor."""
        return Faces(*(change(getattr(self, f.name)) for f in fields(self)))

    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, in the order of the fields."""
        return tuple(getattr(self, f.name) for f in fields(self))

    def take(self, order: Tensor) -> Faces:
        """Places in another order, or some of them: (N, J) int64 indices into the K places."""
        return self.map(lambda values: take(values, order))

    def keep(self, wanted: Tensor) -> Faces:
        """The same with fewer valid places: (N, K) bool."""
        return replace(self, valid=self.valid & wanted)

    def packed(self, places: int | None = None) -> Faces:
        """Valid places first, their order kept, and no more than `places` of them."""
        order = torch.argsort((~self.valid).to(torch.uint8), dim=1, stable=True)
        return self.take(order[:, :places])

    @property
    def sides(self) -> Tensor:
        """(N, K): the longer side of each box."""
        return (self.boxes[..., 2:] - self.boxes[..., :2]).amax(-1)

    @property
    def centres(self) -> Tensor:
        """(N, K, 2): the middle of each box."""
        return (self.boxes[..., 2:] + self.boxes[..., :2]) / 2


PARTS = len(fields(Faces))
"""Tensors of it."""


def take(values: Tensor, order: Tensor) -> Tensor:
    """(N, J, ...) of (N, K, ...), by (N, J) int64 indices."""
    index = order.reshape(*order.shape, *[1] * (values.dim() - 2)).expand(*order.shape, *values.shape[2:])
    return values.gather(1, index)


def filled(values: Tensor, count: int) -> Tensor:
    """(count, ...) of (n, ...), n at most `count` and not 0: the last one again, so that there is one shape only."""
    missing = count - len(values)
    return torch.cat((values, values[-1:].expand(missing, *values.shape[1:]))) if missing else values


def listed(valid: Tensor, number: int, together: int) -> tuple[Tensor, ...]:
    """Where the `number` valid places are among all N * K, for each call of a network.

    Args:
        valid: (N, K) bool.
        number: how many there are, at least one.
        together: so many for each call, the last ones again where there are fewer; 0 for one call with all.
    """
    order = torch.argsort((~valid).flatten().to(torch.uint8), stable=True)[:number]
    if not together:
        return (order,)
    return tuple(filled(part, together) for part in order.split(together))  # type: ignore[no-untyped-call]


def joined(parts: Sequence[Faces], dim: int) -> Faces:
    """One after another in time (0), or more places a picture (1)."""
    return Faces(*(torch.cat(values, dim) for values in zip(*(p.tensors() for p in parts), strict=True)))


def nothing(pictures: int, places: int, device: torch.device | str, embedding: int = 0) -> Faces:
    """No face in any picture."""
    return Faces(
        torch.zeros(pictures, places, 4, device=device),
        torch.zeros(pictures, places, device=device),
        torch.zeros(pictures, places, 5, 2, device=device),
        torch.zeros(pictures, places, embedding, device=device),
        torch.zeros(pictures, places, 5, device=device),
        torch.zeros(pictures, places, dtype=torch.bool, device=device),
    )
