from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from gpupipe.device.cuda import CudaLane, PinnedRing, copy_of, tensor_at
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("pixels", ["nv12", "p010le", "rgbf16"])
def test_up_and_down_again(pixels: str) -> None:
    source = FrameFormat(PIXEL_FORMATS[pixels], 1921, 1081)
    lane = CudaLane("cuda:0")
    up, down = PinnedRing(source, lane, slots=2), PinnedRing(source, lane, slots=2)
    for number in range(5):
        planes = []
        for shape in source.pixels.plane_shapes(source.width, source.height):
            values = torch.randint(0, 200, (1, *shape))
            planes.append(
                values.to(torch.float16 if pixels == "rgbf16" else torch.uint8 if pixels == "nv12" else torch.uint16)
            )
        there = up.upload(FrameBatch(source, (number,), Fraction(1), tuple(planes)))
        assert there.format.device == "cuda:0"
        assert all(p.is_cuda for p in there.planes)
        back = down.download(copy_of(there, lane))
        assert all(p.is_pinned() for p in back.planes)
        back.ready.synchronize()
        assert back.pts == (number,)
        assert all(torch.equal(a, b) for a, b in zip(back.planes, planes, strict=True))


def test_tensor_over_foreign_memory_is_that_memory() -> None:
    owner = torch.arange(24, dtype=torch.int32, device="cuda").to(torch.uint16)
    view = tensor_at(owner.data_ptr(), (4, 6), torch.uint16, "cuda:0")
    assert view.data_ptr() == owner.data_ptr()
    assert torch.equal(view.cpu().flatten(), owner.cpu())
