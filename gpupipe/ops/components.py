"""Planes taken apart into float32 components, and put together from them: levels, rounding, dither, layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.ops import dither
from gpupipe.ops.levels import UNIT, Levels, component_levels

if TYPE_CHECKING:
    from gpupipe.color import Range
    from gpupipe.format import FrameFormat, PixelFormat


def split(planes: tuple[torch.Tensor, ...], pixels: PixelFormat) -> list[torch.Tensor]:
    """Views of the components, each (N, H, W), in the order Y, Cb, Cr or R, G, B."""
    if pixels.layout == "float":
        return list(planes[0].unbind(1))
    if pixels.family == "rgb":
        green, blue, red = planes
        return [red, green, blue]
    if pixels.layout == "semiplanar":
        return [planes[0], *planes[1].unbind(-1)]
    return list(planes)


def storage_dtype(pixels: PixelFormat) -> torch.dtype:
    """The dtype arithmetic can be done in: int16 stands for uint16, for which torch has few kernels."""
    if pixels.layout == "float":
        return torch.float16 if pixels.depth == 16 else torch.float32
    return torch.uint8 if pixels.depth == 8 else torch.int16


class Reader:
    """Takes planes apart into float32 components.

    Args:
        pixels: format of the planes.
        levels_in: levels of the components wanted, from the first on (one for luma alone): what comes out is nominal.
            UNIT gives codes as they are, and float formats as they are.
        device: where the planes are.
    """

    def __init__(self, pixels: PixelFormat, levels_in: list[Levels], device: str) -> None:
        self._pixels, self._count = pixels, len(levels_in)
        self._gains: list[float] = []
        self._biases: list[torch.Tensor] = []
        for lv in levels_in:
            # Offsets are powers of two, so black and neutral come out as exactly 0 from one multiply-add.
            self._gains.append(1 / (lv.scale * (1 << pixels.msb_shift)))
            self._biases.append(torch.tensor(-lv.offset / lv.scale, dtype=torch.float32, device=device))
        self._scaled = levels_in[0] != UNIT or pixels.msb_shift > 0

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        """Components (N, H, W) in float32; those of an rgbf32 picture are views of its plane, others are new."""
        components = split(planes, self._pixels)[: self._count]
        if self._pixels.layout == "float":
            return [c.to(torch.float32) for c in components]
        out = []
        for c, gain, bias in zip(components, self._gains, self._biases, strict=True):
            value = c.to(torch.float32)
            out.append(torch.add(bias, value, alpha=gain, out=value) if self._scaled else value)
        return out


class Writer:
    """Puts float32 components together as planes.

    Integer formats: code = floor(gain * value + offset + t), t = 1/2 (round half up) or a dither threshold,
    clamped to 0..2^depth - 1. Float formats take the values as they are. A missing component is neutral chroma.

    Args:
        target: format of the planes.
        range_: their range; of no account for a float format.
        levels_in: levels of each component that comes in; UNIT where it is nominal.
        dithered: whether codes are dithered or rounded.
    """

    def __init__(self, target: FrameFormat, range_: Range, levels_in: list[Levels], *, dithered: bool) -> None:
        self._pixels, self._device = target.pixels, target.device
        self._shapes = target.pixels.plane_shapes(target.width, target.height)
        self._gains: list[float] = []
        self._biases: list[torch.Tensor] = []
        self._top = (1 << self._pixels.depth) - 1
        if self._pixels.layout == "float":
            return
        shapes = [p.shape for p in split(self._empty(0), self._pixels)]
        for index, ((_, height, width), lv_in) in enumerate(zip(shapes, levels_in, strict=False)):
            lv = component_levels(self._pixels, range_, index)
            # Limited range to limited range: a power of two and whole numbers, so both devices get the very same codes.
            gain = lv.scale / lv_in.scale
            threshold = dither.thresholds(height, width, index) if dithered else torch.tensor(0.5)
            self._gains.append(gain)
            self._biases.append((threshold + (lv.offset - lv_in.offset * gain)).to(self._device))

    def _empty(self, batch: int) -> tuple[torch.Tensor, ...]:
        dtype = storage_dtype(self._pixels)
        return tuple(torch.empty((batch, *shape), dtype=dtype, device=self._device) for shape in self._shapes)

    def allocate(self, batch: int) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
        """New planes (int16 where they end as uint16) and their components as views."""
        planes = self._empty(batch)
        return planes, split(planes, self._pixels)

    def __call__(
        self,
        components: list[torch.Tensor],
        destination: tuple[tuple[torch.Tensor, ...], list[torch.Tensor]],
        *,
        owned: bool,
    ) -> tuple[torch.Tensor, ...]:
        """Fills what `allocate` made; `owned` components may be overwritten on the way."""
        planes, views = destination
        for index, view in enumerate(views):
            if index >= len(components):
                view.fill_(1 << (self._pixels.depth - 1))
                continue
            value = components[index]
            if self._pixels.layout != "float":
                out = value if owned else None
                value = torch.add(self._biases[index], value, alpha=self._gains[index], out=out).clamp_(0, self._top)
            if value is not view:
                view.copy_(value)
        return tuple(finish(p, self._pixels) for p in planes)


def finish(plane: torch.Tensor, pixels: PixelFormat) -> torch.Tensor:
    """Turns a plane of codes in storage dtype into one as `PixelFormat` says: shifted up, uint16."""
    if plane.dtype != torch.int16:
        return plane
    if pixels.msb_shift:
        plane.bitwise_left_shift_(pixels.msb_shift)
    return plane.view(torch.uint16)
