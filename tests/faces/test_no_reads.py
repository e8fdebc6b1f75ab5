"""On the meta device nothing has a value: what runs there asks for none, and its shapes never depend on what is seen."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpupipe.device.cpu import CpuLane
from gpupipe.device.replay import Recorder
from gpupipe.faces.align import crops
from gpupipe.faces.choose import largest, within
from gpupipe.faces.detect import Wanted, look
from gpupipe.faces.found import Faces, nothing
from gpupipe.faces.operate import blur, fill, pixelate
from gpupipe.faces.paste import Mask, Place, Region, paste
from gpupipe.faces.refine import Refine
from gpupipe.faces.rework import Cut, Laying, Rework
from gpupipe.faces.seen import Following
from gpupipe.faces.sight import Sight

META = torch.device("meta")


class Watched(TorchDispatchMode):
    """Fails where a tensor is made of numbers of the host: on a GPU that is a copy, and waits. Counts what is begun."""

    steps = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func is not torch.ops.aten.lift_fresh.default, "a tensor from the host in the hot path"
        assert func is not torch.ops.aten._local_scalar_dense.default, "a value is read"
        self.steps += not func.is_view
        return func(*args, **(kwargs or {}))


def maps(small: torch.Tensor) -> tuple[torch.Tensor, ...]:
    count, _, height, width = small.shape
    return tuple(torch.empty(count, n, height // 4, width // 4, device=META) for n in (1, 2, 2, 10))


def recorded(size: tuple[int, int], count: int, every: int = 1) -> tuple[Sight, Watched]:
    """All that is captured in CUDA Graphs on a GPU, done once; and what it took."""
    width, height = size
    how = Following(look(width, height, width // 2), Wanted(0.5, 0.0, 6), every)
    sight = Sight(maps, how, size, refine=Refine(maps, META, together=8))
    rgb = torch.empty(count, 3, height, width, dtype=torch.float16, device=META)
    with Watched() as watched:
        sight.record(Recorder(CpuLane()), rgb)
    return sight, watched


@pytest.mark.parametrize(("every", "most"), [(1, 1800), (4, 2400)])
def test_faces_are_found_and_followed_without_a_read(every: int, most: int) -> None:
    sight, watched = recorded((1920, 1080), 16, every)
    assert watched.steps < most, "each is a kernel, and where nothing is captured microseconds of Python"
    seen = sight._settle.result
    assert Faces(*seen.faces).boxes.shape == (16, 6, 4)
    assert seen.links.shape == (16, 16, 6)


def test_faces_are_chosen_cut_out_and_laid_back_without_a_read() -> None:
    rgb = torch.empty(4, 3, 360, 640, dtype=torch.float16, device=META)
    faces, mask = nothing(4, 6, META, 0), Mask("hull", 0.2)
    work = (lambda cut: blur(cut, 0.1), lambda cut: pixelate(cut, 8), lambda cut: fill(cut, (0.1, 0.2, 0.3)))
    laying = Laying(mask, match=True, poisson=True)
    rework = Rework(Cut("ffhq512", 128, 1.0), work, laying, (640, 360), META, together=4)
    with Watched():
        chosen = faces.keep(largest(faces) | within(faces, (0, 0, 100, 100)))
        rework.record(Recorder(CpuLane()), chosen)
        ready, done = rework._order.result, rework._do.result
        there, at = Faces(*ready.faces), ready.matrix[:, 0]
        assert crops(rgb, torch.arange(4, device=META), at, 128).shape == done.shape == (4, 3, 128, 128)
        paste(rgb, done, Place(at, there.points[:, 0], there.valid[:, 0]), mask, Region(200, 200))
