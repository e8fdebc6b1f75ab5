"""YUV to and from float R'G'B' in one pass over memory, by Triton; the torch reference is in `ops.color`.

One kernel a direction takes every integer YUV format: planes are given by pointer and strides, so a pitch, interleaved
chroma and any batch need no copy. Import this only where triton is installed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from gpupipe.ops import dither
from gpupipe.ops.components import split
from gpupipe.ops.lattice import plane_lattices
from gpupipe.ops.levels import component_levels

if TYPE_CHECKING:
    from gpupipe.color import Range
    from gpupipe.format import FrameFormat

_STEP_X = tl.constexpr(dither.STEP_X)
_STEP_Y = tl.constexpr(dither.STEP_Y)
_PHASE = tl.constexpr(dither.PHASE)
_ROWS, _COLUMNS = 4, 128
# Sizes and batch strides change neither the code nor how wide loads can be, so they make no kernel of their own.
_PLAIN = ("width", "height", "chroma_width", "chroma_height", "y_n", "c_n", "out_n", "rgb_n")


@triton.jit
def _neighbours(position, count, SHIFT: tl.constexpr, OFFSET: tl.constexpr):
    """The two chroma samples about luma `position` and the second one's weight; OFFSET is the siting in half pixels."""
    if SHIFT == 0:
        first, second, weight = position, position, position.to(tl.float32) * 0
    else:
        quarters = 2 * position - OFFSET
        first = tl.minimum(tl.maximum(quarters >> 2, 0), count - 1)
        second = tl.minimum(tl.maximum((quarters >> 2) + 1, 0), count - 1)
        weight = (quarters & 3).to(tl.float32) * 0.25
    return first, second, weight


@triton.jit
def _bilinear(ptr, top, bottom, left, right, weight_y, weight_x):
    """`top` and `bottom` are offsets of rows, `left` and `right` of columns; all of them lie inside the plane."""
    above = (
        tl.load(ptr + top + left).to(tl.float32) * (1 - weight_x) + tl.load(ptr + top + right).to(tl.float32) * weight_x
    )
    below = tl.load(ptr + bottom + left).to(tl.float32) * (1 - weight_x)
    below += tl.load(ptr + bottom + right).to(tl.float32) * weight_x
    return above * (1 - weight_y) + below * weight_y


