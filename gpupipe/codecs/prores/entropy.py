"""Quantisation and entropy coding of whole batches at once; torch, on any device, integers only.

RDD 36 codes a plane of a slice as its DC differences and then the (run, level, sign) of every AC value that is not
zero. The codebook of a symbol depends on the symbol before it alone, so all codewords are known at once, prefix sums of
their lengths place them, and adding disjoint bits puts them into words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from gpupipe.codecs.prores import tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.codecs.prores.layout import Layout
    from gpupipe.codecs.prores.profile import Profile

ROUNDING = 100
"""What is added to an AC magnitude before it is cut to whole steps, in 256ths of a step: 128 would be to the nearest.

Small values are the more frequent ones, so a little less buys more than it costs at a given rate (measured on the
corpus and on grain: best between 90 and 110 in all profiles, by 0.1 to 0.5 dB)."""
PLAIN_ROUNDING = 2
"""The same in quarters of a unit for plain quantising, which a quantiser index below 0 stands for: whole units, cut to
whole steps. It is what prores_ks does."""


def packed(books: Sequence[tables.Codebook]) -> list[int]:
    """Codebooks as numbers: Rice order, exp-Golomb order and switch, four bits each."""
    return [rice | exp << 4 | switch << 8 for rice, exp, switch in books]


class Stream:
    """The order of the stream as tensors: what each coefficient of a picture belongs to.

    Args:
        layout: of the pictures.
        profile: for the weights.
        device: of the coefficients.
    """

    def __init__(self, layout: Layout, profile: Profile, device: str | torch.device) -> None:
        blocks = torch.from_numpy(layout.plane_blocks().ravel())
        sizes = blocks * 64
        planes = torch.arange(len(blocks)).repeat_interleave(sizes)
        starts = sizes.cumsum(0) - sizes
        offset = torch.arange(layout.coefficients) - starts[planes]
        scan = torch.tensor(layout.scan)[offset // blocks[planes]]
        weights = torch.tensor([profile.luma, profile.chroma])[(planes % 3 > 0).long(), scan]
        self.coefficients, self.planes = layout.coefficients, len(blocks)
        self.order = torch.from_numpy(layout.stream_order()).to(device)
        self.plane = planes.to(device)
        """(coefficients,) number of the plane of a slice: 3 * slice + component."""
        self.offset = offset.to(device)
        """(coefficients,) place within it."""
        self.dc = (offset < blocks[planes]).to(device)
        self.blocks = blocks.to(device)
        """(planes,) blocks of each, and so its DC values."""
        self.weights = weights.to(device)
        """(coefficients,) quantisation weight of each."""
        books = [*packed(tables.DC), *packed([tables.FIRST_DC])], packed(tables.RUN), packed(tables.LEVEL)
        self.dc_books, self.run_books, self.level_books = (torch.tensor(b, device=device) for b in books)
        scales = [0, *map(tables.scale_of, range(1, tables.MAX_QUANTISER + 1))]
        self.scales = torch.tensor(scales, device=device)
        """By quantiser index."""


def steps_of(stream: Stream, quantisers: torch.Tensor) -> torch.Tensor:
    """(P, slices) quantiser indices to the (P, coefficients) steps, int64, in quarters of a unit."""
    return 4 * stream.weights * stream.scales[quantisers.abs()].index_select(1, stream.plane // 3)


def quantise(values: torch.Tensor, stream: Stream, quantisers: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Levels (P, coefficients), int64, of values in quarters of a unit: DC to the nearest, AC by ROUNDING or plain."""
    plain = (quantisers < 0).index_select(1, stream.plane // 3)
    rounding = torch.where(stream.dc, steps // 2, torch.where(plain, PLAIN_ROUNDING, steps * ROUNDING // 256))
    magnitude = values.abs()
    levels = torch.div(magnitude + rounding, steps, rounding_mode="floor")
    return torch.where(values < 0, -levels, levels)


@dataclass(frozen=True, slots=True)
class Symbols:
    """Codewords in the order of the stream. A symbol has two: run and level with sign, or a DC difference and none."""

    plane: torch.Tensor
    """(symbols,) plane of a slice, counted through all pictures of the batch."""
    codes: torch.Tensor
    """(symbols, 2) int64."""
    lengths: torch.Tensor
    """(symbols, 2) int64, bits."""


def codeword(value: torch.Tensor, book: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Code and length of values >= 0, each in its own codebook: Rice up to the switch, exp-Golomb beyond."""
    rice, exp, switch = book & 15, book >> 4 & 15, book >> 8
    beyond = value - (switch << rice)
    golomb = (beyond + (1 << exp)).clamp(min=1)
    top = (golomb.float().view(torch.int32) >> 23).long() - 127  # floor(log2): the float's exponent, exact below 2^24
    short = (value >> rice) + 1 + rice
    code = torch.where(beyond < 0, (1 << rice) | (value & (1 << rice) - 1), golomb)
    return code, torch.where(beyond < 0, short, 2 * top + 1 - exp + switch)


def _before(values: torch.Tensor) -> torch.Tensor:
    """Each value's predecessor; the very first gets itself, and nobody uses that."""
    return torch.cat((values[:1], values[:-1]))


def symbols(levels: torch.Tensor, stream: Stream) -> Symbols:
    """The codewords of (P, coefficients) levels."""
    values = levels.flatten()
    at = ((levels != 0) | stream.dc).flatten().nonzero().squeeze(1)
    local = at % stream.coefficients
    value, offset, dc = values[at], stream.offset[local], stream.dc[local]
    first = _dc_codes(value, offset, stream), _run_codes(offset, dc, stream)
    second = _level_codes(value, dc, stream)
    code, length = (torch.where(dc, a, b) for a, b in zip(*first, strict=True))
    plane = at // stream.coefficients * stream.planes + stream.plane[local]
    return Symbols(
        plane,
        torch.stack((code, torch.where(dc, 0, second[0])), dim=1),
        torch.stack((length, torch.where(dc, 0, second[1])), dim=1),
    )


def _dc_codes(value: torch.Tensor, offset: torch.Tensor, stream: Stream) -> tuple[torch.Tensor, torch.Tensor]:
    """Codewords of DC values (offset below the plane's blocks); what comes out for AC is not used."""
    delta = torch.where(offset == 0, value, value - _before(value))
    before = torch.where(offset == 1, 3, _before(delta))
    turned = torch.where((offset > 0) & (before < 0), -delta, delta)
    book = torch.where(offset == 0, len(tables.DC), before.abs().clamp(max=3))
    return codeword((turned << 1) ^ (turned >> 63), stream.dc_books[book])


def _run_codes(offset: torch.Tensor, dc: torch.Tensor, stream: Stream) -> tuple[torch.Tensor, torch.Tensor]:
    """Codewords of the zeros before each AC value."""
    run = (offset - _before(offset) - 1).clamp(min=0)
    before = torch.where(_before(dc), tables.FIRST_RUN, _before(run).clamp(max=15))
    return codeword(run, stream.run_books[before])


def _level_codes(value: torch.Tensor, dc: torch.Tensor, stream: Stream) -> tuple[torch.Tensor, torch.Tensor]:
    """Codewords of AC magnitudes with the sign behind them."""
    magnitude = value.abs()
    before = torch.where(_before(dc), tables.FIRST_LEVEL, _before(magnitude).clamp(max=9))
    code, length = codeword((magnitude - 1).clamp(min=0), stream.level_books[before])
    return code << 1 | (value < 0), length + 1


def plane_bits(symbols: Symbols, planes: int) -> torch.Tensor:
    """(planes,) int64 bits of each plane of a slice."""
    bits = torch.zeros(planes, dtype=torch.int64, device=symbols.plane.device)
    return bits.index_add_(0, symbols.plane, symbols.lengths.sum(dim=1))


def place(symbols: Symbols, starts: torch.Tensor, words: torch.Tensor) -> None:
    """Puts the codewords into a bitstream.

    Args:
        symbols: in order of their planes.
        starts: (planes,) the bit at which each plane of a slice begins.
        words: int64 tensor of 32-bit words, first bit highest, zero where the codewords go.
    """
    codes, lengths = symbols.codes.flatten(), symbols.lengths.flatten()
    ends = lengths.cumsum(0)
    bits = plane_bits(symbols, len(starts))
    before = bits.cumsum(0) - bits
    plane = symbols.plane.repeat_interleave(2)
    put(codes, lengths, starts[plane] + ends - lengths - before[plane], words)


def put(codes: torch.Tensor, lengths: torch.Tensor, at: torch.Tensor, words: torch.Tensor) -> None:
    """Adds codes of up to 32 bits to `words` (see `place`) at bits `at`."""
    shifted = codes << 32 - lengths  # to the top of a 32-bit word
    word, bit = at >> 5, at & 31
    words.index_add_(0, word, shifted >> bit)
    words.index_add_(0, word + 1, (shifted << 32 - bit) & 0xFFFFFFFF)
