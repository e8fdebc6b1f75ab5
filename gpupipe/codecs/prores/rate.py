"""The quantiser index of every slice, chosen for whole batches at once from exact costs; torch, integers only.

One index for the whole frame is within a hair of the best for its mean square error, so the frame's index is found by
bisection; the bytes that its next finer neighbour would overspend are then given to the slices that gain most by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from gpupipe.codecs.prores import tables

if TYPE_CHECKING:
    from gpupipe.codecs.prores.layout import Layout

INDICES = (*range(1, 17), *range(18, 33, 2), *range(36, 65, 4), *range(72, 129, 8), *range(144, 225, 16))
"""What bisection looks at: steps of at most an eighth beyond 16. All of them fit 16-bit slice sizes."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What quantisers cost."""

    bits: torch.Tensor
    """(P, slices, 3) int64: bits of each plane of each slice."""
    error: torch.Tensor
    """(P, slices) int64: sum of squared errors of the coefficients."""

    @property
    def bytes(self) -> torch.Tensor:
        """(P, slices) int64: bytes of each slice's planes."""
        return ((self.bits + 7) // 8).sum(dim=2)


class CostOf(Protocol):
    """What `choose` asks of the arithmetic."""

    def __call__(self, quantisers: torch.Tensor) -> Cost:
        """Exact cost of (P, slices) int64 quantiser indices."""
        ...


def choose(cost_of: CostOf, layout: Layout, finest: int, budget: int, like: torch.Tensor) -> torch.Tensor:
    """(P, slices) int64 quantiser indices that keep each frame within its bytes, where any do.

    Args:
        cost_of: of the coefficients of the batch.
        layout: of its pictures.
        finest: the finest index to use.
        budget: bytes that the planes of all slices of a frame may take.
        like: tensor of P rows on the device.
    """
    frames = like.shape[0] // layout.pictures
    indices = torch.tensor([i for i in INDICES if i >= finest], device=like.device)
    low = torch.zeros(frames, dtype=torch.int64, device=like.device)
    high = torch.full_like(low, len(indices) - 1)
    shape = (frames, layout.pictures * layout.slices)
    fine = coarse = None
    for _ in range((len(indices) - 1).bit_length()):
        middle = (low + high) // 2
        cost = cost_of(_everywhere(indices[middle], layout))
        found = cost.bytes.view(shape), cost.error.view(shape)
        fits = found[0].sum(dim=1) <= budget
        fine = _keep(fine, found, ~fits & (low < high))
        coarse = _keep(coarse, found, fits)
        low, high = torch.where(fits, low, torch.minimum(middle + 1, high)), torch.where(fits, middle, high)
    assert fine is not None
    assert coarse is not None
    finer = _finer(fine, coarse, budget)
    known = (high > 0) & (high < len(indices) - 1)  # both neighbours were looked at
    chosen = indices[high][:, None] - torch.zeros_like(finer, dtype=torch.int64)
    chosen = torch.where(finer & known[:, None], indices[(high - 1).clamp(min=0)][:, None], chosen)
    return chosen.view(-1, layout.slices)


def fixed(quantiser: int, layout: Layout, like: torch.Tensor) -> torch.Tensor:
    """The same index for every slice."""
    assert 1 <= quantiser <= tables.MAX_QUANTISER
    return torch.full((like.shape[0], layout.slices), quantiser, device=like.device)


def _everywhere(index: torch.Tensor, layout: Layout) -> torch.Tensor:
    """(frames,) to (P, slices)."""
    return index.repeat_interleave(layout.pictures)[:, None].expand(-1, layout.slices)


_Found = tuple[torch.Tensor, torch.Tensor]


def _keep(old: _Found | None, new: _Found, where: torch.Tensor) -> _Found:
    if old is None:
        return new
    return torch.where(where[:, None], new[0], old[0]), torch.where(where[:, None], new[1], old[1])


def _finer(fine: _Found, coarse: _Found, budget: int) -> torch.Tensor:
    """(frames, slices) bool: which slices take the finer index, most error saved a byte first, until none is left.

    Two equal ratios go by the slices' order, so that the choice is the same everywhere.
    """
    price, gain = fine[0] - coarse[0], coarse[1] - fine[1]
    worth = gain.double() / price.clamp(min=1).double()
    worth = torch.where((price <= 0) & (gain > 0), torch.inf, worth)
    order = worth.argsort(dim=1, descending=True, stable=True)
    spent = coarse[0].sum(dim=1, keepdim=True) + price.gather(1, order).cumsum(dim=1)
    overspent = (spent > budget).to(torch.int64).cumsum(dim=1) > 0
    taken = ~overspent & (gain.gather(1, order) > 0)
    return torch.zeros_like(taken).scatter(1, order, taken)
