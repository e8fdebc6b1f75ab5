"""All faces of a batch laid over their pictures in one kernel, by Triton; the torch reference is `paste.paste`.

Each program has a piece of one picture and lays that picture's faces over it in turn, so it need not be known how many
there are, nor how large they come out: a piece that no face touches is left at once. Import this only where triton is
installed.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from gpupipe.faces.masks import AXES, NARROW, OUTLINE
from gpupipe.faces.sampling_triton import back_of, gathered, keys, taps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.faces.paste import Mask, Places

_STRIPS, _ROWS, _COLUMNS = 8, 4, 64
"""Strips of a program, one after the other, and pixels of a strip."""
_WARPS, _REGISTERS = 8, 64
"""Warps of a program: a pixel for each thread. Registers of a thread: more are of use where a face is, but then fewer
programs run side by side, and most of them have nothing to do but to find that out."""
SHAPES = {"box": 0, "ellipse": 1, "hull": 2}
"""Numbers that the kernel knows `masks.Shape` by."""
LEVELS = 4
"""Levels of a pyramid that the kernel can be given."""
_WIDE, _TALL, _NARROW = tl.constexpr(AXES[0]), tl.constexpr(AXES[1]), tl.constexpr(NARROW)
_CORNERS = tl.constexpr(len(OUTLINE))
_OUT_X, _OUT_Y = (tl.constexpr((*line, line[0])) for line in zip(*OUTLINE, strict=True))


@triton.jit
def _bounds(a, b, u, v, size):
    """First and last column and row of the picture that a crop reaches, with a pixel to spare."""
    a, b, u, v = back_of(a, b, u, v)
    middle, reach = (size - 1) * 0.5, (tl.abs(a) + tl.abs(b)) * (size * 0.5) + 1
    x, y = u + middle * (a + b), v + middle * (a - b)
    return x - reach, x + reach, y - reach, y + reach


@triton.jit
def _point(at, m, part):
    """A point of the face in its crop, -1..1, of which a pixel is a `part`."""
    x, y = tl.load(at).to(tl.float64), tl.load(at + 1).to(tl.float64)
    a, b, u, c, d, v = m
    return (u + x * a + y * b + 0.5) * part - 1, (v + x * c + y * d + 0.5) * part - 1


@triton.jit
def _inside_hull(points, m, part, x, y):
    """`masks._inside` of `masks._outline`."""
    left_x, left_y = _point(points, m, part)
    right_x, right_y = _point(points + 2, m, part)
    nose_x, nose_y = _point(points + 4, m, part)
    one_x, one_y = _point(points + 6, m, part)
    two_x, two_y = _point(points + 8, m, part)
    eyes_x, eyes_y = (left_x + right_x) * 0.5, (left_y + right_y) * 0.5
    mouth_x, mouth_y = (one_x + two_x) * 0.5, (one_y + two_y) * 0.5
    down_x, down_y = mouth_x - eyes_x, mouth_y - eyes_y
    raw = down_x * down_x + down_y * down_y
    square = tl.maximum(raw, 1e-12)
    wide = ((right_x - left_x) * down_y - (right_y - left_y) * down_x) / (2 * square)
    wide = tl.maximum(wide.to(tl.float32), _NARROW)
    away_x, away_y = x - eyes_x, y - eyes_y
    turned = (nose_x - (eyes_x + mouth_x) * 0.5) * down_y - (nose_y - (eyes_y + mouth_y) * 0.5) * down_x
    # Places in the face's own measure, across and down: there every corner is known but for the face's width.
    across = ((away_x * down_y - away_y * down_x + turned) / square).to(tl.float32)
    along = ((away_x * down_x + away_y * down_y) / square).to(tl.float32)
    inside = tl.zeros_like(across) + float("inf")
    for i in tl.static_range(_CORNERS):
        right, lower = (_OUT_X[i + 1] - _OUT_X[i]) * wide, _OUT_Y[i + 1] - _OUT_Y[i]
        beyond = (along - _OUT_Y[i]) * right - (across - _OUT_X[i] * wide) * lower
        inside = tl.minimum(inside, beyond * tl.rsqrt(right * right + lower * lower))
    return inside * tl.sqrt(raw.to(tl.float32))


@triton.jit
def _cover(points, m, part, x, y, feather, SHAPE: tl.constexpr):
    """`masks.cover`, float32, of places -1..1 in float64."""
    inside = (1 - tl.maximum(tl.abs(x), tl.abs(y))).to(tl.float32)
    if SHAPE == 1:
        wide, high = x.to(tl.float32) / _WIDE, y.to(tl.float32) / _TALL
        inside = tl.minimum(inside, (1 - tl.sqrt(wide * wide + high * high)) * _WIDE)
    if SHAPE == 2:
        inside = tl.minimum(inside, _inside_hull(points, m, part, x, y))
    t = tl.minimum(tl.maximum(inside / feather, 0.0), 1.0)
    return t * t * (3 - 2 * t)


@triton.jit
def _level(a, c, levels, FINE: tl.constexpr):
    """Of the pyramid, as fine as the frame."""
    fine = tl.sqrt(a * a + c * c) / FINE
    return tl.minimum((fine >= 2).to(tl.int32) + (fine >= 4).to(tl.int32) + (fine >= 8).to(tl.int32), levels - 1)


@triton.jit
def _taps(unit, size, pitch):
    """Where `grid_sample` (bicubic, border, align_corners=False) looks along one axis, and with which weights."""
    place = tl.minimum(tl.maximum(unit.to(tl.float32), -4.0), 4.0)
    place = ((place + 1) * size - 1) * 0.5
    first = tl.floor(place)
    return taps(first.to(tl.int32), 1, size - 1, pitch), keys(place - first)


@triton.jit
def _over(before, place, steps, rows, across, down, alpha):
    """As torch.lerp, rounded to the picture's own precision; what the mask does not reach keeps every bit."""
    face = gathered(place, steps, rows, across, down, alpha > 0)
    wide = before.to(tl.float32)
    more = face - wide
    mixed = tl.where(alpha < 0.5, wide + alpha * more, face - more * (1 - alpha))
    return tl.where(alpha > 0, mixed.to(before.dtype), before)


