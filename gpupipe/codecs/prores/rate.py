"""The quantiser index of every slice, chosen for whole batches at once from exact costs; torch, integers only.

One index for the whole frame is within a hair of the best for its mean square error, so the frame's index is found by
bisection; the bytes that its next finer neighbour would overspend are then given to the slices that gain most by them.

How much a frame may take is prores_ks' rule made a rule for frames, see `allowance`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from gpupipe.codecs.prores import tables

if TYPE_CHECKING:
    from gpupipe.codecs.prores.layout import Layout

INDICES = (*range(1, 7), *range(8, 17), 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224)
"""What bisection looks at: 30 of the 224, so that with -1 behind 1 five looks find the frame's. An index below 0 is
plain quantising, see `entropy.PLAIN_ROUNDING`: cheaper than our own at the same index, and dearer than at the next. On
its way to the finest it looks at 16 and 8, which flat slices can be coded with as well as with 1."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What quantisers cost."""

    bits: torch.Tensor
    """(P, slices, 3) int64: bits of each plane of each slice."""
    error: torch.Tensor
    """(P, slices) int64: sum of squared errors of the coefficients in half units, less a quarter each."""

    @property
    def bytes(self) -> torch.Tensor:
        """(P, slices) int64: bytes of each slice's planes."""
        return ((self.bits + 7) // 8).sum(dim=2)


class CostOf(Protocol):
    """What `choose` asks of the arithmetic."""

    def __call__(self, quantisers: torch.Tensor) -> Cost:
        """Exact cost of (P, slices) int64 quantiser indices."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """What frames of one format and profile may take, and the indices to choose from.

    Made once, as bringing tensors to a GPU waits for it.
    """

    budget: int
    """Bytes that the planes of all slices of a frame may take by the profile's rate."""
    shares: torch.Tensor
    """(slices a row,) int64: of these, what belongs to the slices of a row up to each one."""
    indices: torch.Tensor
    """int64, from the finest to the coarsest."""
    widths: torch.Tensor
    """(slices a frame,) int64: macroblocks of each slice."""
    finest: int
    """What no slice's index falls below for being quiet; where 1 is allowed, 2: the rest is a matter of error saved."""


def limits_of(layout: Layout, finest: int, budget: int, device: str | torch.device) -> Limits:
    """See `Limits`; `finest` is the finest index allowed."""
    found = [i for i in INDICES if i >= finest]
    if finest == 1:
        found.insert(1, -1)
    widths = torch.from_numpy(layout.slice_widths()).cumsum(0)
    return Limits(
        budget,
        (budget * widths // layout.macroblocks).to(device),
        torch.tensor(found, device=device),
        torch.from_numpy(layout.slice_widths()).repeat(layout.rows * layout.pictures).to(device),
        max(finest, 2),
    )


def allowance(plain: Cost, layout: Layout, limits: Limits) -> torch.Tensor:
    """(frames,) bytes that each frame may take, of the cost of all slices at minus the finest index.

    prores_ks goes through each row of slices from the left: a slice has what the profile allows to it and what those
    before it have left, and takes no more than it costs at the finest index. The frame gets the sum, and spends it
    where it helps most. So files are never larger than those of prores_ks, and no frame is larger than the profile's
    rate.
    """
    costs = plain.bytes.view(-1, layout.row_slices).cumsum(dim=1)
    rows = costs[:, -1] + (limits.shares - costs).amin(dim=1).clamp(max=0)
    return rows.view(-1, layout.rows * layout.pictures).sum(dim=1).clamp(max=limits.budget)


def quiet(plain: Cost, limits: Limits) -> torch.Tensor:
    """(frames, slices) int64: by how many halvings a slice's index lies below the frame's.

    A step that grass hides shows as blocks and bands in the sky above it, and there a finer one costs little: one below
    half of the frame's mean bytes a macroblock, two below a quarter, and so on up to four.
    """
    mine = plain.bytes.view(-1, len(limits.widths))
    mean = mine.sum(dim=1, keepdim=True) * limits.widths
    parts = mine * limits.widths.sum()
    below = torch.stack([part * parts < mean for part in (2, 4, 8, 16)])
    return below.sum(dim=0)


def choose(
    cost_of: CostOf, layout: Layout, limits: Limits, allowed: torch.Tensor, halvings: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantiser indices that keep each frame within its bytes where any do, the coarsest where none does.

    Args:
        cost_of: of the coefficients of the batch.
        layout: of its pictures.
        limits: of `limits_of`.
        allowed: (frames,) bytes that the planes of all slices of each frame may take, of `allowance`.
        halvings: (frames, slices) of `quiet`.

    Returns:
        (P, slices) int64 indices, and the (P, slices, 3) int64 bits that they cost.
    """
    indices, looks, seen = limits.indices, [], []
    low = torch.zeros_like(allowed)
    high = torch.full_like(low, len(indices))  # as long as none is known to fit
    fine = coarse = None
    for _ in range(len(indices).bit_length()):
        middle = ((low + high) // 2).clamp(max=len(indices) - 1)
        asked = _spread(indices[middle], halvings, limits)
        found = _looked(cost_of, asked, layout)
        looks.append(found)
        seen.append(asked)
        fits = found.bytes.sum(dim=1) <= allowed
        fine, coarse = _keep(fine, found, ~fits & (low < high)), _keep(coarse, found, fits & (low < high))
        low, high = torch.where(fits, low, torch.minimum(middle + 1, high)), torch.where(fits, middle, high)
    assert fine is not None
    assert coarse is not None
    # After it, `coarse` is what fits and `fine` its neighbour; with high = 0 there is no finer one.
    finer = _finer(fine, coarse, allowed) & (high > 0)[:, None] | (high == len(indices))[:, None]
    chosen = torch.where(
        finer,
        _spread(indices[(high - 1).clamp(min=0)], halvings, limits),
        _spread(indices[high.clamp(max=len(indices) - 1)], halvings, limits),
    )
    cost = Cost(torch.where(finer[..., None], fine.bits, coarse.bits), torch.where(finer, fine.error, coarse.error))
    for index, look in zip(seen, looks, strict=True):
        gains = (look.error <= cost.error) & (look.bytes < cost.bytes)
        chosen = torch.where(gains, index, chosen)
        cost = _keep(cost, look, gains)
    return chosen.view(-1, layout.slices), cost.bits.view(-1, layout.slices, 3)


def fixed(quantiser: int, layout: Layout, like: torch.Tensor) -> torch.Tensor:
    """The same index for every slice."""
    assert 1 <= abs(quantiser) <= tables.MAX_QUANTISER
    return torch.full((like.shape[0], layout.slices), quantiser, device=like.device)


def _spread(index: torch.Tensor, halvings: torch.Tensor, limits: Limits) -> torch.Tensor:
    """(frames,) indices to those of (frames, slices)."""
    index = index[:, None]
    return torch.where(index < limits.finest, index, (index >> halvings).clamp(min=limits.finest))


def _looked(cost_of: CostOf, quantisers: torch.Tensor, layout: Layout) -> Cost:
    """The cost of (frames, slices) indices, with all slices of a frame in one row."""
    cost = cost_of(quantisers.view(-1, layout.slices))
    return Cost(cost.bits.view(*quantisers.shape, 3), cost.error.view(quantisers.shape))


def _keep(old: Cost | None, new: Cost, where: torch.Tensor) -> Cost:
    """The new cost where (frames,) or (frames, slices) `where` says so."""
    if old is None:
        return new
    where = where if where.ndim == 2 else where[:, None]
    return Cost(torch.where(where[..., None], new.bits, old.bits), torch.where(where, new.error, old.error))


def _finer(fine: Cost, coarse: Cost, allowed: torch.Tensor) -> torch.Tensor:
    """(frames, slices) bool: which slices take the finer index, most error saved a byte first, until none is left.

    Two equal ratios go by the slices' order, so that the choice is the same everywhere.
    """
    fine_bytes, coarse_bytes = fine.bytes, coarse.bytes
    price, gain = fine_bytes - coarse_bytes, coarse.error - fine.error
    worth = gain.double() / price.clamp(min=1).double()
    worth = torch.where((price <= 0) & (gain > 0), torch.inf, worth)
    order = worth.argsort(dim=1, descending=True, stable=True)
    spent = coarse_bytes.sum(dim=1, keepdim=True) + price.gather(1, order).cumsum(dim=1)
    overspent = (spent > allowed[:, None]).to(torch.int64).cumsum(dim=1) > 0
    taken = ~overspent & (gain.gather(1, order) > 0)
    return torch.zeros_like(taken).scatter(1, order, taken)
