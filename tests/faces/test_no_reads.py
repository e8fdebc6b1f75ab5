"""On the meta device nothing has a value: what runs there asks for none, and its shapes never depend on what is seen."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpupipe.faces.align import crops, similarity
from gpupipe.faces.choose import back_to_front, largest, within
from gpupipe.faces.colour import matched
from gpupipe.faces.detect import Wanted, look
from gpupipe.faces.operate import blur, fill, pixelate
from gpupipe.faces.paste import Mask, Place, Region, paste
from gpupipe.faces.poisson import blend
from gpupipe.faces.sight import Following, Sight

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


def test_faces_are_found_and_followed_without_a_read() -> None:
    sight = Sight(maps, Following(look(1920, 1080, 960), Wanted(0.5, 0.0, 6), ask=False), (1920, 1080))
    memory = sight.remember(META)
    rgb = torch.empty(16, 3, 1080, 1920, dtype=torch.float16, device=META)
    with Watched() as watched:
        seen = sight(rgb, memory, 0)
    assert watched.steps < 1600, "each costs microseconds of Python, which all sessions of a process share"
    assert seen.faces.boxes.shape == (16, 6, 4)
    assert seen.links.shape == (16, 16, 6)


def test_faces_are_chosen_cut_out_and_laid_back_without_a_read() -> None:
    sight = Sight(maps, Following(look(640, 360, 640), Wanted(0.5, 0.0, 6), ask=False), (640, 360))
    rgb = torch.empty(4, 3, 360, 640, dtype=torch.float16, device=META)
    target = torch.empty(5, 2, dtype=torch.float64, device=META)
    faces = sight(rgb, sight.remember(META), 0).faces
    with Watched():
        chosen = faces.keep(largest(faces) | within(faces, (0, 0, 100, 100)))
        chosen = chosen.take(back_to_front(chosen))
        matrix = similarity(chosen.points, target)[:, 0]
        cut = crops(rgb, torch.arange(4, device=META), matrix, 128)
        done = fill(pixelate(blur(cut, 0.1), 8), (0.1, 0.2, 0.3))
        mask = torch.empty(4, 128, 128, device=META)
        done = blend(matched(done, cut, mask), cut, mask)
        paste(rgb, done, Place(matrix, chosen.points[:, 0], chosen.valid[:, 0]), Mask("hull", 0.2), Region(200, 200))
    assert done.shape == (4, 3, 128, 128)
