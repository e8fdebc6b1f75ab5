"""Alpha beside a picture: other depths, opaque planes, and resampling that weighs colours by it.

Alpha is straight and full range. A resampled colour is a mean of colours, and one that is not seen must not tint those
that are; so colours are weighted by alpha, which is what resampling of premultiplied pictures comes to:
sum(w a c) / sum(w a), with alpha sum(w a). Where that is fully transparent, colours are resampled as they lie.
Rounding is to the nearest, never dithered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.ops.chroma import ChromaFilter
from gpupipe.ops.lattice import plane_lattices
from gpupipe.ops.regrid import Regrid

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.format import FrameFormat
    from gpupipe.ops.kernels import Filter
    from gpupipe.ops.regrid import Window


_NEXT_TO_NOTHING = 1 / 64


def unit(alpha: Tensor, bits: int) -> Tensor:
    """Codes as float32, 0..1."""
    return alpha.to(torch.float32).mul_(1 / ((1 << bits) - 1))


def codes(value: Tensor, bits: int) -> Tensor:
    """Float codes as integers: rounded (halves up), clamped; uint8 for 8 bits, else uint16."""
    whole = value.add(0.5).clamp_(0.0, (1 << bits) - 0.5)
    if bits == 8:
        return whole.to(torch.int16).to(torch.uint8)
    return whole.to(torch.int32).to(torch.int16).view(torch.uint16)


def releveled(alpha: Tensor, have: int, want: int) -> Tensor:
    """Alpha of `have` bits in `want` bits, the nearest code; itself where they are the same."""
    if have == want:
        return alpha
    low, high = (1 << have) - 1, (1 << want) - 1
    wide = alpha.to(torch.int64).mul_(2 * high).add_(low).floor_divide_(2 * low)
    return wide.to(torch.uint8) if want == 8 else wide.to(torch.int16).view(torch.uint16)


def opaque(batch: int, target: FrameFormat) -> Tensor:
    """(N, H, W) of the top code of `target`'s alpha."""
    shape, top = (batch, target.height, target.width), (1 << target.alpha) - 1
    if target.alpha == 8:
        return torch.full(shape, top, dtype=torch.uint8, device=target.device)
    signed = top if top < 1 << 15 else top - (1 << 16)
    return torch.full(shape, signed, dtype=torch.int16, device=target.device).view(torch.uint16)


def weighted(weigh: Tensor, alpha: Tensor, plain: Tensor, bits: int) -> Tensor:
    """Resampled colours from resampled products: `weigh` / `alpha`, and `plain` where alpha rounds to nothing.

    Args:
        weigh: resampled products of colour and alpha.
        alpha: resampled alpha, 0..1.
        plain: colours resampled as they lie.
        bits: of alpha.
    """
    return torch.where(alpha * ((1 << bits) - 1) < 0.5, plain, weigh / alpha)


def bounded(color: Tensor, alpha: Tensor) -> Tensor:
    """R'G'B' of `weighted`, within -4..4 where there is next to nothing: to half floats it would be infinite."""
    return torch.where(alpha < _NEXT_TO_NOTHING, color.clamp(-4, 4), color)


class WeightedRegrid:
    """`Regrid` of a picture with alpha, colours weighted by it; planar and float formats.

    Args:
        source, target, window, name: see `Regrid`.
    """

    def __init__(self, source: FrameFormat, target: FrameFormat, window: Window, name: Filter) -> None:
        self._source, self._pixels = source, source.pixels
        self._regrid = Regrid(source, target, window, name)
        lattices = plane_lattices(source.with_(alpha=0))
        self._down = ChromaFilter(lattices[0], lattices[-1], interlaced=source.interlaced)

    def __call__(self, planes: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Planes in the source's layout, alpha last, to planes in the target's."""
        bits, last = self._source.alpha, len(planes) - 1
        full = unit(planes[last], bits)
        alpha = self._regrid.plane(last, full)
        half = None if self._down.idle else self._down(full)
        out = []
        for index, plane in enumerate(planes[:last]):
            here, there = full, alpha
            if index and half is not None:
                here, there = half, self._regrid.plane(index, half)
            if plane.dim() == 4:  # R'G'B' in one tensor
                here, there = here[:, None], there[:, None]
            value = plane.to(torch.float32)
            weigh, plain = self._regrid.plane(index, value * here), self._regrid.plane(index, value)
            color = weighted(weigh, there, plain, bits)
            if plane.is_floating_point():
                out.append(bounded(color, there).to(plane.dtype))
            else:
                out.append(codes(color, self._pixels.depth))
        return (*out, codes(alpha * ((1 << bits) - 1), bits))
