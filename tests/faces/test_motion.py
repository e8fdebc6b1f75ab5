"""Measured motion against the motion that made the clip; calm points against the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from clips import Move, frames, path, truth
from stills_of_faces import ASTRONAUT_POINTS

from gpupipe.faces.cuts import luma
from gpupipe.faces.detect import look, shown
from gpupipe.faces.follow import Likeness, at_lag, chains
from gpupipe.faces.found import Faces, joined, nothing
from gpupipe.faces.motion import Motion, Pyramid, back, forth, inverted, motion, pyramid
from gpupipe.faces.sight import carried
from gpupipe.faces.smooth import Calm, smoothed

SIZE = (256, 192)
MOVES = {
    "pan": {"pan": 5.0}, "zoom": {"zoom": 1.0}, "roll": {"roll": 3.0}, "light": {"light": 0.5},
    "all": {"pan": 2.0, "zoom": 0.4, "roll": 1.0, "light": 0.3},
}  # fmt: skip


def placed(move: Move) -> Faces:
    """The face where it is, as a detector without any error would give it."""
    points = truth(ASTRONAUT_POINTS.double(), move)[:, None].float()
    side = 2 * torch.linalg.vector_norm(points[..., 0, :] - points[..., 1, :], dim=-1)[..., None]
    centre = points.mean(2)
    faces = nothing(len(points), 1, "cpu")
    return replace(faces, points=points, boxes=torch.cat((centre - side / 2, centre + side / 2), -1),
                   valid=torch.ones(len(points), 1, dtype=torch.bool))  # fmt: skip


def _before(light: Pyramid) -> Pyramid:
    return light._replace(atlas=torch.cat((light.atlas[:1], light.atlas[:-1])))


def backwards(rgb: torch.Tensor, faces: Faces) -> Motion:
    light = pyramid(luma(rgb), look(*SIZE, max(SIZE)))
    return motion(faces, light, _before(light))


@pytest.mark.parametrize("flat", [1.0, 1e-2, 1e-5])
def test_what_slopes_are_weighed_by_is_inverted_as_numpy_does(flat: float) -> None:
    """To 1e-9 of the largest element; slopes in one direction down to none, where the ridge alone is left."""
    slopes = np.random.default_rng(2).normal(size=(3, 5, 4, 40)) * np.array([300.0, 300 * flat, 100.0, 100.0])[:, None]
    normal = slopes @ slopes.swapaxes(-1, -2) / 40 + 2e-5 * np.eye(4)
    normal[0, 0] = 2e-5 * np.eye(4)
    wanted = np.linalg.solve(normal, np.broadcast_to(np.eye(4), normal.shape))
    away = np.abs(inverted(torch.from_numpy(normal)).numpy() - wanted).max((-1, -2))
    assert float((away / np.abs(wanted).max((-1, -2))).max()) < 1e-9


@pytest.mark.parametrize("name", MOVES)
def test_motion_is_that_of_the_clip(name: str) -> None:
    move = path(10, SIZE, (225.0, 120.0), 0.7, **MOVES[name])
    rgb, faces = frames("astronaut_512.png", move, SIZE), placed(move)
    found = backwards(rgb, faces)
    assert bool(found.found[1:].all())
    away = forth(found, faces.centres, faces.points)[1:, 0] - faces.points[:-1, 0]
    assert float(torch.linalg.vector_norm(away, dim=-1).max()) < 0.4  # of a face 62 pixels wide
    torch.testing.assert_close(
        back(found, faces.centres, forth(found, faces.centres, faces.points)), faces.points, atol=1e-3, rtol=0
    )


@pytest.mark.parametrize("name", ["pan", "zoom", "all"])
def test_a_face_that_fills_the_picture_is_not_held_by_its_edges(name: str) -> None:
    """The patch goes over them, and over black below, as the detector is shown pictures."""
    size = (256, 180)
    move = path(8, size, (225.0, 120.0), 1.6, **MOVES[name])
    rgb, faces = frames("astronaut_512.png", move, size), placed(move)
    how = look(*size, max(size))
    light = pyramid(luma(shown(rgb, how)) / 255, how)
    assert light.tall > size[1]
    found = motion(faces, light, _before(light))
    assert bool(found.found[1:].all())
    away = forth(found, faces.centres, faces.points)[1:, 0] - faces.points[:-1, 0]
    assert float((away / faces.sides[1:, :, None]).abs().max()) < 0.003


def test_a_face_is_carried_on_without_a_detector() -> None:
    move = path(5, SIZE, (225.0, 120.0), 0.7, **MOVES["all"])
    rgb, faces = frames("astronaut_512.png", move, SIZE), placed(move)
    light = pyramid(luma(rgb), look(*SIZE, max(SIZE)))
    now = faces.map(lambda x: x[:1])
    for t in range(4):
        now = carried(now, motion(now, light.rows(slice(t, t + 1)), light.rows(slice(t + 1, t + 2))))
    assert bool(now.valid[0, 0])
    torch.testing.assert_close(now.points[0, 0], faces.points[4, 0], atol=0.8, rtol=0)
    torch.testing.assert_close(now.boxes[0, 0], faces.boxes[4, 0], atol=3.0, rtol=0)


def test_what_is_gone_is_not_found() -> None:
    move = path(2, SIZE, (225.0, 120.0), 0.7)
    rgb, faces = frames("astronaut_512.png", move, SIZE), placed(move)
    rgb[0] = torch.rand(rgb[0].shape, generator=torch.Generator().manual_seed(1))
    assert not bool(backwards(rgb, faces).found[1, 0])
    flat = torch.full_like(rgb, 0.5)
    assert bool(torch.isfinite(backwards(flat, faces).shift).all())


@pytest.mark.parametrize("name", ["pan", "zoom", "all"])
def test_noise_is_halved_and_nothing_lags(name: str) -> None:
    """A detector's noise, 2 % of the face, on the true points; motion from the pictures."""
    torch.manual_seed(3)
    move = path(30, SIZE, (225.0, 120.0), 0.7, **MOVES[name])
    true = placed(move)
    found = backwards(frames("astronaut_512.png", move, SIZE), true)
    noisy = true.points + torch.randn(true.points.shape) * 1.2
    known = torch.cat((found.turn, found.shift, found.found[..., None].float()), -1)
    faces = replace(true, points=noisy, motion=known)
    calm = Calm()
    lead = calm.window
    full = joined((nothing(lead, 1, "cpu"), faces), 0)
    links = chains(at_lag(full, torch.zeros(len(full.valid)), 1, Likeness(0.2)), lead, calm.window)
    out = smoothed(full, links, calm)
    before, after = ((points - true.points)[8:, 0] for points in (noisy, out.points))
    assert float(after.diff(dim=0).std()) < 0.3 * float(before.diff(dim=0).std())
    assert float(after.std()) < 0.6 * float(before.std())
    speed = true.points[8:, 0].diff(dim=0)
    if float(speed.abs().mean()) > 0.5:
        lag = -(after[1:] * speed).sum() / speed.square().sum()
        assert abs(float(lag)) < 0.35


def test_without_motion_it_is_a_filter_and_follows() -> None:
    faces = nothing(40, 1, "cpu")
    x = torch.arange(40.0) * 2
    centre = torch.stack((x, torch.full_like(x, 50.0)), -1)[:, None]
    faces = replace(faces, points=centre[:, :, None].expand(-1, -1, 5, -1), valid=torch.ones(40, 1, dtype=torch.bool),
                    boxes=torch.cat((centre - 20, centre + 20), -1))  # fmt: skip
    links = chains(at_lag(faces, torch.zeros(40), 1, Likeness(0.2)), 16, 16)
    out = smoothed(faces, links, Calm(cutoff=0.05, beta=4.0))
    lag = (faces.points[16:, 0, 0, 0] - out.points[:, 0, 0, 0]) / 2
    assert float(lag.max()) < 1.6
    assert float(lag.min()) >= 0
