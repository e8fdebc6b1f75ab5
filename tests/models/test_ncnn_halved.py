"""Half the size, bicubic, as compilers get it, beside torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from gpupipe.models.ncnn import _Upscale, halved


def half(x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=0.5, mode="bicubic", align_corners=False)


def noise(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(1, 3, 2, 2), (2, 3, 4, 2), (1, 1, 6, 10), (2, 3, 64, 130)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_is_torchs_own(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    x = noise(*shape).contiguous(memory_format=layout)
    assert halved(x).shape == half(x).shape
    assert float((halved(x) - half(x)).abs().max()) < 1e-6


def test_half_floats_are_summed_up_in_whole_ones() -> None:
    x = noise(1, 3, 32, 64).half()
    assert halved(x).dtype == torch.float16
    assert torch.equal(halved(x), halved(x.float()).half())


@pytest.mark.parametrize(("height", "width", "taken"), [(16, 24, False), (15, 24, True), (16, 23, True)])
@pytest.mark.parametrize("strict", [True, False])
def test_an_export_holds_no_interpolation_of_even_sizes(height: int, width: int, taken: bool, strict: bool) -> None:
    x = noise(1, 3, height, width)
    exported = torch.export.export(_Upscale(3, 0.5), (x,), strict=strict)
    assert ("upsample_bicubic" in str(exported.graph)) == taken
    assert float((exported.module()(x) - half(x)).abs().max()) < 1e-6


def test_nobody_else_is_given_it() -> None:
    x = noise(1, 3, 16, 24)
    assert torch.equal(_Upscale(3, 0.5)(x), half(x))
