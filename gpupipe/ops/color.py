"""Conversion between any two pixel formats of a picture of the same size.

What has to be done is decided once, from the two formats; see `Converter.kind`. The arithmetic is that of ITU-T H.273
(equations 20 to 28 for levels, 38 to 43 for the matrix), in float32 on both devices. Chroma siting: `ops.chroma`;
rounding and dither: `ops.components`. On CUDA YUV to and from float R'G'B' goes through one Triton kernel, and from one
matrix to another through two.

Error of fp16 storage: a value in 0.5..1 is rounded by at most 2^-12, that is 0.06 code values in 8 bit, 0.22 in 10 bit
and 0.86 in 12 bit limited range (twice that for super-white, 1..2). YUV -> rgbf16 -> YUV of 4:4:4 material comes back
exact in 8 bit (within 1 if dithered), within 1 in 10 bit, within 2 in 12 bit (3 if dithered); through rgbf32, exact.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import torch

from gpupipe.color import LUMA_COEFFICIENTS, Matrix, Range
from gpupipe.errors import PlanError
from gpupipe.ops.alpha import opaque, releveled
from gpupipe.ops.chroma import ChromaFilter
from gpupipe.ops.components import Reader, Writer, finish, split, storage_dtype
from gpupipe.ops.lattice import plane_lattices
from gpupipe.ops.levels import UNIT, component_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpupipe.format import FrameFormat

Planes = tuple[torch.Tensor, ...]
Components = list[torch.Tensor]
Kind = Literal["identity", "rearrange", "levels", "matrix"]


def _same(one: Matrix, other: Matrix) -> bool:
    """Whether two matrices are the same arithmetic: BT.601 has a tag for 525 lines and one for 625."""
    return one == other or (one in LUMA_COEFFICIENTS and LUMA_COEFFICIENTS[one] == LUMA_COEFFICIENTS.get(other))


class Converter:
    """Turns planes of `source` into planes of `target`; a pure function, fit for capture in a CUDA Graph.

    A Triton kernel compiles at its first call: call once, with planes of the same strides, before capture.

    Args:
        source: what comes in. Tags that are not said are filled in by `ColorSpec.resolved`, which looks at the size: a
            chain that changes the size resolves them once, at its start.
        target: what goes out; of the same size and on the same device. Its tags say what to convert to, so leave them
            as the source's where only the pixel format should change. Transfer and primaries are not converted.
        dither: spread the rounding error by ordered dither where the depth drops (a float format counts as deep);
            otherwise, and where it does not drop, codes are rounded to the nearest.

    Raises:
        PlanError: R'G'B' is needed and the matrix is not one of LUMA_COEFFICIENTS.
        ValueError: sizes or devices differ.
    """

    kind: Kind
    """`identity` returns its very argument; `rearrange` moves bits and samples, exactly; `levels` changes depth, range
    or chroma sampling, without R'G'B'; `matrix` goes through R'G'B'."""
    kernel: Literal["torch", "triton"]
    """What computes it."""

    def __init__(self, source: FrameFormat, target: FrameFormat, *, dither: bool = True) -> None:
        size = (source.width, source.height)
        if size != (target.width, target.height) or source.device != target.device:
            raise ValueError(f"cannot convert {source} to {target}: same size and device wanted")
        self._alpha, self._whole = source.alpha, target
        self.source, self.target = source, target = source.with_(alpha=0), target.with_(alpha=0)
        self._in = source.color.resolved(source.pixels.family, *size)[0]
        self._out = target.color.resolved(target.pixels.family, *size)[0]
        self._dithered = dither and target.pixels.depth < source.pixels.depth
        luma, chroma_in, chroma_out = plane_lattices(source)[0], plane_lattices(source)[-1], plane_lattices(target)[-1]
        self._across = ChromaFilter(chroma_in, chroma_out, interlaced=source.interlaced)
        self._up = ChromaFilter(chroma_in, luma, interlaced=source.interlaced)
        self._down = ChromaFilter(luma, chroma_out, interlaced=source.interlaced)
        self.kind, self.kernel = self._decide(), "torch"
        self._run = self._build()

    def __call__(self, planes: Planes) -> Planes:
        """Converts planes (as `PixelFormat` says, of any strides and any N) without waiting for the device.

        Alpha, the last plane where the source has it, gets the target's depth, or is left out; where only the target
        has it, it is opaque.
        """
        made, bits = self._run(planes[:-1] if self._alpha else planes), self._whole.alpha
        if not bits:
            return made
        return (*made, releveled(planes[-1], self._alpha, bits) if self._alpha else opaque(len(made[0]), self._whole))

    def _decide(self) -> Kind:
        a, b = self.source.pixels, self.target.pixels
        if a.family != "gray":  # gray has no chroma, so any matrix is its own
            if not _same(self._in.matrix, self._out.matrix):
                return "matrix"
            if b.family == "gray":
                return "levels"
        if a.family != b.family or a.depth != b.depth or (a.layout == "float") != (b.layout == "float"):
            return "levels"
        if not self._across.idle or (self._in.range != self._out.range and a.layout != "float"):
            return "levels"
        return "identity" if a == b else "rearrange"

    def _build(self) -> Callable[[Planes], Planes]:
        if self.kind == "identity":
            return lambda planes: planes
        a, b = self.source.pixels, self.target.pixels
        if self.kind == "matrix":
            self._kr_in, self._kb_in = self._coefficients(a.family, self._in.matrix)
            self._kr_out, self._kb_out = self._coefficients(b.family, self._out.matrix)
            fused = self._fused()
            if fused is not None:
                self.kernel = "triton"
                return fused
        levels_in = [component_levels(a, self._in.range or Range.FULL, index) for index in range(3)]
        if self.kind == "levels" and "gray" in (a.family, b.family):
            levels_in = levels_in[:1]
        # Between integer formats of one matrix codes become codes by a single multiply-add.
        direct = self.kind == "levels" and "float" not in (a.layout, b.layout)
        self._read = Reader(a, [UNIT] * len(levels_in) if direct else levels_in, self.source.device)
        come = levels_in if direct else [UNIT] * 3
        come = come * 3 if b.family == "rgb" else come
        self._write = Writer(self.target, self._out.range or Range.FULL, come, dithered=self._dithered)
        return {"rearrange": self._rearrange, "levels": self._relevel, "matrix": self._through_rgb}[self.kind]

    def _coefficients(self, family: str, matrix: Matrix) -> tuple[float, float]:
        if family == "rgb":
            return 0.0, 0.0
        if matrix not in LUMA_COEFFICIENTS:
            known = ", ".join(m.name.lower() for m in LUMA_COEFFICIENTS)
            raise PlanError(
                f"no conversion between matrix {matrix.name.lower()} and R'G'B'",
                where=f"{self.source} to {self.target}",
                hint=f"matrices that can be converted: {known}",
            )
        return LUMA_COEFFICIENTS[matrix]

    def _fused(self) -> Callable[[Planes], Planes] | None:
        """Triton kernels for this pair, where there are any and they can run; two for YUV to YUV, float32 between."""
        a, b = self.source.pixels, self.target.pixels
        reads = a.family == "yuv" and not self._up.by_field
        writes = b.family == "yuv" and not self._down.by_field
        ends = (reads or a.layout == "float") and (writes or b.layout == "float") and (reads or writes)
        if not ends or not self.source.device.startswith("cuda") or find_spec("triton") is None:
            return None
        from gpupipe.ops.color_triton import ToRgb, ToYuv  # noqa: PLC0415  (there is no triton on a CPU-only machine)

        chain: list[Callable[[Planes], Planes]] = []
        if reads:
            between = storage_dtype(b) if b.layout == "float" else torch.float32
            chain.append(ToRgb(self.source, self._in.range or Range.LIMITED, (self._kr_in, self._kb_in), between))
        if writes:
            matrix = (self._kr_out, self._kb_out)
            chain.append(ToYuv(self.target, self._out.range or Range.LIMITED, matrix, dithered=self._dithered))
        return chain[0] if len(chain) == 1 else lambda planes: chain[1](chain[0](planes))

    def _rearrange(self, planes: Planes) -> Planes:
        """Moves samples between planes and bits within their words; every code stays what it is."""
        a, b = self.source.pixels, self.target.pixels
        out, views = self._write.allocate(planes[0].shape[0])
        for view, component in zip(views, split(planes, a), strict=True):
            if component.dtype == torch.uint16:
                code = component.view(torch.int16)
                if a.msb_shift:  # an arithmetic shift: the mask takes the copies of the top bit away
                    code = code.bitwise_right_shift(a.msb_shift).bitwise_and_((1 << a.depth) - 1)
                view.copy_(code)
            else:
                view.copy_(component)
        return tuple(finish(plane, b) for plane in out)

    def _relevel(self, planes: Planes) -> Planes:
        """Depth, range, chroma sampling; luma stands for R, G and B alike where gray becomes RGB."""
        components = self._read(planes)
        owned = self.source.pixels.layout != "float"
        if self.target.pixels.family == "yuv":
            components[1:] = [self._across(c) for c in components[1:]]
        elif self.target.pixels.family == "rgb" and len(components) == 1:
            components, owned = components * 3, False
        return self._write(components, self._write.allocate(planes[0].shape[0]), owned=owned)

    def _through_rgb(self, planes: Planes) -> Planes:
        destination = self._write.allocate(planes[0].shape[0])
        components = self._read(planes)
        if self.source.pixels.family == "yuv":
            in_place = destination[1] if self.target.pixels.name == "rgbf32" else (None, None, None)
            components = self._to_rgb(components, in_place)
        if self.target.pixels.family == "yuv":
            components = self._from_rgb(components)
        elif self.target.pixels.family == "gray":
            components = [self._luma(components)]
        return self._write(components, destination, owned=True)

    def _to_rgb(self, yuv: Components, out: Sequence[torch.Tensor | None]) -> Components:
        """H.273 equations 38 to 40, inverted; `yuv` is consumed. Nothing is clamped."""
        kr, kb = self._kr_in, self._kb_in
        y, u, v = yuv[0], self._up(yuv[1]), self._up(yuv[2])
        red = torch.add(y, v, alpha=2 * (1 - kr), out=out[0])
        blue = torch.add(y, u, alpha=2 * (1 - kb), out=out[2])
        green = torch.add(y, u, alpha=-2 * kb * (1 - kb) / (1 - kr - kb), out=y if out[1] is None else out[1])
        green.add_(v, alpha=-2 * kr * (1 - kr) / (1 - kr - kb))
        return [red, green, blue]

    def _luma(self, rgb: Components) -> torch.Tensor:
        kr, kb = self._kr_out, self._kb_out
        return torch.mul(rgb[1], 1 - kr - kb).add_(rgb[0], alpha=kr).add_(rgb[2], alpha=kb)

    def _from_rgb(self, rgb: Components) -> Components:
        """H.273 equations 38 to 40; `rgb` is left as it is."""
        y = self._luma(rgb)
        u, v = self._down(rgb[2] - y), self._down(rgb[0] - y)
        return [y, u.mul_(0.5 / (1 - self._kb_out)), v.mul_(0.5 / (1 - self._kr_out))]
