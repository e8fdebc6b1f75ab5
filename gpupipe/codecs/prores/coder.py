"""Frames in, coded frames out: the steps of the encoder in their order, on either device."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

import torch

from gpupipe.codecs.prores import alpha, entropy, frame, transform
from gpupipe.codecs.prores import rate as rates
from gpupipe.codecs.prores.layout import layout_of

if TYPE_CHECKING:
    from gpupipe.codecs.prores.layout import Layout
    from gpupipe.codecs.prores.profile import Profile
    from gpupipe.format import FrameFormat, PixelFormat

Planes = tuple[torch.Tensor, ...]


class Arithmetic(Protocol):
    """The three steps that touch every coefficient. Torch and Triton give the same integers."""

    graphable: bool
    """Whether they give their work to a GPU without waiting for it."""

    def coefficients(self, planes: Planes) -> torch.Tensor:
        """(N, H, W) planes to (P, coefficients) int16, see `transform.coefficients`."""
        ...

    def cost(self, coefficients: torch.Tensor, quantisers: torch.Tensor) -> rates.Cost:
        """Bits and squared error of (P, slices) int64 quantiser indices."""
        ...

    def write(
        self, coefficients: torch.Tensor, quantisers: torch.Tensor, starts: torch.Tensor, size: int
    ) -> torch.Tensor:
        """A uint8 buffer of `size` bytes (a multiple of 4) with the planes of slices from bits (P, slices, 3) on."""
        ...


class TorchArithmetic:
    """Plain torch on any device; meets `Arithmetic`."""

    graphable = False  # how many symbols there are decides shapes

    def __init__(self, layout: Layout, profile: Profile, pixels: PixelFormat, device: str) -> None:
        self._layout, self._pixels = layout, pixels
        self._stream = entropy.Stream(layout, profile, device)

    def coefficients(self, planes: Planes) -> torch.Tensor:
        """See `Arithmetic`."""
        return transform.coefficients(planes, self._pixels, self._layout, self._stream.order)

    def _symbols(self, coefficients: torch.Tensor, quantisers: torch.Tensor) -> tuple[entropy.Symbols, torch.Tensor]:
        steps = entropy.steps_of(self._stream, quantisers)
        values = 2 * coefficients.long() + 1
        levels = entropy.quantise(values, self._stream, quantisers, steps)
        error = ((values - levels * steps) ** 2 - 1) // 4
        return entropy.symbols(levels, self._stream), error

    def cost(self, coefficients: torch.Tensor, quantisers: torch.Tensor) -> rates.Cost:
        """See `Arithmetic`."""
        symbols, error = self._symbols(coefficients, quantisers)
        bits = entropy.plane_bits(symbols, len(coefficients) * self._stream.planes)
        total = torch.zeros(quantisers.shape, dtype=torch.int64, device=coefficients.device)
        total.index_add_(1, self._stream.plane // 3, error)
        return rates.Cost(bits.view(*quantisers.shape, 3), total)

    def write(
        self, coefficients: torch.Tensor, quantisers: torch.Tensor, starts: torch.Tensor, size: int
    ) -> torch.Tensor:
        """See `Arithmetic`."""
        words = torch.zeros(size // 4 + 2, dtype=torch.int64, device=coefficients.device)
        entropy.place(self._symbols(coefficients, quantisers)[0], starts.flatten(), words)
        return bytes_of(words.to(torch.int32))[:size]


def bytes_of(words: torch.Tensor) -> torch.Tensor:
    """32-bit words, first bit highest, to a uint8 buffer."""
    return words.view(torch.uint8).view(-1, 4).flip(1).flatten()


@dataclass(frozen=True, slots=True)
class Coded:
    """A coded batch on its device."""

    data: torch.Tensor
    """uint8; frame n lies at `frames[n] .. frames[n] + sizes[n]`."""
    frames: list[int]
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A batch with its quantisers, before it is known on the host how large it will be."""

    coefficients: torch.Tensor
    quantisers: torch.Tensor
    placed: frame.Placement
    alpha: entropy.Symbols | None


