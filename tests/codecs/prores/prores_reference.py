"""RDD 36 written plainly, value by value and bit by bit, for comparison; shares no code with gpupipe.

Scan orders, codebooks and their rules are retyped from the bitstream's description.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

PROGRESSIVE = [
    [0, 1, 4, 5, 16, 17, 21, 22],
    [2, 3, 6, 7, 18, 20, 23, 28],
    [8, 9, 12, 13, 19, 24, 27, 29],
    [10, 11, 14, 15, 25, 26, 30, 31],
    [32, 33, 37, 38, 45, 46, 53, 54],
    [34, 36, 39, 44, 47, 52, 55, 60],
    [35, 40, 43, 48, 51, 56, 59, 61],
    [41, 42, 49, 50, 57, 58, 62, 63],
]
"""Scan position of the coefficient in row v, column u."""


@dataclass
class Bits:
    """A bitstream as text of 0 and 1."""

    text: list[str] = field(default_factory=list)

    def put(self, value: int, length: int) -> None:
        assert 0 <= value < 1 << length or length == value == 0
        if length:
            self.text.append(format(value, f"0{length}b"))

    def unary(self, zeros: int) -> None:
        self.text.append("0" * zeros + "1")

    def bytes(self) -> bytes:
        text = "".join(self.text)
        text += "0" * (-len(text) % 8)
        return int("1" + text, 2).to_bytes(len(text) // 8 + 1, "big")[1:]


def golomb(bits: Bits, value: int, order: int) -> None:
    """Exp-Golomb of an order: zeros for every bit beyond it, then the number with its leading 1."""
    number = value + (1 << order)
    bits.put(0, number.bit_length() - order - 1)
    bits.put(number, number.bit_length())


def rice(bits: Bits, value: int, order: int) -> None:
    bits.unary(value >> order)
    bits.put(value & ((1 << order) - 1), order)


def combination(bits: Bits, value: int, last_rice_prefix: int, rice_order: int, golomb_order: int) -> None:
    """Rice codes while their prefix has at most `last_rice_prefix` zeros, exp-Golomb codes behind as many more."""
    most = (last_rice_prefix + 1) << rice_order
    if value < most:
        rice(bits, value, rice_order)
    else:
        bits.put(0, last_rice_prefix + 1)
        golomb(bits, value - most, golomb_order)


def mapped(number: int) -> int:
    """Signed to unsigned: 0, -1, 1, -2, 2 ... to 0, 1, 2, 3, 4 ..."""
    return 2 * number if number >= 0 else -2 * number - 1


def put_dc(bits: Bits, values: list[int]) -> None:
    combination(bits, mapped(values[0]), 0, 5, 6)
    before = None
    for last, value in itertools.pairwise(values):
        difference = value - last
        code = mapped(-difference if before is not None and before < 0 else difference)
        size = 3 if before is None else abs(before)
        if size == 0:
            golomb_only(bits, code, 0)
        elif size == 1:
            golomb_only(bits, code, 1)
        elif size == 2:
            combination(bits, code, 1, 2, 3)
        else:
            golomb_only(bits, code, 3)
        before = difference


def golomb_only(bits: Bits, value: int, order: int) -> None:
    """Exp-Golomb throughout, which is how the codebooks with the switch at the first prefix bit read."""
    golomb(bits, value, order)


def put_run(bits: Bits, run: int, before: int) -> None:
    if before <= 1:
        combination(bits, run, 2, 0, 1)
    elif before <= 3:
        combination(bits, run, 1, 0, 1)
    elif before == 4:
        golomb_only(bits, run, 0)
    elif before <= 8:
        combination(bits, run, 1, 1, 2)
    elif before <= 14:
        golomb_only(bits, run, 1)
    else:
        golomb_only(bits, run, 2)


def put_level(bits: Bits, magnitude: int, before: int) -> None:
    value = magnitude - 1
    if before == 1:
        combination(bits, value, 2, 0, 2)
    elif before == 2:
        combination(bits, value, 1, 0, 1)
    elif before == 3:
        combination(bits, value, 2, 0, 1)
    elif before == 4:
        golomb_only(bits, value, 0)
    elif before <= 8:
        golomb_only(bits, value, 1)
    else:
        golomb_only(bits, value, 2)


def slice_plane(blocks: list[list[list[int]]], scan: list[list[int]]) -> bytes:
    """One component of a slice. `blocks[b][v][u]` are levels; `scan[v][u]` is each one's scan position."""
    bits = Bits()
    put_dc(bits, [block[0][0] for block in blocks])
    places = {scan[v][u]: (v, u) for v in range(8) for u in range(8)}
    run, run_before, level_before = 0, 4, 2
    for position in range(1, 64):
        v, u = places[position]
        for block in blocks:
            level = block[v][u]
            if level == 0:
                run += 1
                continue
            put_run(bits, run, run_before)
            put_level(bits, abs(level), level_before)
            bits.put(int(level < 0), 1)
            run, run_before, level_before = 0, run, abs(level)
    return bits.bytes()


def alpha_plane(values: list[int]) -> bytes:
    """16-bit alpha of a slice in raster order; opaque comes before the first."""
    bits = Bits()
    last, at = 0xFFFF, 0
    while at < len(values):
        difference = (values[at] - last) % 0x10000
        if difference >= 0x8000:
            difference -= 0x10000
        if 1 <= abs(difference) <= 64:
            bits.put(0, 1)
            bits.put(abs(difference) - 1, 6)
            bits.put(int(difference < 0), 1)
        else:
            bits.put(1, 1)
            bits.put(difference % 0x10000, 16)
        last, run = values[at], 0
        at += 1
        while at < len(values) and values[at] == last:
            at, run = at + 1, run + 1
        if run == 0:
            if at < len(values):
                bits.put(1, 1)
        else:
            bits.put(0, 1)
            if run <= 15:
                bits.put(run, 4)
            else:
                bits.put(0, 4)
                bits.put(run, 11)
    return bits.bytes()


def dct(block: list[list[float]]) -> list[list[float]]:
    """The orthonormal DCT-II in two dimensions, by its definition."""

    def factor(k: int) -> float:
        return math.sqrt(1 / 8) if k == 0 else math.sqrt(2 / 8)

    def cosine(n: int, k: int) -> float:
        return math.cos((2 * n + 1) * k * math.pi / 16)

    return [
        [
            factor(u) * factor(v) * sum(block[y][x] * cosine(x, u) * cosine(y, v) for y in range(8) for x in range(8))
            for u in range(8)
        ]
        for v in range(8)
    ]


def slice_widths(macroblocks: int) -> list[int]:
    """Macroblocks of each slice of a row."""
    widths = [8] * (macroblocks // 8)
    for width in (4, 2, 1):
        if macroblocks % 8 & width:
            widths.append(width)
    return widths


def macroblock_blocks(component: int, full_chroma: bool) -> list[tuple[int, int]]:
    """(row, column) of each block of a component within a macroblock, in coding order."""
    if component == 0:
        return [(0, 0), (0, 1), (1, 0), (1, 1)]
    return [(0, 0), (1, 0), (0, 1), (1, 1)] if full_chroma else [(0, 0), (1, 0)]
