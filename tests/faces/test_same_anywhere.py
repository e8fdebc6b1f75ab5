"""What comes out for a face does not depend on what else there is: shapes, order and ways to compute stay the same."""

from __future__ import annotations

import pytest
import torch
from stills_of_faces import ASTRONAUT_POINTS, still

from gpupipe.engines.base import Profile, arithmetic
from gpupipe.faces import engine, rework
from gpupipe.faces.detect import decode
from gpupipe.faces.found import Faces, nothing
from gpupipe.faces.paste import Mask
from gpupipe.journal import Journal


class Sized(torch.nn.Module):
    """Remembers what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.shapes: set[tuple[int, ...]] = set()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shapes.add(tuple(x.shape))
        return x * 2


@pytest.mark.parametrize("count", [1, 4, 7])
def test_on_a_gpu_a_network_sees_one_shape(count: int, monkeypatch) -> None:
    network = Sized()
    run = engine.Batched(network, "n", Profile(4, 8, 8, "fp32", "cpu"), "eager", origin="", journal=Journal())
    monkeypatch.setattr(run, "_fixed", True)
    pictures = torch.rand(count, 3, 8, 8)
    assert torch.equal(run(pictures), pictures * 2)
    assert network.shapes == {(4, 3, 8, 8)}


def test_nothing_is_measured_where_all_must_compute_the_same() -> None:
    for same in (False, True):
        with arithmetic(Profile(1, 8, 8, "fp16", "cuda:0", same=same)):
            found = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
        assert found == (not same, same)


@pytest.mark.parametrize("count", [1, 3, 20])
def test_equal_scores_are_in_the_order_of_their_places(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    heat = torch.zeros(count, 1, 60, 60)
    heat[:, :, ::3, ::3] = torch.randint(1, 5, (count, 1, 20, 20), generator=generator) / 8
    none = torch.zeros(count, 2, 60, 60)
    found = decode(heat.half(), none, none, torch.zeros(count, 10, 60, 60), most=400)
    places = (found.centres[..., 1] * 1000 + found.centres[..., 0]).tolist()
    for scores, own in zip(found.scores.tolist(), places, strict=True):
        keys = [(-score, place) for score, place in zip(scores, own, strict=True)]
        assert keys == sorted(keys)


def _faces(count: int) -> Faces:
    faces = nothing(1, count, "cpu")
    shift = torch.arange(count)[:, None, None] * torch.tensor([8.0, 3.0])
    faces.points[0] = ASTRONAUT_POINTS + shift
    faces.boxes[0] = torch.cat((faces.points[0].amin(1) - 20, faces.points[0].amax(1) + 20), -1)
    faces.valid[:] = True
    return faces


@pytest.mark.parametrize("count", [1, 3, 5])
def test_work_is_done_in_parts_of_one_size(count: int) -> None:
    rgb, seen = still("astronaut_512.png"), set()

    def work(crops: torch.Tensor) -> torch.Tensor:
        seen.add(len(crops))
        return 1 - crops

    size = (rgb.shape[3], rgb.shape[2])
    cut, laying = rework.Cut("ffhq512", 64, 1.0), rework.Laying(Mask("hull", 0.2), match=True, poisson=True)
    links = torch.full((1, count), -1)
    done = [
        rework.Rework(cut, (work,), laying, size, torch.device("cpu"), together=n)(rgb, _faces(count), links, ())
        for n in (4, 0)
    ]
    assert seen == {4, count}
    torch.testing.assert_close(*done, atol=1e-5, rtol=0)
    assert not torch.equal(done[0], rgb)
