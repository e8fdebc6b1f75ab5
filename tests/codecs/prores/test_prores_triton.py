"""The Triton kernels against the torch path, by Triton's interpreter; `tests/gpu` does the same on a GPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from gpupipe.codecs.prores.coder import TorchArithmetic
from gpupipe.codecs.prores.layout import layout_of
from gpupipe.codecs.prores.profile import PROFILES
from gpupipe.format import PIXEL_FORMATS, FrameFormat

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = [  # pixels, size, field order, profile, quantisers
    ("yuv422p10le", (40, 30), "bb", 0, (1, 200)),
    ("yuv444p12le", (17, 15), "progressive", 5, (1, 128)),
    ("yuv444p10msble", (50, 15), "progressive", 4, (3, 31)),
]


def compare(pixels: str, size: tuple[int, int], order: str, profile: int, between: tuple[int, int]) -> None:
    """Coefficients, costs and bytes of two random pictures, in the quantisers of every slice."""
    from gpupipe.codecs.prores.entropy_triton import TritonArithmetic  # noqa: PLC0415  reads the environment

    rng = np.random.default_rng(profile)
    source = FrameFormat(PIXEL_FORMATS[pixels], *size, field_order=order)
    layout, device = layout_of(source), "cpu"
    planes = []
    for high, wide in source.pixels.plane_shapes(*size):
        values = rng.integers(0, 1 << source.pixels.depth, (2, high, wide))
        values[1] = values[1] // 16 + 300  # one picture of noise to the ends, one of long runs
        planes.append(torch.from_numpy((values << source.pixels.msb_shift).astype(np.uint16)))
    plain = TorchArithmetic(layout, PROFILES[profile], source.pixels, device)
    kernels = TritonArithmetic(layout, PROFILES[profile], source.pixels, device)
    coefficients = plain.coefficients(tuple(planes))
    assert torch.equal(kernels.coefficients(tuple(planes)), coefficients)
    quantisers = torch.from_numpy(rng.integers(*between, (len(coefficients), layout.slices)))
    quantisers *= torch.from_numpy(rng.choice([-1, 1], quantisers.shape))  # below 0 is plain quantising
    cost, same = plain.cost(coefficients, quantisers), kernels.cost(coefficients, quantisers)
    assert torch.equal(same.bits, cost.bits)
    assert torch.equal(same.error, cost.error)
    sizes = (cost.bits + 7) // 8
    starts = 8 * (sizes.flatten().cumsum(0) - sizes.flatten()).view(sizes.shape) + 24
    room = int(sizes.sum() + 3 + 3) // 4 * 4
    written = plain.write(coefficients, quantisers, starts, room)
    assert written.any()
    assert torch.equal(kernels.write(coefficients, quantisers, starts, room), written)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernels_by_the_interpreter(by_the_interpreter: Callable[[], None]) -> None:
    by_the_interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernels_compile_for_a_gpu(by_the_compiler: Callable[[str], None]) -> None:
    """To machine code of compute capability 9.0, which needs no GPU: what the interpreter lets pass may not compile."""
    program = """
from gpupipe.codecs.prores import entropy_triton, transform_triton
pointers = dict(plane_ptr="*u16", place_ptr="*i32", out_ptr="*i16", coefficients_ptr="*i16", quantisers_ptr="*i64",
    weights_ptr="*i32", books_ptr="*i32", bits_ptr="*i64", error_ptr="*i64", starts_ptr="*i64", words_ptr="*i32")
def make(kernel, **constants):
    compiled(kernel, constants, pointers)
for blocks in (2, 32):
    make(transform_triton._transform, BLOCKS=blocks, ACROSS=1 if blocks == 2 else 2, BY_COLUMN=False, PICTURES=2,
        FIRST_PARITY=1, DOWN=0, MIDDLE=512, MACROBLOCKS=blocks // 4 or 1, FIRST=12, SECOND=14)
    for kernel in (entropy_triton._cost, entropy_triton._write):
        make(kernel, MACROBLOCKS=blocks // 4 or 1, COMPONENTS=1, BLOCKS=blocks)
"""
    by_the_compiler(program)


if __name__ == "__main__":
    for case in CASES:
        compare(*case)
