"""warp against float64 arithmetic written from its definition, and against what everybody knows of turns and mirrors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from stills import picture, plan, run

from gpupipe.errors import PlanError

RGB = picture("rgbf32", 37, 29)


def noise(height: int = 29, width: int = 37, batch: int = 2) -> torch.Tensor:
    return torch.rand((batch, 3, height, width), generator=torch.Generator().manual_seed(7)) * 1.4 - 0.2


def bilinear(rgb: np.ndarray, inverse: np.ndarray, border: str) -> np.ndarray:
    """For each output pixel: where it comes from, and the four pixels around that place."""
    n, c, height, width = rgb.shape
    out = np.zeros((n, c, height, width))
    for j in range(height):
        for i in range(width):
            u, v, w = inverse @ (i, j, 1.0)
            x, y = u / w, v / w
            x0, y0 = math.floor(x), math.floor(y)
            for xi, yi in ((x0, y0), (x0 + 1, y0), (x0, y0 + 1), (x0 + 1, y0 + 1)):
                weight = (1 - abs(x - xi)) * (1 - abs(y - yi))
                inside = 0 <= xi < width and 0 <= yi < height
                if border == "constant" and not inside:
                    continue
                out[:, :, j, i] += weight * rgb[:, :, fold(yi, height, border), fold(xi, width, border)]
    return out


def fold(k: int, size: int, border: str) -> int:
    if border == "reflect":
        k %= 2 * size
        return k if k < size else 2 * size - 1 - k
    return min(max(k, 0), size - 1)


MAPS = {
    "affine": ([[1.1, 0.2, -3.3], [-0.15, 0.9, 4.7]], None),
    "projective": ([[1.1, 0.2, -3.3], [-0.15, 0.9, 4.7], [0.002, -0.001, 1.0]], None),
    "negative scale of the same map": ([[-1.1, -0.2, 3.3], [0.15, -0.9, -4.7], [-0.002, 0.001, -1.0]], "projective"),
}


@pytest.mark.parametrize("border", ["edge", "reflect", "constant"])
@pytest.mark.parametrize("name", MAPS)
def test_samples_where_the_inverse_map_says(name: str, border: str) -> None:
    rgb = noise(batch=1)
    matrix, _ = MAPS[name]
    ours, target = run("warp", {"matrix": matrix, "border": border}, RGB, (rgb,))
    full = np.array([*matrix, [0, 0, 1]][:3], dtype=float)
    expected = bilinear(rgb.double().numpy(), np.linalg.inv(full), border)
    assert target == RGB
    np.testing.assert_allclose(ours[0].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("name", ["nearest", "bilinear", "bicubic"])
def test_doing_nothing_and_whole_pixels(name: str) -> None:
    rgb = noise()
    (same,), _ = run("warp", {"filter": name}, RGB, (rgb,))
    torch.testing.assert_close(same, rgb, atol=2e-5, rtol=0)
    (moved,), _ = run("warp", {"translate": [5, -3], "filter": name, "border": "constant"}, RGB, (rgb,))
    torch.testing.assert_close(moved[:, :, :-3, 5:], rgb[:, :, 3:, :-5], atol=2e-5, rtol=0)
    assert float(moved[:, :, -3:].abs().max()) < 2e-5
    assert float(moved[:, :, :, :5].abs().max()) < 2e-5


@pytest.mark.parametrize(("degrees", "quarters"), [(90, 1), (180, 2), (-90, -1)])
def test_turns_counter_clockwise(degrees: float, quarters: int) -> None:
    rgb = noise(31, 31)
    (ours,), _ = run("warp", {"rotate": degrees}, picture("rgbf32", 31, 31), (rgb,))
    torch.testing.assert_close(ours, torch.rot90(rgb, quarters, (2, 3)), atol=2e-5, rtol=0)


def test_scale_shear_and_centre() -> None:
    (flipped,), _ = run("warp", {"scale": [-1, 1]}, RGB, (noise(),))
    torch.testing.assert_close(flipped, noise().flip(3), atol=2e-5, rtol=0)
    x, y = np.meshgrid(np.arange(37.0), np.arange(29.0))
    plane = torch.from_numpy(np.stack([x, y, x + y])[None]).float()
    options = {"scale": [2, 4], "shear": [0.5, 0], "center": [10, 8], "translate": [1, 2]}
    (ours,), _ = run("warp", options, RGB, (plane,))
    # out = center + translate + shear(scale(in - center))
    v = (y - 10) / 4 + 8
    u = ((x - 11) - 0.5 * (y - 10)) / 2 + 10
    inner = (slice(4, 25), slice(8, 29))
    np.testing.assert_allclose(ours[0, 0].numpy()[inner], u[inner], atol=1e-3)
    np.testing.assert_allclose(ours[0, 1].numpy()[inner], v[inner], atol=1e-3)


def test_corners_go_where_they_are_pinned() -> None:
    x, y = np.meshgrid(np.arange(37.0), np.arange(29.0))
    plane = torch.from_numpy(np.stack([x, y, x])[None]).float()
    pins = [[3, 2], [33, 5], [30, 25], [1, 20]]
    (ours,), _ = run("warp", {"corners": pins}, RGB, (plane,))
    for (i, j), place in zip(pins, [(0, 0), (36, 0), (36, 28), (0, 28)], strict=True):
        assert ours[0, :2, j, i].tolist() == pytest.approx(place, abs=1e-2)
    (same,), _ = run("warp", {"corners": [[0, 0], [36, 0], [36, 28], [0, 28]]}, RGB, (plane,))
    torch.testing.assert_close(same, plane, atol=1e-3, rtol=0)


def test_half_precision_pixels_are_placed_in_single() -> None:
    wide = picture("rgbf16", 1920, 8)
    ramp = (torch.arange(1920) % 16 / 16).expand(1, 3, 8, 1920)
    (ours,), _ = run("warp", {"translate": [0.5, 0]}, wide, (ramp.half(),))
    (single,), _ = run("warp", {"translate": [0.5, 0]}, picture("rgbf32", 1920, 8), (ramp.contiguous(),))
    torch.testing.assert_close(ours.float(), single, atol=1e-3, rtol=0)


def test_over_the_horizon_lies_the_border() -> None:
    (ours,), _ = run(
        "warp",
        {"corners": [[15, 10], [21, 10], [36, 28], [0, 28]], "border": "constant"},
        RGB,
        (torch.ones((1, 3, 29, 37)),),
    )
    assert float(ours[0, 0, 26, 18]) == pytest.approx(1)
    assert float(ours[0, :, :6].abs().max()) == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"matrix": [[1, 1, 0], [1, 1, 0]]},
        {"corners": [[0, 0], [1, 1], [2, 2], [0, 9]]},
        {"matrix": [[1, 0, 0], [0, 1, 0], [0.1, 0, -1]]},
        {"corners": [[0, 0], [10, 10], [10, 0], [0, 10]]},
    ],
)
def test_maps_that_cannot_be(settings: dict) -> None:
    with pytest.raises(PlanError, match=r"corners|folds") as caught:
        plan("warp", settings, RGB)
    assert caught.value.where == "stages.warp"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"matrix": [[1, 0, 0], [0, 1, 0]], "rotate": 3}, "exclude each other"),
        ({"scale": 0}, "leaves no picture"),
        ({"scale": [1, 0]}, "leaves no picture"),
        ({"rotate": "3"}, "valid number"),
        ({"rotate": float("inf")}, "finite"),
        ({"matrix": [[1, 0, 0]]}, "at least 2"),
        ({"border": "mirror"}, "edge"),
    ],
)
def test_wrong_settings(settings: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plan("warp", settings, RGB)


def test_shrinking_is_noted() -> None:
    assert "resize first" in plan("warp", {"scale": 0.3}, RGB)[1][0]
    assert plan("warp", {"scale": 0.9}, RGB)[1] == ()
