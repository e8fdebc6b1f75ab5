"""Transforms against least squares by numpy, samples against grid_sample and against a picture with a formula."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from stills_of_faces import ASTRONAUT_POINTS, still

from gpupipe.faces.align import apply, crops, inverse, scale, similarity
from gpupipe.faces.sampling import sample
from gpupipe.faces.templates import Template, template


def least_squares(points: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The four numbers of a similarity by a general solver."""
    rows = np.concatenate(([[x, -y, 1, 0] for x, y in points], [[y, x, 0, 1] for x, y in points]))
    a, b, u, v = np.linalg.lstsq(rows, target.T.ravel(), rcond=None)[0]
    return np.array([[a, -b, u], [b, a, v]])


def test_similarity_is_the_least_squares_one() -> None:
    rng = np.random.default_rng(1)
    target = template("ffhq512", 256)
    points = rng.normal(scale=80, size=(6, 7, 5, 2)) + rng.normal(scale=2000, size=(6, 7, 1, 2))
    ours = similarity(torch.from_numpy(points), torch.from_numpy(target)).numpy()
    for n, k in np.ndindex(6, 7):
        np.testing.assert_allclose(ours[n, k], least_squares(points[n, k], target), rtol=1e-9, atol=1e-7)


def test_a_mirrored_face_is_not_mirrored_back() -> None:
    target = torch.from_numpy(template("arcface112", 112))
    matrix = similarity(target * torch.tensor([-1.0, 1.0]), target)
    assert float(torch.linalg.det(matrix[:, :2])) >= 0


def test_no_face_at_all_gives_numbers() -> None:
    matrix = similarity(torch.zeros(3, 5, 2), torch.from_numpy(template("arcface112", 112)))
    assert torch.isfinite(matrix).all()
    assert torch.isfinite(inverse(matrix)).all()


@pytest.mark.parametrize("name", get_args(Template))
def test_points_land_on_the_template_and_return(name: str) -> None:
    target = torch.from_numpy(template(name, 160, 1.4))
    turn = torch.tensor([[0.8, -0.6], [0.6, 0.8]], dtype=torch.float64) * 1.7
    points = target @ turn.T + torch.tensor([500.0, -40.0])
    matrix = similarity(points, target)
    torch.testing.assert_close(apply(matrix, points), target)
    torch.testing.assert_close(apply(inverse(matrix), target), points)
    assert float(scale(matrix)) == pytest.approx(1 / 1.7)


def test_arcface_templates_are_those_of_insightface() -> None:
    eyes = template("arcface112", 112)[:2]
    np.testing.assert_allclose(eyes, [[38.2946, 51.6963], [73.5318, 51.5014]])
    np.testing.assert_allclose(template("arcface128", 128)[:2], eyes + np.array([8, 0]))
    np.testing.assert_allclose(template("ffhq512", 512)[4], [313.08905, 371.15118])


def test_samples_equal_grid_sample() -> None:
    torch.manual_seed(2)
    pictures = torch.rand(3, 3, 40, 50)
    picture = torch.tensor([2, 0, 2, 1])
    xy = torch.rand(4, 9, 11, 2, dtype=torch.float64) * torch.tensor([60.0, 50.0]) - 5
    grid = ((xy + 0.5) * 2 / torch.tensor([50.0, 40.0]) - 1).float()
    theirs = torch.nn.functional.grid_sample(
        pictures[picture], grid, mode="bicubic", padding_mode="border", align_corners=False
    )
    ours = sample(pictures, picture, xy, torch.ones(4))
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)


@pytest.mark.parametrize("shrink", [1.3, 2.0, 3.7, 6.5])
def test_shrinking_keeps_lines_and_hides_what_is_too_fine(shrink: float) -> None:
    y, x = torch.meshgrid(torch.arange(200.0), torch.arange(200.0), indexing="ij")
    slope = (0.3 * x + 0.1 * y)[None, None] / 100
    fine = ((x + y) % 2)[None, None]
    at = torch.arange(20, dtype=torch.float64) * shrink + 30.3
    xy = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1)[None]
    ours = sample(torch.cat((slope, fine), 1), torch.tensor([0]), xy, torch.tensor([shrink]))
    exact = (0.3 * xy[..., 0] + 0.1 * xy[..., 1]) / 100
    torch.testing.assert_close(ours[:, 0].double(), exact, atol=0.02 * shrink / 3, rtol=0)
    if shrink >= 2 and shrink < 4:
        assert float((ours[:, 1] - 0.5).abs().max()) < 0.13


def test_a_face_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(3)
    pictures = torch.rand(4, 3, 64, 64)
    matrix = similarity(torch.rand(5, 5, 2) * 64, torch.from_numpy(template("arcface112", 48)))
    picture = torch.tensor([3, 1, 1, 0, 2])
    together = crops(pictures, picture, matrix, 48)
    for n in range(5):
        alone = crops(pictures[picture[n]][None], torch.tensor([0]), matrix[n][None], 48)
        assert torch.equal(alone[0], together[n])


def test_half_floats_are_read_in_full_precision() -> None:
    rgb = still("astronaut_512.png")
    matrix = similarity(ASTRONAUT_POINTS[None], torch.from_numpy(template("ffhq512", 128)))
    half = crops(rgb.half(), torch.tensor([0]), matrix, 128)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, crops(rgb, torch.tensor([0]), matrix, 128), atol=1.5e-3, rtol=0)