class Coder:
    """Codes batches of one format.

    Args:
        source: of the frames; `device` says where they are and the work is done.
        profile: one of `profile.PROFILES`.
        quantiser: of every slice; None to keep to the profile's rate.
        rate: frames a second, for the header.
        frame_bytes: instead of the profile's.
        arithmetic: instead of what suits the device.
    """

    def __init__(
        self,
        source: FrameFormat,
        profile: Profile,
        quantiser: int | None = None,
        *,
        rate: Fraction = Fraction(0),
        frame_bytes: int | None = None,
        arithmetic: Arithmetic | None = None,
    ) -> None:
        self._source, self._profile, self._quantiser, self._rate = source, profile, quantiser, rate
        self._layout = layout_of(source)
        self.frame_bytes = allowed = frame_bytes or profile.frame_bytes(self._layout.macroblocks)
        self._limits = rates.limits_of(
            self._layout, profile.finest, allowed - frame.overhead(self._layout, 3), source.device
        )
        self._headers: dict[bool, torch.Tensor] = {}
        self._arithmetic = arithmetic or arithmetic_for(self._layout, profile, source)
        self.graphable = self._arithmetic.graphable
        """Whether neither `choose` nor `code` waits for the device, where there is no alpha."""

    def choose(self, planes: Planes) -> Chosen:
        """Transform and quantisers of (N, H, W) planes Y, Cb, Cr and, in 4444, alpha where there is a fourth.

        On CUDA this gives work to the current stream and does not wait.
        """
        layout, coefficients = self._layout, self._arithmetic.coefficients(planes)
        symbols = None
        if len(planes) > 3:
            symbols = alpha.alpha_symbols(planes[3], self._source.alpha or self._source.pixels.depth, layout)
        cost = partial(self._arithmetic.cost, coefficients)
        if self._quantiser is not None:
            quantisers = rates.fixed(self._quantiser, layout, coefficients)
            bits = cost(quantisers).bits
        else:
            plain = cost(rates.fixed(-self._profile.finest, layout, coefficients))
            may_take = rates.allowance(plain, layout, self._limits)
            quantisers, bits = rates.choose(cost, layout, self._limits, may_take, rates.quiet(plain, self._limits))
        sizes = (bits + 7) // 8
        if symbols is not None:
            more = entropy.plane_bits(symbols, quantisers.numel()).view(*quantisers.shape, 1)
            sizes = torch.cat((sizes, (more + 7) // 8), dim=2)
        return Chosen(coefficients, quantisers, frame.arrange(sizes, layout), symbols)

    def write(self, chosen: Chosen) -> Coded:
        """The coded batch; waits until its sizes are known."""
        frames, sizes = self.extents(chosen)
        return Coded(self.code(chosen, -(-(frames[-1] + sizes[-1]) // 4) * 4), frames, sizes)

    def extents(self, chosen: Chosen) -> tuple[list[int], list[int]]:
        """First byte and size of each frame; waits for them."""
        frames, sizes = torch.stack((chosen.placed.frames, chosen.placed.frame_bytes)).tolist()
        return frames, sizes

    def code(self, chosen: Chosen, room: int) -> torch.Tensor:
        """The bytes of a batch in a buffer of `room`, a multiple of 4 that holds them all; does not wait."""
        placed = chosen.placed
        starts = placed.planes[:, :, :3] * 8
        data = self._arithmetic.write(chosen.coefficients, chosen.quantisers, starts, room)
        if chosen.alpha is not None:
            words = torch.zeros(room // 4 + 2, dtype=torch.int64, device=data.device)
            entropy.place(chosen.alpha, placed.planes[:, :, 3].flatten() * 8, words)
            data = data | bytes_of(words.to(torch.int32))[:room]
        frame.write_headers(data, placed, chosen.quantisers, self._header(alpha=chosen.alpha is not None))
        return data

    def _header(self, *, alpha: bool) -> torch.Tensor:
        if alpha not in self._headers:
            header = frame.frame_header(self._source, self._rate, self._layout, self._profile, alpha=alpha)
            self._headers[alpha] = torch.frombuffer(bytearray(header), dtype=torch.uint8).to(self._source.device)
        return self._headers[alpha]


def arithmetic_for(layout: Layout, profile: Profile, source: FrameFormat) -> Arithmetic:
    """Triton's kernels on a GPU where triton is installed, torch otherwise; the bytes are the same."""
    if source.device != "cpu" and find_spec("triton") is not None:
        from gpupipe.codecs.prores.entropy_triton import TritonArithmetic  # noqa: PLC0415

        return TritonArithmetic(layout, profile, source.pixels, source.device)
    return TorchArithmetic(layout, profile, source.pixels, source.device)
