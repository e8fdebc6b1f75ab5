"""Weights against their defining integrals and sums, and the two ways of applying them against float64."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from gpupipe.ops.kernels import bands, kernel, taps
from gpupipe.ops.lattice import AxisMap
from gpupipe.ops.resample import Axis, Resampler

FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "area")
CASES = [(97, 64), (5, 40), (1, 7), (7, 1), (1000, 3), (30, 30)]


def dense(axis: AxisMap, name: str) -> np.ndarray:
    index, weight = taps(axis, name)
    matrix = np.zeros((axis.target, axis.source))
    for k in range(axis.target):
        np.add.at(matrix[k], index[k], weight[k])
    return matrix


def centred(source: int, target: int) -> AxisMap:
    step = Fraction(source, target)
    return AxisMap(source, target, (step - 1) / 2, step)


def test_kernels_are_what_they_are_called() -> None:
    x = np.linspace(-4, 4, 801)
    lanczos = [np.sinc(t) * np.sinc(t / 3) if abs(t) < 3 else 0.0 for t in x]
    b, c = 0.0, 0.5  # Mitchell and Netravali's general form
    near = lambda t: ((12 - 9 * b - 6 * c) * t**3 + (-18 + 12 * b + 6 * c) * t**2 + 6 - 2 * b) / 6  # noqa: E731
    far = lambda t: ((-b - 6 * c) * t**3 + (6 * b + 30 * c) * t**2 + (-12 * b - 48 * c) * t + 8 * b + 24 * c) / 6  # noqa: E731
    bicubic = [near(abs(t)) if abs(t) < 1 else far(abs(t)) if abs(t) < 2 else 0.0 for t in x]
    np.testing.assert_allclose(kernel("lanczos", x), lanczos, atol=1e-12)
    np.testing.assert_allclose(kernel("bicubic", x), bicubic, atol=1e-12)
    np.testing.assert_allclose(kernel("bilinear", x), np.interp(x, [-1, 0, 1], [0, 1, 0]), atol=1e-12)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("source", "target"), CASES)
def test_a_flat_picture_stays_flat(name: str, source: int, target: int) -> None:
    index, weight = taps(centred(source, target), name)
    np.testing.assert_allclose(weight.sum(axis=1), 1.0, atol=1e-12)
    assert index.min() >= 0
    assert index.max() < source


@pytest.mark.parametrize(("source", "target"), CASES)
def test_area_is_the_mean_of_what_a_pixel_covers(source: int, target: int) -> None:
    values = np.random.default_rng(3).random(source)
    integral = np.concatenate([[0.0], np.cumsum(values)])  # of the piecewise constant picture
    edges = np.linspace(0, source, target + 1)
    expected = np.diff(np.interp(edges, np.arange(source + 1), integral)) * target / source
    np.testing.assert_allclose(dense(centred(source, target), "area") @ values, expected, atol=1e-12)


def test_beyond_the_edge_lies_the_mirrored_picture() -> None:
    values = np.random.default_rng(4).random(11)
    axis = AxisMap(11, 6, Fraction(-2), Fraction(1, 3))
    wide = AxisMap(33, 6, Fraction(9), Fraction(1, 3))
    mirrored = np.concatenate([values[::-1], values, values[::-1]])
    np.testing.assert_allclose(dense(axis, "lanczos") @ values, dense(wide, "lanczos") @ mirrored, atol=1e-12)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("source", "target"), CASES)
def test_blocks_are_the_same_matrix(name: str, source: int, target: int) -> None:
    axis = centred(source, target)
    band = bands(axis, name)
    matrix = np.zeros((target, source))
    for k in range(target):
        block, row = divmod(k, band.blocks.shape[1])
        start = band.starts[block]
        matrix[k, start : start + band.blocks.shape[2]] = band.blocks[block, row]
    np.testing.assert_allclose(matrix, dense(axis, name), atol=1e-12)


@pytest.mark.parametrize(
    "sizes", [((61, 47), (40, 90)), ((61, 47), (122, 20)), ((1, 1), (3, 5)), ((300, 500), (211, 333))]
)
def test_both_ways_of_multiplying_agree_with_float64(sizes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    (height, width), (rows, columns) = sizes
    picture = torch.rand((2, height, width), generator=torch.Generator().manual_seed(1)) * 255
    x, y = centred(width, columns), centred(height, rows)
    expected = dense(y, "lanczos") @ picture.double().numpy() @ dense(x, "lanczos").T
    cpu = torch.device("cpu")
    batched = picture
    for axis, vertical in ((y, True), (x, False)):  # the launcher's blocks, on CPU tensors
        batched = Axis(axis, "lanczos", cpu, vertical=vertical, banded=True).batched(batched)
    out = torch.empty((2, rows, columns))
    Resampler(x, y, "lanczos", cpu).into(picture, out)
    np.testing.assert_allclose(batched.numpy(), expected, atol=2e-3)
    np.testing.assert_allclose(out.numpy(), expected, atol=2e-3)


@pytest.mark.parametrize(
    ("dtype", "depth", "shift"),
    [(torch.uint8, 8, 0), (torch.uint16, 10, 0), (torch.uint16, 10, 6), (torch.uint16, 12, 4)],
)
def test_integers_are_rounded_clamped_and_shifted(dtype: torch.dtype, depth: int, shift: int) -> None:
    top = (1 << depth) - 1
    codes = np.random.default_rng(5).choice([0, 1, top // 3, top - 1, top], size=(1, 20, 30))  # overshoots both ways
    axis_x, axis_y = centred(30, 47), centred(20, 33)
    exact = dense(axis_y, "lanczos") @ codes.astype(float) @ dense(axis_x, "lanczos").T
    assert exact.min() < 0
    assert exact.max() > top
    source = torch.from_numpy((codes << shift).astype(np.uint16)).to(dtype)
    out = torch.empty((1, 33, 47), dtype=dtype)
    Resampler(axis_x, axis_y, "lanczos", torch.device("cpu"), depth=depth, msb_shift=shift).into(source, out)
    stored = out.numpy().astype(np.int64)
    assert not (stored & ((1 << shift) - 1)).any()
    assert np.abs((stored >> shift) - np.clip(exact, 0, top)).max() <= 0.501
