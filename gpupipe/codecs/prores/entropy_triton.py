"""Costs and codewords by Triton, a program a plane of a slice; the torch reference is `entropy`.

Every coefficient is looked at where it lies. What a codeword depends on, the two values before it that are not zero,
comes from one scan; prefix sums place the codewords, and atomic ORs put them into words, as neighbours share those.
Import this only where triton is installed.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from gpupipe.codecs.prores import tables
from gpupipe.codecs.prores.entropy import PLAIN_ROUNDING, ROUNDING, packed
from gpupipe.codecs.prores.rate import Cost
from gpupipe.codecs.prores.transform_triton import Transform

if TYPE_CHECKING:
    from gpupipe.codecs.prores.layout import Layout
    from gpupipe.codecs.prores.profile import Profile
    from gpupipe.format import PixelFormat

_ROUNDING, _PLAIN_ROUNDING = tl.constexpr(ROUNDING), tl.constexpr(PLAIN_ROUNDING)
_FIRST_RUN, _FIRST_LEVEL = tl.constexpr(tables.FIRST_RUN), tl.constexpr(tables.FIRST_LEVEL)
_BOOKS = [*packed(tables.DC), *packed([tables.FIRST_DC]), *packed(tables.RUN), *packed(tables.LEVEL)]
_RUN_BOOKS = tl.constexpr(len(tables.DC) + 1)
_LEVEL_BOOKS = tl.constexpr(len(tables.DC) + 1 + len(tables.RUN))
_FIRST_DC_BOOK = tl.constexpr(len(tables.DC))
_PLAIN = ("rows", "columns", "first_macroblock", "first_slice", "row_slices", "component")


@triton.jit
def _quantiser(quantisers_ptr, number):
    """Scale of a slice, and whether it is quantised plainly."""
    index = tl.load(quantisers_ptr + number).to(tl.int32)
    magnitude = tl.abs(index)
    return tl.where(magnitude <= 128, magnitude, (magnitude - 96) * 4), index < 0


@triton.jit
def _levels(coefficient, weight, scale, plain, dc):
    """Magnitude, step and level as `entropy.quantise` has them.

    The quotient is exact: half a unit above a whole numerator, float32 errs by less than what is missing to the next.
    """
    step = 4 * weight * scale
    added = tl.where(dc, step >> 1, tl.where(plain, _PLAIN_ROUNDING, (step * _ROUNDING) >> 8))
    magnitude = tl.abs(2 * coefficient + 1)
    level = ((magnitude + added).to(tl.float32) + 0.5) * (1.0 / step.to(tl.float32))
    return magnitude, step, level.to(tl.int32)


@triton.jit
def _codeword(value, book):
    """`entropy.codeword`."""
    rice, exp, switch = book & 15, (book >> 4) & 15, book >> 8
    beyond = value - (switch << rice)
    golomb = tl.maximum(beyond + (1 << exp), 1)
    top = (golomb.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
    short = (value >> rice) + 1 + rice
    code = tl.where(beyond < 0, (1 << rice) | (value & ((1 << rice) - 1)), golomb)
    return code, tl.where(beyond < 0, short, 2 * top + 1 - exp + switch)


@triton.jit
def _later(a, b):
    return tl.maximum(a, b)


@triton.jit
def _signed_dc(coefficients_ptr, block, inside, weight, scale):
    """DC levels; 0 outside."""
    coefficient = tl.load(coefficients_ptr + block, mask=inside, other=0).to(tl.int32)
    _, _, level = _levels(coefficient, weight, scale, False, True)
    return tl.where(coefficient < 0, -level, level)


@triton.jit
def _dc_codes(coefficients_ptr, weights_ptr, books_ptr, scale, BLOCKS: tl.constexpr):
    """Codes and lengths of the DC differences of a plane of a slice."""
    block = tl.arange(0, BLOCKS)
    weight = tl.load(weights_ptr + block * 0)
    value = _signed_dc(coefficients_ptr, block, block >= 0, weight, scale)
    one_before = _signed_dc(coefficients_ptr, block - 1, block >= 1, weight, scale)
    two_before = _signed_dc(coefficients_ptr, block - 2, block >= 2, weight, scale)
    delta = value - one_before
    before = tl.where(block == 1, 3, one_before - two_before)
    turned = tl.where((block > 0) & (before < 0), -delta, delta)
    book = tl.where(block == 0, _FIRST_DC_BOOK, tl.minimum(tl.abs(before), 3))
    return _codeword((turned << 1) ^ (turned >> 31), tl.load(books_ptr + book))


@triton.jit
def _ac_symbols(coefficients_ptr, weights_ptr, books_ptr, scale, plain, BLOCKS: tl.constexpr):
    """Of a plane of a slice: which coefficients have a symbol, codes and lengths of its run and of its level with sign.

    The last result is the error as `rate.Cost` has it.
    """
    offset = tl.arange(0, 64 * BLOCKS)
    coefficient = tl.load(coefficients_ptr + offset).to(tl.int32)
    weight = tl.load(weights_ptr + offset // BLOCKS)
    magnitude, step, level = _levels(coefficient, weight, scale, plain, offset < BLOCKS)
    error = (magnitude - level * step) >> 1
    coded = (level > 0) & (offset >= BLOCKS)
    key = tl.where(coded, (offset << 4) | tl.minimum(level, 9), (BLOCKS - 1) << 4)  # 0 stands for none
    latest = tl.associative_scan(key, 0, _later)
    before = tl.gather(latest, tl.maximum(offset - 1, 0), 0)
    place, magnitude = before >> 4, before & 15
    run = tl.maximum(offset - place - 1, 0)
    run_before = tl.where(magnitude > 0, tl.minimum(tl.gather(run, place, 0), 15), _FIRST_RUN)
    level_before = tl.where(magnitude > 0, magnitude, _FIRST_LEVEL)
    run_code, run_length = _codeword(run, tl.load(books_ptr + _RUN_BOOKS + run_before))
    code, length = _codeword(tl.maximum(level - 1, 0), tl.load(books_ptr + _LEVEL_BOOKS + level_before))
    negative = (coefficient < 0).to(tl.int32)
    return coded, run_code, run_length, (code << 1) | negative, length + 1, error * (error + 1)


@triton.jit
def _place(
    rows, columns, first_macroblock, first_slice, row_slices, per_macroblock, base, component,
    MACROBLOCKS: tl.constexpr, COMPONENTS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Of this program: where its coefficients begin, its slice, and its plane of a slice."""
    column, row, picture = tl.program_id(0) // COMPONENTS, tl.program_id(1), tl.program_id(2)
    which = tl.program_id(0) % COMPONENTS
    macroblock = (picture * rows + row).to(tl.int64) * columns + first_macroblock + column * MACROBLOCKS
    number = (picture * rows + row).to(tl.int64) * row_slices + first_slice + column
    return macroblock * per_macroblock + base + which * 64 * BLOCKS, number, number * 3 + component + which