@triton.jit(do_not_specialize=_PLAIN)
def _to_rgb(
    y_ptr, u_ptr, v_ptr, out_ptr, width, height, chroma_width, chroma_height,
    y_n, y_h, y_w, c_n, c_h, c_w, out_n, out_c, out_h, out_w,
    y_gain, y_bias, c_gain, c_bias, red_v, green_u, green_v, blue_u,
    SHIFT_X: tl.constexpr, SHIFT_Y: tl.constexpr, OFFSET_X: tl.constexpr, OFFSET_Y: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    y = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    n = tl.program_id(2).to(tl.int64)
    x_in, y_in = tl.minimum(x, width - 1), tl.minimum(y, height - 1)
    left, right, weight_x = _neighbours(x_in, chroma_width, SHIFT_X, OFFSET_X)
    top, bottom, weight_y = _neighbours(y_in, chroma_height, SHIFT_Y, OFFSET_Y)
    left, right, top, bottom = left * c_w, right * c_w, top * c_h, bottom * c_h
    u = _bilinear(u_ptr + n * c_n, top, bottom, left, right, weight_y, weight_x) * c_gain + c_bias
    v = _bilinear(v_ptr + n * c_n, top, bottom, left, right, weight_y, weight_x) * c_gain + c_bias
    luma = tl.load(y_ptr + n * y_n + y_in * y_h + x_in * y_w).to(tl.float32) * y_gain + y_bias
    out = out_ptr + n * out_n + y * out_h + x * out_w
    inside = (x < width) & (y < height)
    dtype = out_ptr.dtype.element_ty
    tl.store(out, (luma + red_v * v).to(dtype), mask=inside)
    tl.store(out + out_c, (luma + green_u * u + green_v * v).to(dtype), mask=inside)
    tl.store(out + 2 * out_c, (luma + blue_u * u).to(dtype), mask=inside)


@triton.jit
def _store(ptr, value, x, y, inside, offset, top, COMPONENT: tl.constexpr, MSB: tl.constexpr, DITHERED: tl.constexpr):
    """floor(value + offset + threshold), clamped; `value` is in codes, the thresholds are those of `ops.dither`."""
    value += offset
    if DITHERED:
        across = x.to(tl.int64) * _STEP_X + COMPONENT * _PHASE
        wave = ((across + y.to(tl.int64) * _STEP_Y) & 0xFFFFFFFF) >> 23
        value += (tl.where(wave < 256, wave, 511 - wave).to(tl.float32) + 0.5) * 0.00390625
    else:
        value += 0.5
    code = tl.minimum(tl.maximum(value, 0.0), top).to(tl.int32) << MSB
    tl.store(ptr, code.to(ptr.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=_PLAIN)
def _to_yuv(
    rgb_ptr, y_ptr, u_ptr, v_ptr, width, height, chroma_width, chroma_height,
    rgb_n, rgb_c, rgb_h, rgb_w, y_n, y_h, y_w, c_n, c_h, c_w,
    kr, kg, kb, y_scale, y_offset, u_scale, v_scale, c_offset, top,
    SHIFT_X: tl.constexpr, SHIFT_Y: tl.constexpr, OFFSET_X: tl.constexpr, OFFSET_Y: tl.constexpr,
    MSB: tl.constexpr, DITHERED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(2).to(tl.int64)
    rgb_ptr += n * rgb_n
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    y = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    at = rgb_ptr + tl.minimum(y, height - 1) * rgb_h + tl.minimum(x, width - 1) * rgb_w
    luma = kr * tl.load(at).to(tl.float32)
    luma += kg * tl.load(at + rgb_c).to(tl.float32)
    luma += kb * tl.load(at + 2 * rgb_c).to(tl.float32)
    inside = (x < width) & (y < height)
    _store(y_ptr + n * y_n + y * y_h + x * y_w, luma * y_scale, x, y, inside, y_offset, top, 0, MSB, DITHERED)

    # Each chroma sample reads its own taps: the luma pass has just brought them into the cache.
    HIGH: tl.constexpr = ROWS >> SHIFT_Y
    WIDE: tl.constexpr = COLUMNS >> SHIFT_X
    x = tl.program_id(0) * WIDE + tl.arange(0, WIDE)[None, :]
    y = tl.program_id(1) * HIGH + tl.arange(0, HIGH)[:, None]
    red = tl.zeros((HIGH, WIDE), tl.float32)
    green = tl.zeros((HIGH, WIDE), tl.float32)
    blue = tl.zeros((HIGH, WIDE), tl.float32)
    for j in tl.static_range(-SHIFT_Y if OFFSET_Y < 2 else 0, 1 + SHIFT_Y + (SHIFT_Y if OFFSET_Y > 0 else 0)):
        # The triangle, (reach - distance) / reach^2 in half pixels; written in place, as a name would make it a tensor.
        weight_y = ((2 << SHIFT_Y) - (2 * j - OFFSET_Y if 2 * j > OFFSET_Y else OFFSET_Y - 2 * j)) / (2 << 2 * SHIFT_Y)
        row = rgb_ptr + tl.minimum(tl.maximum((y << SHIFT_Y) + j, 0), height - 1) * rgb_h
        for i in tl.static_range(-SHIFT_X if OFFSET_X < 2 else 0, 1 + SHIFT_X + (SHIFT_X if OFFSET_X > 0 else 0)):
            weight_x = ((2 << SHIFT_X) - (2 * i - OFFSET_X if 2 * i > OFFSET_X else OFFSET_X - 2 * i)) / (
                2 << 2 * SHIFT_X
            )
            at = row + tl.minimum(tl.maximum((x << SHIFT_X) + i, 0), width - 1) * rgb_w
            red += weight_y * weight_x * tl.load(at).to(tl.float32)
            green += weight_y * weight_x * tl.load(at + rgb_c).to(tl.float32)
            blue += weight_y * weight_x * tl.load(at + 2 * rgb_c).to(tl.float32)
    luma = kr * red + kg * green + kb * blue
    inside = (x < chroma_width) & (y < chroma_height)
    at = n * c_n + y * c_h + x * c_w
    _store(u_ptr + at, (blue - luma) * u_scale, x, y, inside, c_offset, top, 1, MSB, DITHERED)
    _store(v_ptr + at, (red - luma) * v_scale, x, y, inside, c_offset, top, 2, MSB, DITHERED)


def _siting(format_: FrameFormat) -> dict[str, int]:
    """The kernels' constants for the chroma of a YUV format."""
    luma, chroma = plane_lattices(format_)[0], plane_lattices(format_)[-1]
    (shift_x, shift_y) = format_.pixels.chroma_shift
    offset_x, offset_y = int(2 * (chroma.x.first - luma.x.first)), int(2 * (chroma.y.first - luma.y.first))
    return {"SHIFT_X": shift_x, "SHIFT_Y": shift_y, "OFFSET_X": offset_x, "OFFSET_Y": offset_y}


def _on(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device, so make it the tensor's (on the CPU: Triton's interpreter)."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


class _Fused:
    """Sizes and levels both directions need."""

    def __init__(self, yuv: FrameFormat, range_: Range, matrix: tuple[float, float]) -> None:
        self._pixels, self._width, self._height = yuv.pixels, yuv.width, yuv.height
        self._shapes = yuv.pixels.plane_shapes(yuv.width, yuv.height)
        chroma_height, chroma_width = self._shapes[1][:2]
        self._size = (yuv.width, yuv.height, chroma_width, chroma_height)
        self._luma, self._chroma = (component_levels(yuv.pixels, range_, index) for index in (0, 1))
        self._kr, self._kb = matrix
        self._siting = _siting(yuv)

    def _grid(self, batch: int) -> tuple[int, int, int]:
        # Whole tiles of an even size: a chroma sample beyond an odd edge belongs to the tile of its luma.
        return triton.cdiv(self._width, _COLUMNS), triton.cdiv(self._height, _ROWS), batch


class ToRgb(_Fused):
    """YUV planes to one (N, 3, H, W) tensor of `dtype`.

    Args:
        yuv: format of what comes in.
        range_: its range.
        matrix: Kr and Kb.
        dtype: float16 or float32.
    """

    def __init__(self, yuv: FrameFormat, range_: Range, matrix: tuple[float, float], dtype: torch.dtype) -> None:
        super().__init__(yuv, range_, matrix)
        self._dtype = dtype
        kr, kb, words = self._kr, self._kb, 1 << yuv.pixels.msb_shift
        kg = 1 - kr - kb
        luma, chroma = self._luma, self._chroma
        y_levels = (1 / (luma.scale * words), -luma.offset / luma.scale)
        c_levels = (1 / (chroma.scale * words), -chroma.offset / chroma.scale)
        self._numbers = (
            *y_levels,
            *c_levels,
            2 * (1 - kr),
            -2 * kb * (1 - kb) / kg,
            -2 * kr * (1 - kr) / kg,
            2 * (1 - kb),
        )

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """See `ops.color.Converter`."""
        y, u, v = split(planes, self._pixels)
        if u.stride() != v.stride():
            u, v = u.contiguous(), v.contiguous()
        out = y.new_empty((y.shape[0], 3, self._height, self._width), dtype=self._dtype)
        strides = (*y.stride(), *u.stride(), *out.stride())
        with _on(y):
            _to_rgb[self._grid(y.shape[0])](
                y, u, v, out, *self._size, *strides, *self._numbers, **self._siting, ROWS=_ROWS, COLUMNS=_COLUMNS
            )
        return (out,)


class ToYuv(_Fused):
    """One (N, 3, H, W) float tensor to YUV planes.

    Args:
        yuv: format of what goes out.
        range_: its range.
        matrix: Kr and Kb.
        dithered: whether codes are dithered or rounded.
    """

    def __init__(self, yuv: FrameFormat, range_: Range, matrix: tuple[float, float], *, dithered: bool) -> None:
        super().__init__(yuv, range_, matrix)
        kr, kb, luma, chroma = self._kr, self._kb, self._luma, self._chroma
        scales = (chroma.scale * 0.5 / (1 - kb), chroma.scale * 0.5 / (1 - kr))
        self._numbers = (kr, 1 - kr - kb, kb, luma.scale, luma.offset, *scales, chroma.offset, float(luma.top))
        self._constants = {**self._siting, "MSB": yuv.pixels.msb_shift, "DITHERED": dithered}
        self._dtype = torch.uint8 if yuv.pixels.depth == 8 else torch.uint16

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """See `ops.color.Converter`."""
        rgb = planes[0]
        out = tuple(rgb.new_empty((rgb.shape[0], *shape), dtype=self._dtype) for shape in self._shapes)
        y, u, v = split(out, self._pixels)
        strides = (*rgb.stride(), *y.stride(), *u.stride())
        with _on(rgb):
            _to_yuv[self._grid(rgb.shape[0])](
                rgb, y, u, v, *self._size, *strides, *self._numbers, **self._constants, ROWS=_ROWS, COLUMNS=_COLUMNS
            )
        return out
