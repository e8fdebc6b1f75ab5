"""The vectorised coder against the plain reference: the same bytes for random levels, and the true DCT."""

from __future__ import annotations

import numpy as np
import prores_reference as reference
import pytest
import torch

from gpupipe.codecs.prores import alpha, entropy, tables, transform
from gpupipe.codecs.prores.coder import bytes_of
from gpupipe.codecs.prores.layout import Layout
from gpupipe.codecs.prores.profile import PROFILES

LAYOUTS = {
    "422 with slices of 8, 2, 1": Layout(16 * 11, 20, chroma_444=False),
    "444 with a slice of 4": Layout(50, 15, chroma_444=True),
    "422 fields": Layout(17, 40, chroma_444=False, fields=(1, 0)),
}
SPREADS = {"flat": 0.02, "sparse": 0.4, "busy": 3.0, "extreme": 4000.0}


def scan_of(layout: Layout) -> list[list[int]]:
    """The interlaced scan is the progressive one mirrored, but for a few places: it is checked against libav below."""
    if layout.pictures == 1:
        return reference.PROGRESSIVE
    order = tables.INTERLACED_SCAN
    return [[order.index(8 * v + u) for u in range(8)] for v in range(8)]


def random_levels(layout: Layout, spread: float, pictures: int = 2) -> np.ndarray:
    """(pictures, coefficients) Laplacian levels, Y, Cb, Cr, blocks in raster order, 64 values each."""
    rng = np.random.default_rng(len(str(spread)))
    values = rng.laplace(0, spread, (pictures, layout.coefficients))
    return np.clip(np.rint(values), -8000, 8000).astype(np.int64)