@triton.jit(do_not_specialize=_PLAIN)
def _cost(
    coefficients_ptr, quantisers_ptr, weights_ptr, books_ptr, bits_ptr, error_ptr,
    rows, columns, first_macroblock, first_slice, row_slices, per_macroblock, base, component,
    MACROBLOCKS: tl.constexpr, COMPONENTS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    start, number, plane = _place(
        rows, columns, first_macroblock, first_slice, row_slices, per_macroblock, base, component,
        MACROBLOCKS, COMPONENTS, BLOCKS,
    )  # fmt: skip
    coefficients_ptr += start
    scale, plain = _quantiser(quantisers_ptr, number)
    _, length = _dc_codes(coefficients_ptr, weights_ptr, books_ptr, scale, BLOCKS)
    bits = tl.sum(length)
    coded, _, run_length, _, length, error = _ac_symbols(coefficients_ptr, weights_ptr, books_ptr, scale, plain, BLOCKS)
    bits += tl.sum(tl.where(coded, run_length + length, 0))
    tl.store(bits_ptr + plane, bits.to(tl.int64))
    tl.store(error_ptr + plane, tl.sum(error.to(tl.int64)))


@triton.jit
def _or(words_ptr, code, length, bit, inside):
    """ORs codes of up to 64 bits (int64), `length` of them, in from `bit` on; words begin with their highest bit."""
    word = words_ptr + (bit >> 5)
    past = (bit & 31) + length - 32  # bits that go beyond the first word
    first = tl.where(past <= 0, code << tl.maximum(-past, 0), code >> tl.maximum(past, 0))
    tl.atomic_or(word, first.to(tl.int32), mask=inside, sem="relaxed")
    second = tl.where(past <= 32, code << tl.maximum(32 - past, 0), code >> tl.maximum(past - 32, 0))
    tl.atomic_or(word + 1, second.to(tl.int32), mask=inside & (past > 0), sem="relaxed")
    third = code << tl.maximum(64 - past, 0)
    tl.atomic_or(word + 2, third.to(tl.int32), mask=inside & (past > 32), sem="relaxed")


@triton.jit(do_not_specialize=_PLAIN)
def _write(
    coefficients_ptr, quantisers_ptr, weights_ptr, books_ptr, starts_ptr, words_ptr,
    rows, columns, first_macroblock, first_slice, row_slices, per_macroblock, base, component,
    MACROBLOCKS: tl.constexpr, COMPONENTS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    start, number, plane = _place(
        rows, columns, first_macroblock, first_slice, row_slices, per_macroblock, base, component,
        MACROBLOCKS, COMPONENTS, BLOCKS,
    )  # fmt: skip
    coefficients_ptr += start
    scale, plain = _quantiser(quantisers_ptr, number)
    bit = tl.load(starts_ptr + plane)
    code, length = _dc_codes(coefficients_ptr, weights_ptr, books_ptr, scale, BLOCKS)
    at = bit + (tl.cumsum(length, 0) - length)
    _or(words_ptr, code.to(tl.int64), length, at, length > 0)
    bit += tl.sum(length)
    coded, run_code, run_length, code, length, _ = _ac_symbols(
        coefficients_ptr, weights_ptr, books_ptr, scale, plain, BLOCKS
    )
    both = (run_code.to(tl.int64) << length) | code
    length = tl.where(coded, run_length + length, 0)
    _or(words_ptr, both, length, bit + (tl.cumsum(length, 0) - length), coded)


COST_WARPS, WRITE_WARPS = 8, 8
"""For a plane of 32 blocks, measured on an H200 (4 and 16 are up to a tenth slower); smaller planes take fewer."""


class TritonArithmetic:
    """The three steps on a GPU; meets `coder.Arithmetic`.

    Args:
        layout: of the pictures.
        profile: for the weights.
        pixels: of the planes.
        device: of the planes.
    """

    graphable = True

    def __init__(self, layout: Layout, profile: Profile, pixels: PixelFormat, device: str) -> None:
        self._layout = layout
        self._transform = Transform(layout, pixels, device)
        scan = torch.tensor(layout.scan)
        self._weights = [torch.tensor(w)[scan].to(device, torch.int32) for w in (profile.luma, profile.chroma)]
        self._books = torch.tensor(_BOOKS, dtype=torch.int32, device=device)

    def coefficients(self, planes: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """See `coder.Arithmetic`."""
        return self._transform(planes)

    def cost(self, coefficients: torch.Tensor, quantisers: torch.Tensor) -> Cost:
        """See `coder.Arithmetic`."""
        bits = torch.empty((*quantisers.shape, 3), dtype=torch.int64, device=coefficients.device)
        error = torch.empty_like(bits)
        self._launch(_cost, COST_WARPS, coefficients, quantisers, bits, error)
        return Cost(bits, error.sum(dim=2))

    def write(
        self, coefficients: torch.Tensor, quantisers: torch.Tensor, starts: torch.Tensor, size: int
    ) -> torch.Tensor:
        """See `coder.Arithmetic`."""
        words = torch.zeros(size // 4 + 2, dtype=torch.int32, device=coefficients.device)
        self._launch(_write, WRITE_WARPS, coefficients, quantisers, starts.contiguous(), words)
        return words.view(torch.uint8).view(-1, 4).flip(1).flatten()[:size]

    def _launch(self, kernel: Any, warps: int, coefficients: torch.Tensor, *tensors: torch.Tensor) -> None:
        """Runs a kernel over all planes of all slices: luma, then both chroma components together."""
        layout = self._layout
        quantisers, *results = tensors
        for run, (component, weights) in itertools.product(layout.runs, enumerate(self._weights)):
            components, blocks = component + 1, layout.blocks[component] * run.macroblocks
            kernel[(run.count * components, layout.rows, coefficients.shape[0])](
                coefficients, quantisers, weights, self._books, *results,
                layout.rows, layout.columns, run.first_macroblock, run.first_slice, layout.row_slices,
                layout.macroblock_coefficients, component * 64 * layout.blocks[0] * run.macroblocks, component,
                MACROBLOCKS=run.macroblocks, COMPONENTS=components, BLOCKS=blocks,
                num_warps=max(1, warps * blocks // 32),
            )  # fmt: skip
