"""Pixel formats and the full description of a picture, known when the plan is made."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, get_args

from gpupipe.color import ColorSpec

Family = Literal["yuv", "gray", "rgb"]
Layout = Literal["planar", "semiplanar", "float"]


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """How samples lie in memory. Names are libav's where libav has the format.

    Planes as tensors, each with a leading batch dimension N:
      planar: one (N, H, W) tensor a component, uint8 or uint16 (yuv: Y, U, V; gray: Y; rgb: G, B, R as in gbrp);
      semiplanar: Y (N, H, W) and interleaved UV (N, ceil(H/2), ceil(W/2), 2);
      float: one (N, 3, H, W) tensor of R'G'B', nominal 0..1, super-white and super-black kept.
    Alpha is no part of it: see `FrameFormat.alpha`.
    """

    name: str
    family: Family
    depth: int
    """Significant bits a sample (16 for rgbf16, 32 for rgbf32)."""
    chroma_shift: tuple[int, int] = (0, 0)
    """log2 of horizontal and vertical chroma subsampling."""
    layout: Layout = "planar"
    msb_shift: int = 0
    """Bits below the least significant one: 6 for p010le, which keeps its samples at the top of the word."""

    @property
    def bytes_per_sample(self) -> int:
        """Bytes of one sample."""
        return (self.depth // 8) if self.layout == "float" else (1 if self.depth == 8 else 2)

    def plane_shapes(self, width: int, height: int) -> tuple[tuple[int, ...], ...]:
        """Shape of each plane of one picture, without the batch dimension."""
        if self.layout == "float":
            return ((3, height, width),)
        sx, sy = self.chroma_shift
        chroma = (-(-height >> sy), -(-width >> sx))
        if self.family == "gray":
            return ((height, width),)
        if self.layout == "semiplanar":
            return ((height, width), (*chroma, 2))
        return ((height, width), chroma, chroma)

    def frame_bytes(self, width: int, height: int) -> int:
        """Bytes of one picture, rows packed."""
        total = 0
        for shape in self.plane_shapes(width, height):
            size = self.bytes_per_sample
            for n in shape:
                size *= n
            total += size
        return total


def _table() -> dict[str, PixelFormat]:
    formats: list[PixelFormat] = []
    for depth in (8, 10, 12):
        suffix = "" if depth == 8 else f"{depth}le"
        formats.append(PixelFormat(f"gray{suffix}", "gray", depth))
        formats.append(PixelFormat(f"gbrp{suffix}", "rgb", depth))
        for name, shift in (("yuv420p", (1, 1)), ("yuv422p", (1, 0)), ("yuv444p", (0, 0))):
            formats.append(PixelFormat(f"{name}{suffix}", "yuv", depth, shift))
    formats.append(PixelFormat("nv12", "yuv", 8, (1, 1), "semiplanar"))
    formats.append(PixelFormat("p010le", "yuv", 10, (1, 1), "semiplanar", 6))
    formats.append(PixelFormat("p012le", "yuv", 12, (1, 1), "semiplanar", 4))
    formats.append(PixelFormat("yuv444p10msble", "yuv", 10, (0, 0), "planar", 6))
    formats.append(PixelFormat("yuv444p12msble", "yuv", 12, (0, 0), "planar", 4))
    formats.append(PixelFormat("rgbf16", "rgb", 16, layout="float"))
    formats.append(PixelFormat("rgbf32", "rgb", 32, layout="float"))
    return {f.name: f for f in formats}


PIXEL_FORMATS: dict[str, PixelFormat] = _table()


def pixel_format(name: str) -> PixelFormat | None:
    """The format of that name, None where gpupipe has no arithmetic for it; yuvj* are yuv*, since range is a tag."""
    return PIXEL_FORMATS.get(name.replace("yuvj", "yuv"))


def with_alpha(name: str) -> str | None:
    """Libav's name of the planar format with an alpha plane beside those of `name`; None where it has none."""
    twin = name.replace("yuv", "yuva").replace("gbrp", "gbrap")
    return twin if _PLANAR_ALPHA.fullmatch(twin) else None


_PLANAR_ALPHA = re.compile(r"(?:yuva4\d\dp|gbrap)(?:(?:9|10|12|14|16)le)?")


def without_alpha(name: str) -> str | None:
    """The inverse of `with_alpha`; None for any other format, packed ones and floats among them."""
    if not _PLANAR_ALPHA.fullmatch(name):
        return None
    return name.replace("yuva", "yuv").replace("gbrap", "gbrp")


FieldOrder = Literal["unknown", "progressive", "tt", "bb", "tb", "bt"]
FIELD_ORDERS: tuple[FieldOrder, ...] = get_args(FieldOrder)
"""In the order of libav's AVFieldOrder."""


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """All that a stage or a codec needs to know of the pictures it gets."""

    pixels: PixelFormat
    width: int
    height: int
    color: ColorSpec = field(default_factory=ColorSpec)
    sample_aspect: Fraction = Fraction(1)
    """Pixel aspect ratio; 0 where the source does not say."""
    field_order: FieldOrder = "progressive"
    device: str = "cpu"
    """`cpu` or `cuda:N`."""
    alpha: int = 0
    """Bits of a sample of alpha; 0 where the picture has none.

    Alpha is the last of the planes, (N, H, W), uint8 for 8 bits and else uint16: straight (colours are not multiplied
    by it), full range, 2^alpha - 1 opaque. Its depth is its own, whatever that of the picture.
    """

    @property
    def interlaced(self) -> bool:
        """Whether the picture holds two fields."""
        return self.field_order in ("tt", "bb", "tb", "bt")

    @property
    def plane_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of each plane of one picture, alpha last, without the batch dimension."""
        shapes = self.pixels.plane_shapes(self.width, self.height)
        return (*shapes, (self.height, self.width)) if self.alpha else shapes

    @property
    def area(self) -> int:
        """Pixels of a picture."""
        return self.width * self.height

    @property
    def frame_bytes(self) -> int:
        """Bytes of one picture, rows packed."""
        alpha = self.area * (1 if self.alpha == 8 else 2) if self.alpha else 0
        return self.pixels.frame_bytes(self.width, self.height) + alpha

    def with_(self, **changes: object) -> FrameFormat:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def __str__(self) -> str:
        alpha = f" with {self.alpha}-bit alpha" if self.alpha else ""
        return f"{self.pixels.name}{alpha} {self.width}x{self.height} on {self.device}"