@triton.jit(do_not_specialize=(
    "out_ptr", "whole_ptr", "half_ptr", "quarter_ptr", "eighth_ptr", "rank_ptr", "matrix_ptr", "points_ptr",
    "valid_ptr", "feather", "opacity", "width", "height", "size", "places", "levels",
))  # fmt: skip
def _paste(
    out_ptr, whole_ptr, half_ptr, quarter_ptr, eighth_ptr, rank_ptr, matrix_ptr, points_ptr, valid_ptr,
    feather, opacity, width, height, size, places, levels,
    SHAPE: tl.constexpr, FINE: tl.constexpr, PLACES: tl.constexpr,
    STRIPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    broad = tl.cdiv(width, COLUMNS)
    left, first = (tl.program_id(0) % broad) * COLUMNS, (tl.program_id(0) // broad) * (ROWS * STRIPS)
    n = tl.program_id(1).to(tl.int64)
    # All of a picture's faces are asked for at once, since most programs have nothing else to wait for.
    there = tl.arange(0, PLACES) < places
    every = n * places + tl.arange(0, PLACES)
    valid = tl.load(valid_ptr + every, mask=there, other=0) != 0
    every = matrix_ptr + every * 6
    turn, lean = tl.load(every, mask=there, other=1.0), tl.load(every + 3, mask=there, other=0.0)
    right, down = tl.load(every + 2, mask=there, other=0.0), tl.load(every + 5, mask=there, other=0.0)
    x0, x1, y0, y1 = _bounds(turn, lean, right, down, size)
    valid = valid & (x1 >= left) & (x0 < left + COLUMNS)
    x = left + tl.arange(0, COLUMNS)[None, :]
    plane = width * height
    for strip in range(STRIPS):
        top = first + strip * ROWS
        touching = valid & (y1 >= top) & (y0 < top + ROWS)
        if tl.max(touching.to(tl.int32), axis=0) > 0:
            y = top + tl.arange(0, ROWS)[:, None]
            inside = (x < width) & (y < height)
            out = out_ptr + n * 3 * plane + y * width + x
            red = tl.load(out, mask=inside, other=0.0)
            green = tl.load(out + plane, mask=inside, other=0.0)
            blue = tl.load(out + 2 * plane, mask=inside, other=0.0)
            touched = tl.zeros((ROWS, COLUMNS), dtype=tl.int32)
            for k in range(PLACES):
                if tl.max((touching & (tl.arange(0, PLACES) == k)).to(tl.int32), axis=0) > 0:
                    place = n * places + k
                    at = matrix_ptr + place * 6
                    a, b, u = tl.load(at), tl.load(at + 1), tl.load(at + 2)
                    c, d, v = tl.load(at + 3), tl.load(at + 4), tl.load(at + 5)
                    part = 2.0 / size.to(tl.float64)
                    unit_x = (u + x.to(tl.float64) * a + y.to(tl.float64) * b + 0.5) * part - 1
                    unit_y = (v + x.to(tl.float64) * c + y.to(tl.float64) * d + 0.5) * part - 1
                    alpha = _cover(points_ptr + place * 10, (a, b, u, c, d, v), part, unit_x, unit_y, feather, SHAPE)
                    alpha = tl.where(inside, alpha * opacity, 0.0)
                    level = _level(a, c, levels, FINE)
                    source = whole_ptr
                    if level == 1:
                        source = half_ptr
                    if level == 2:
                        source = quarter_ptr
                    if level == 3:
                        source = eighth_ptr
                    side = size >> level
                    steps, across = _taps(unit_x, side, 1)
                    rows, upright = _taps(unit_y, side, side)
                    source += tl.load(rank_ptr + place) * 3 * side * side
                    red = _over(red, source, steps, rows, across, upright, alpha)
                    green = _over(green, source + side * side, steps, rows, across, upright, alpha)
                    blue = _over(blue, source + 2 * side * side, steps, rows, across, upright, alpha)
                    touched = touched | (alpha > 0).to(tl.int32)
            tl.store(out, red, mask=touched != 0)
            tl.store(out + plane, green, mask=touched != 0)
            tl.store(out + 2 * plane, blue, mask=touched != 0)


def paste(frame: torch.Tensor, levels: Sequence[torch.Tensor], places: Places, mask: Mask, fine: float) -> None:
    """As `paste.paste` of place after place, in one launch; nothing of it depends on what is seen.

    Args:
        frame: (N, 3, H, W) contiguous; changed.
        levels: 1 to `LEVELS` of them: the faces (F, 3, S, S) float32, and each halved once more.
        places: where they lie, by similarities.
        mask: see `masks.cover`.
        fine: pixels of a crop for one of the frame; of twice as many the next level is taken.
    """
    count, _, height, width = frame.shape
    matrix, points, valid, rank = (x.contiguous() for x in places)
    many = valid.shape[1]
    if not many or not len(levels[0]):
        return
    pyramid = [x.contiguous() for x in levels]
    pyramid += pyramid[:1] * (LEVELS - len(pyramid))
    launch = (triton.cdiv(width, _COLUMNS) * triton.cdiv(height, _ROWS * _STRIPS), count)
    with torch.cuda.device(frame.device) if frame.is_cuda else nullcontext():
        _paste[launch](
            frame, *pyramid, rank, matrix, points, valid.view(torch.uint8),
            max(float(mask.feather), 1e-6), float(mask.opacity), width, height, levels[0].shape[-1], many, len(levels),
            SHAPE=SHAPES[mask.shape], FINE=fine, PLACES=triton.next_power_of_2(many),
            STRIPS=_STRIPS, ROWS=_ROWS, COLUMNS=_COLUMNS, num_warps=_WARPS, maxnreg=_REGISTERS,
        )  # fmt: skip
