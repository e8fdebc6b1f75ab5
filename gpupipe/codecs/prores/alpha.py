"""Lossless coding of alpha, RDD 36 7.1.2: differences of 16-bit values and the runs of equal ones; torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.codecs.prores.entropy import Symbols
from gpupipe.codecs.prores.transform import pictures_of

if TYPE_CHECKING:
    from gpupipe.codecs.prores.layout import Layout

_SMALL = 64
"""Differences up to this take 8 bits, others 17."""
_SHORT_RUN = 15


def alpha_symbols(alpha: torch.Tensor, depth: int, layout: Layout) -> Symbols:
    """Codewords of (N, H, W) alpha, opaque at its top code; `Symbols.plane` counts slices through the batch.

    Values are widened to 16 bits by repeating their bits, so that they come back as they were.
    """
    wide = alpha.to(torch.int64)
    wide = wide << 16 - depth | (wide >> 2 * depth - 16 if 2 * depth >= 16 else wide << 16 - 2 * depth)
    pictures = pictures_of(wide, layout, layout.rows * 16, layout.columns * 16)
    parts = [_symbols(_slices(pictures, layout, k), k, layout) for k in range(len(layout.runs))]
    whole = Symbols(*(torch.cat([getattr(p, f) for p in parts]) for f in ("plane", "codes", "lengths")))
    order = whole.plane.argsort(stable=True)
    return Symbols(whole.plane[order], whole.codes[order], whole.lengths[order])


def _slices(pictures: torch.Tensor, layout: Layout, k: int) -> torch.Tensor:
    """(P, rows, slices of run k, pixels of a slice in raster order)."""
    run = layout.runs[k]
    wide = run.macroblocks * 16
    part = pictures.narrow(2, run.first_macroblock * 16, run.count * wide)
    return part.reshape(-1, layout.rows, 16, run.count, wide).transpose(2, 3).flatten(3)


def _symbols(values: torch.Tensor, k: int, layout: Layout) -> Symbols:
    """A symbol a change: the difference, and behind it the run of equal values that follow."""
    run = layout.runs[k]
    pictures, rows, count, pixels = values.shape
    device = values.device
    first = torch.full((*values.shape[:3], 1), 0xFFFF, device=device)
    difference = values - torch.cat((first, values[..., :-1]), dim=3)
    starts = difference != 0
    starts[..., 0] = True
    at = starts.flatten().nonzero().squeeze(1)
    following = torch.cat((at[1:], at.new_tensor([starts.numel()])))
    end = at - at % pixels + pixels
    code, length = _difference_codes(difference.flatten()[at])
    run_code, run_length = _run_codes(torch.minimum(following, end) - at - 1)
    last = following >= end  # nothing follows: a run of 0 needs no code
    run_length = torch.where(last & (run_length == 1), 0, run_length)
    run_code = torch.where(run_length == 0, 0, run_code)
    inside = torch.arange(pictures * rows * count, device=device)
    row, column = inside // count, inside % count
    number = row * layout.row_slices + run.first_slice + column
    return Symbols(number[at // pixels], torch.stack((code, run_code), 1), torch.stack((length, run_length), 1))


def _difference_codes(difference: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """0, magnitude - 1 in six bits and the sign for -64..64 but 0; else 1 and the difference modulo 2^16."""
    wrapped = ((difference + 0x8000) & 0xFFFF) - 0x8000
    small = (wrapped.abs() <= _SMALL) & (wrapped != 0)
    short = (wrapped.abs() - 1) << 1 | (wrapped < 0)
    return torch.where(small, short, 1 << 16 | (wrapped & 0xFFFF)), torch.where(small, 8, 17)


def _run_codes(run: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """1 for none; else 0 and the run, in four bits or in four zeros and eleven bits."""
    length = torch.where(run == 0, 1, torch.where(run <= _SHORT_RUN, 5, 16))
    return torch.where(run == 0, 1, run), length
