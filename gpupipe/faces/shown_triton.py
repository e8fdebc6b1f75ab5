"""A picture made as small as the detector wants it, in one pass, by Triton; the torch reference is in `detect`.

Torch clamps, scales, interpolates and pads in turn, each a pass over float32 copies of whole pictures. Import this only
where triton is installed.
"""

from __future__ import annotations

from contextlib import nullcontext
from math import ceil

import torch
import triton
import triton.language as tl

_ROWS, _COLUMNS = 4, 64
"""Pixels of a program."""
_AT_ONCE = 4
"""Pixels of a row that are asked for together."""


@triton.jit
def _weight(index, away, tall, end):
    """A tent's, of the pixel `index` that lies `away` from where its top is."""
    return tl.where(index < end, tl.maximum(1 - tl.abs(away) * tall, 0.0), 0.0)


@triton.jit(do_not_specialize=(
    "in_ptr", "out_ptr", "width", "height", "in_n", "in_c", "in_h", "in_w", "wide", "high", "full_w", "full_h",
    "taps_x", "taps_y",
))  # fmt: skip
def _shown(
    in_ptr, out_ptr, width, height, in_n, in_c, in_h, in_w, wide, high, full_w, full_h, taps_x, taps_y,
    AT_ONCE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    x = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    y = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    n = tl.program_id(2).to(tl.int64)
    ratio_x, ratio_y = width.to(tl.float64) / wide, height.to(tl.float64) / high
    reach_x, reach_y = tl.maximum(ratio_x, 1.0), tl.maximum(ratio_y, 1.0)
    tall_x, tall_y = (1 / reach_x).to(tl.float32), (1 / reach_y).to(tl.float32)
    # Centres are in float64: a pixel of 7680 is known to less than a thousandth in float32.
    centre_x, centre_y = ratio_x * (x.to(tl.float64) + 0.5) - 0.5, ratio_y * (y.to(tl.float64) + 0.5) - 0.5
    left = tl.maximum(tl.floor(centre_x - reach_x + 1), 0.0).to(tl.int32)
    top = tl.maximum(tl.floor(centre_y - reach_y + 1), 0.0).to(tl.int32)
    away_x, away_y = (left - centre_x).to(tl.float32), (top - centre_y).to(tl.float32)
    inside = (x < wide) & (y < high)
    place = in_ptr + n * in_n
    red = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    green, blue = red, red
    sum_x, sum_y = tl.zeros((1, COLUMNS), dtype=tl.float32), tl.zeros((ROWS, 1), dtype=tl.float32)
    tap = 0
    while tap < taps_x:
        sum_x += _weight(left + tap, away_x + tap, tall_x, width)
        tap += 1
    tap = 0
    while tap < taps_y:
        down = _weight(top + tap, away_y + tap, tall_y, height)
        sum_y += down
        row = place + tl.minimum(top + tap, height - 1) * in_h
        first = 0
        while first < taps_x:
            for j in tl.static_range(AT_ONCE):
                column = left + (first + j)
                both = down * _weight(column, away_x + (first + j), tall_x, width)
                needed = inside & (both > 0)
                at = row + tl.minimum(column, width - 1) * in_w
                value = tl.load(at, mask=needed, other=0.0).to(tl.float32)
                red += tl.minimum(tl.maximum(value, 0.0), 1.0) * both
                value = tl.load(at + in_c, mask=needed, other=0.0).to(tl.float32)
                green += tl.minimum(tl.maximum(value, 0.0), 1.0) * both
                value = tl.load(at + 2 * in_c, mask=needed, other=0.0).to(tl.float32)
                blue += tl.minimum(tl.maximum(value, 0.0), 1.0) * both
            first += AT_ONCE
        tap += 1
    share = tl.where(inside, 255 / tl.where(inside, sum_x * sum_y, 1.0), 0.0)
    out = out_ptr + n * 3 * full_h * full_w + y * full_w + x
    within = (x < full_w) & (y < full_h)
    tl.store(out, red * share, mask=within)
    tl.store(out + full_h * full_w, green * share, mask=within)
    tl.store(out + 2 * full_h * full_w, blue * share, mask=within)


def shown(rgb_nchw: torch.Tensor, size: tuple[int, int], full: tuple[int, int]) -> torch.Tensor:
    """As `detect.shown`: (N, 3, h, w) float32 0..255, black beyond `size`.

    The weights are those of `interpolate` (bilinear, antialias=True, align_corners=False): a tent of as many pixels'
    half width as one becomes of, at least one, that is cut off at the edges and adds up to one.

    Args:
        rgb_nchw: (N, 3, H, W) float16 or float32, in any strides.
        size: height and width of the picture as scaled.
        full: height and width with the black beside it.
    """
    count, _, height, width = rgb_nchw.shape
    out = torch.empty((count, 3, *full), dtype=torch.float32, device=rgb_nchw.device)
    taps = [ceil(2 * max(old / new, 1)) for old, new in zip((width, height), (size[1], size[0]), strict=True)]
    launch = (triton.cdiv(full[1], _COLUMNS), triton.cdiv(full[0], _ROWS), count)
    with torch.cuda.device(out.device) if out.is_cuda else nullcontext():
        _shown[launch](
            rgb_nchw, out, width, height, *rgb_nchw.stride(), size[1], size[0], full[1], full[0], *taps,
            AT_ONCE=_AT_ONCE, ROWS=_ROWS, COLUMNS=_COLUMNS,
        )  # fmt: skip
    return out