def expected_planes(levels: np.ndarray, layout: Layout) -> list[bytes]:
    """What the reference writes for one picture, plane of slice by plane of slice."""
    parts, base = [], 0
    for component in range(3):
        across = layout.blocks[component] // 2
        high, wide = layout.rows * 2, layout.columns * across
        parts.append(levels[base : base + high * wide * 64].reshape(high, wide, 8, 8).tolist())
        base += high * wide * 64
    planes = []
    for row in range(layout.rows):
        first = 0
        for width in reference.slice_widths(layout.columns):
            for component in range(3):
                across = layout.blocks[component] // 2
                order = reference.macroblock_blocks(component, layout.chroma_444)
                blocks = [
                    parts[component][2 * row + y][mb * across + x]
                    for mb in range(first, first + width)
                    for y, x in order
                ]
                planes.append(reference.slice_plane(blocks, scan_of(layout)))
            first += width
    return planes


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_random_levels_give_the_reference_s_bytes(name, spread) -> None:
    layout = LAYOUTS[name]
    raster = random_levels(layout, SPREADS[spread])
    stream = entropy.Stream(layout, PROFILES[4 if layout.chroma_444 else 3], "cpu")
    levels = torch.from_numpy(raster).index_select(1, stream.order)
    symbols = entropy.symbols(levels, stream)
    bits = entropy.plane_bits(symbols, len(raster) * stream.planes)
    sizes = (bits + 7) // 8
    ends = sizes.cumsum(0)
    words = torch.zeros(int(ends[-1]) // 4 + 2, dtype=torch.int64)
    entropy.place(symbols, (ends - sizes) * 8, words)
    data = bytes_of(words.to(torch.int32)).numpy().tobytes()
    expected = [plane for picture in raster for plane in expected_planes(picture, layout)]
    found = [data[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
    assert found == expected


def test_every_codebook_and_both_kinds_of_code_are_used() -> None:
    """What the test above proves depends on what its levels reach."""
    seen = set()
    original = reference.combination
    try:

        def spy(bits, value, last, rice_order, golomb_order) -> None:
            seen.add((last, rice_order, golomb_order, value < (last + 1) << rice_order))
            original(bits, value, last, rice_order, golomb_order)

        reference.combination = spy
        for spread in SPREADS.values():
            for layout in LAYOUTS.values():
                expected_planes(random_levels(layout, spread, 1)[0], layout)
    finally:
        reference.combination = original
    books = {(0, 5, 6), (1, 2, 3), (2, 0, 1), (1, 0, 1), (1, 1, 2), (2, 0, 2)}
    assert seen == {(*book, short) for book in books for short in (True, False)}


@pytest.mark.parametrize(("depth", "rms"), [(10, 0.6), (12, 0.33)])
def test_dct_is_the_true_one(depth, rms) -> None:
    """Against its definition in float64, in halves of a 12-bit unit: cutting alone leaves an rms of 0.29.

    The smallest quantiser step is 8 of these. Full-scale patterns may be 1e-4 of themselves away: 13-bit cosines. In
    10 bit the rows keep a fraction bit of a 10-bit sample, which adds an rms of 0.4.
    """
    rng = np.random.default_rng(3)
    top = 1 << depth - 1
    blocks = [rng.integers(-spread, spread, (8, 8)) for spread in (9, 300, top) for _ in range(6)]
    blocks += [np.full((8, 8), v) for v in (-top, top - 1)]
    y, x = np.indices((8, 8))
    blocks += [np.where((x + y) % 2 == 0, -top, top - 1), np.where((x // 2 + x) % 2 == 0, top - 1, -top)]
    got = transform.dct(torch.from_numpy(np.stack(blocks)).to(torch.int32), depth).numpy()
    squares = []
    for block, coefficients in zip(blocks, got, strict=True):
        expected = 2 * np.array(reference.dct((block << 12 - depth).tolist()))
        error = np.abs(coefficients + 0.5 - expected)  # the middle of what is cut
        assert error.max() <= max(1.0 if depth == 12 else 2.4, np.abs(expected).max() * 1e-4)
        squares.append((error**2).mean())
        assert -(1 << 15) <= coefficients.min() <= coefficients.max() < 1 << 15  # int16 holds them
    assert np.sqrt(np.mean(squares[:18])) < rms  # the patterns are whole numbers, half a unit from where they are cut


@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: p.name)
@pytest.mark.parametrize("quantiser", [-4, -1, 1, 7, 128, 129, 224])
def test_quantiser_against_exact_division(profile, quantiser) -> None:
    layout = Layout(16, 16, profile.chroma_444)
    stream = entropy.Stream(layout, profile, "cpu")
    rng = np.random.default_rng(abs(quantiser))
    coefficients = torch.from_numpy(rng.integers(-32768, 32768, (1, layout.coefficients)).astype(np.int16))
    quantisers = torch.tensor([[quantiser]])
    steps = entropy.steps_of(stream, quantisers)
    levels = entropy.quantise(2 * coefficients.long() + 1, stream, quantisers, steps)
    scale = abs(quantiser) if quantiser <= 128 else 4 * (quantiser - 96)
    weights = {0: np.array(profile.luma), 1: np.array(profile.chroma)}
    at = 0
    for component in range(3):
        blocks = layout.blocks[component]
        for position in range(64):
            step = 4 * scale * int(weights[min(component, 1)][layout.scan[position]])
            for _ in range(blocks):
                value = 2 * int(coefficients[0, at]) + 1
                rounding = entropy.PLAIN_ROUNDING if quantiser < 0 else step * entropy.ROUNDING // 256
                rounding = step // 2 if position == 0 else rounding
                expected = (abs(value) + rounding) // step
                assert int(steps[0, at]) == step
                assert int(levels[0, at]) == (expected if value >= 0 else -expected)
                at += 1


@pytest.mark.parametrize("kind", ["opaque", "ramp", "noise", "steps", "matte"])
def test_alpha_gives_the_reference_s_bytes(kind) -> None:
    layout = Layout(16 * 9 - 3, 18, chroma_444=True)
    rng = np.random.default_rng(5)
    y, x = np.indices((layout.height, layout.width))
    made = {
        "opaque": np.full_like(x, 1023),
        "ramp": x * 7 % 1024,
        "noise": rng.integers(0, 1024, x.shape),
        "steps": x // 13 * 90 % 1024,
        "matte": np.where((x - 60) ** 2 + (y - 9) ** 2 < 100, 1023, 0),
    }[kind]
    symbols = alpha.alpha_symbols(torch.from_numpy(made.astype(np.uint16))[None], 10, layout)
    bits = entropy.plane_bits(symbols, layout.slices)
    sizes = (bits + 7) // 8
    ends = sizes.cumsum(0)
    words = torch.zeros(int(ends[-1]) // 4 + 2, dtype=torch.int64)
    entropy.place(symbols, (ends - sizes) * 8, words)
    data = bytes_of(words.to(torch.int32)).numpy().tobytes()
    found = [data[end - size : end] for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]
    wide = np.pad(made << 6 | made >> 4, ((0, 32 - 18), (0, 3)), mode="edge")
    expected, left = [], 0
    for row in range(2):
        left = 0
        for width in reference.slice_widths(9):
            part = wide[16 * row : 16 * row + 16, left : left + 16 * width]
            expected.append(reference.alpha_plane(part.ravel().tolist()))
            left += 16 * width
    assert found == expected
