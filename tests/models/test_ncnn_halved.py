"""Half the size, bicubic, as compilers get it, beside torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from gpupipe.engines.inductor import Inductor
from gpupipe.models.ncnn import Upscale

QUICK = {"cpp_cache_precompile_headers": False, "cpp.vec_isa_ok": True, "cpp.simdlen": 1}
"""Settings of inductor with which the C++ compiler takes a third of the time: what is tried stands before it."""


def half(x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=0.5, mode="bicubic", align_corners=False)


def noise(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("height", "width", "taken"), [(16, 24, True), (15, 24, False), (16, 23, False)])
def test_torch_compile_gets_it_for_even_sizes(height: int, width: int, taken: bool) -> None:
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph.code)
        return graph.forward

    x = noise(1, 3, height, width)
    torch._dynamo.reset()
    out = torch.compile(Upscale(3, 0.5), backend=backend, fullgraph=True, dynamic=False)(x)
    assert [("index_select" in code, "interpolate" in code) for code in graphs] == [(taken, not taken)]
    assert float((out - half(x)).abs().max()) < 1e-6


@pytest.mark.parametrize("strict", [True, False])
def test_an_export_has_the_interpolation(strict: bool) -> None:
    x = noise(1, 3, 16, 24)
    exported = torch.export.export(Upscale(3, 0.5), (x,), strict=strict)
    assert "upsample_bicubic" in str(exported.graph)


@pytest.mark.skipif(Inductor().absent("cpu") is not None, reason="no C++ compiler here")
@pytest.mark.filterwarnings("ignore")  # inductor's own
def test_inductor_takes_it_behind_a_shuffle() -> None:
    """Which is where it fails on other ways to write it."""

    class Tail(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.smaller = Upscale(3, 0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.smaller(functional.pixel_shuffle(x, 4))

    x = noise(1, 48, 6, 10).contiguous(memory_format=torch.channels_last)
    torch._dynamo.reset()
    with torch.no_grad():
        out = torch.compile(Tail(), fullgraph=True, dynamic=False, options=QUICK)(x)
    assert float((out - half(functional.pixel_shuffle(x, 4))).abs().max()) < 1e-6


def test_nobody_else_is_given_it() -> None:
    x = noise(1, 3, 16, 24)
    assert torch.equal(Upscale(3, 0.5)(x), half(x))
