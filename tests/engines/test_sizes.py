"""Windows and batches from the memory there is."""

from __future__ import annotations

import pytest
import torch

from gpupipe.engines.running import Running
from gpupipe.engines.select import Built
from gpupipe.engines.sizes import ENOUGH, Shape, Sizes, choose_sizes, smaller
from gpupipe.models.tile import tiling

HD = Shape(1080, 1920, 2, 20)
GIB = 1 << 30


def sizes(shape, room, *, rows=16, tile="auto", batch="auto", pixel=1000.0):
    return choose_sizes(shape, rows=rows, room=room, pixel_bytes=pixel, tile=tile, batch=batch)


def test_a_whole_picture_where_it_fits():
    assert sizes(HD, 100 * GIB) == Sizes(None, 1)
    assert sizes(Shape(540, 960, 2, 20), 100 * GIB) == Sizes(None, 4)
    assert sizes(Shape(540, 960, 2, 20), 100 * GIB, rows=3) == Sizes(None, 3)


@pytest.mark.parametrize("room", [1 * GIB, 300 << 20, 100 << 20])
def test_what_is_chosen_fits(room):
    chosen = sizes(HD, room)
    assert chosen.tile is not None
    high, wide = HD.tiling(chosen.tile).window
    assert high * wide * chosen.batch * 1000 <= room
    larger = HD.tiling(2 * chosen.tile).window
    assert larger[0] * larger[1] * 1000 > room, "not smaller than need be"


def test_small_pictures_go_several_at_once_but_no_further_than_is_of_use():
    chosen = sizes(Shape(144, 256, 2, 20), 100 * GIB)
    assert chosen == Sizes(None, 16)
    assert ENOUGH > 16 * 144 * 256
    assert sizes(Shape(144, 256, 2, 20), 144 * 256 * 1000 * 5) == Sizes(None, 4), "four batches of four, not 5 5 5 1"


def test_what_is_asked_for_is_done():
    assert sizes(HD, 1, tile="off") == Sizes(None, 1)
    assert sizes(HD, 1, tile=256, batch=4) == Sizes(256, 4)
    assert sizes(HD, 100 * GIB, tile="off", batch=64) == Sizes(None, 16)


def test_a_network_that_needs_the_whole_picture_is_not_cut():
    assert sizes(Shape(1080, 1920, 1, None), 1) == Sizes(None, 1)
    assert smaller(Shape(1080, 1920, 1, None), None) is None


def test_steps_down_end():
    tile, steps = None, []
    while (tile := smaller(HD, tile)) is not None:
        steps.append(tile)
    assert steps == [960, 480, 240, 120, 60]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 64), (71, 97), (200, 33)])
@pytest.mark.parametrize("tile", [None, 1, 16, 37, 64])
@pytest.mark.parametrize(("halo", "multiple", "least"), [(0, 1, 1), (20, 1, 1), (26, 2, 1), (5, 4, 32)])
def test_windows_cover_every_pixel_once_with_its_halo(height, width, tile, halo, multiple, least):
    plan = tiling(height, width, tile, halo=halo, multiple=multiple, least=least)
    assert plan.height >= max(height, least)
    assert plan.width % multiple == plan.height % multiple == 0
    for spans, side, window in ((plan.rows, plan.height, plan.window[0]), (plan.columns, plan.width, plan.window[1])):
        assert window % multiple == 0
        assert window >= min(least, side)
        assert [s.begin for s in spans] == [0, *(s.end for s in spans[:-1])]
        assert spans[-1].end == side
        for span in spans:
            assert span.low % multiple == 0
            assert 0 <= span.low <= max(0, span.begin - halo) or span.low == side - window
            assert span.low <= max(0, span.begin - halo)
            assert min(side, span.end + halo) <= span.low + window <= side


@pytest.mark.parametrize("tile", [None, 8])
def test_on_a_gpu_every_call_has_one_shape(tile):
    """Also of an engine that takes fewer: a shape that changes inside a CUDA Graph is not what TensorRT may be given."""
    seen, asked = [], []

    def make(profile):
        asked.append(profile)
        return Built(lambda x: seen.append(tuple(x.shape)) or x * 2, "a double", flexible=True)

    running = Running(
        make, Shape(16, 24, 1, 2), Sizes(tile, 4), device="cuda:0", precision="fp32", warn=lambda _: None
    )  # fmt: skip
    x = torch.rand(5, 3, 16, 24)
    assert torch.equal(running(x), x * 2)
    assert set(seen) == {asked[0].shape}
    assert (len(asked), asked[0].batch, asked[0].least) == (1, 4, 0)
