"""Half the size, bicubic, and what ends with it, beside torch's own; the kernel on the GPU, and by Triton's interpreter where there is none."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

from gpupipe.ops.halve import doubled, halved

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = ((1, 3, 2, 2), (2, 3, 4, 2), (1, 1, 6, 10), (2, 3, 64, 130))


def half(x: torch.Tensor) -> torch.Tensor:
    return functional.interpolate(x, scale_factor=0.5, mode="bicubic", align_corners=False)


def noise(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_is_torchs_own(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    x = noise(*shape).contiguous(memory_format=layout)
    assert halved(x).shape == half(x).shape
    assert float((halved(x) - half(x)).abs().max()) < 1e-6


def test_half_floats_are_summed_up_in_whole_ones() -> None:
    x = noise(1, 3, 32, 64).half()
    assert halved(x).dtype == torch.float16
    assert torch.equal(halved(x), halved(x.float()).half())


def doubled_by_torch(details: torch.Tensor, bias: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
    details = details + bias.view(1, -1, 1, 1)
    return half(functional.pixel_shuffle(details, 4) + functional.interpolate(picture, scale_factor=4, mode="nearest"))


def test_compilers_can_take_it_as_an_operator() -> None:
    details, bias, picture = noise(1, 48, 3, 5), noise(48), noise(1, 3, 3, 5)
    torch.testing.assert_close(
        doubled(details, bias, picture), doubled_by_torch(details, bias, picture), atol=1e-6, rtol=0
    )
    torch.library.opcheck(torch.ops.gpupipe.doubled, (details, bias, picture))


def compare(device: str, shapes: tuple[tuple[int, int, int], ...]) -> None:
    """The kernel against torch's in float64, at most a step of its precision apart; planes, channels last, a part."""
    from gpupipe.ops.halve_triton import doubled as by_triton  # noqa: PLC0415  (reads the environment)

    for n, h, w in shapes:
        for dtype, most in ((torch.float16, 2**-9), (torch.float32, 2**-21)):
            bias = noise(48).to(device, dtype) / 4
            details, around = noise(n, 48, h, w).to(device, dtype) - 0.5, noise(n, 3, h + 2, w + 2).to(device, dtype)
            picture = around[..., 1:-1, 1:-1]
            for given in (picture, picture.contiguous(), picture.contiguous(memory_format=torch.channels_last)):
                got = by_triton(details.contiguous(memory_format=torch.channels_last), bias, given)
                assert got.is_contiguous()
                assert got.dtype == dtype
                wanted = doubled_by_torch(details.double(), bias.double(), given.double())
                assert float((got.double() - wanted).abs().max()) < most, (n, h, w, dtype)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed; the gpu tests run the kernel")
def test_kernel_in_the_interpreter(by_the_interpreter: Callable[[], None]) -> None:
    by_the_interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernel_compiles_for_a_gpu(by_the_compiler: Callable[[str], None]) -> None:
    """To machine code of compute capability 9.0, which needs no GPU: what the interpreter lets pass may not compile."""
    program = """
from gpupipe.ops.halve_triton import _SMALL, _doubled
compiled(_doubled, dict(SMALL=_SMALL))
"""
    by_the_compiler(program)


@pytest.mark.gpu
def test_kernel_on_the_gpu() -> None:
    compare("cuda", ((1, 1, 1), (2, 2, 67), (1, 1080, 1920)))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # torch's compilers warn of themselves
def test_torch_compile_takes_the_kernel() -> None:
    details = noise(1, 48, 33, 70).to("cuda").half().contiguous(memory_format=torch.channels_last)
    bias, picture = noise(48).to("cuda").half(), noise(1, 3, 33, 70).to("cuda").half()
    torch._dynamo.reset()
    with torch.no_grad():
        out = torch.compile(doubled, fullgraph=True, dynamic=False)(details, bias, picture)
    wanted = doubled_by_torch(details.double(), bias.double(), picture.double())
    assert float((out.double() - wanted).abs().max()) < 2**-9


if __name__ == "__main__":
    compare("cpu", ((1, 1, 1), (2, 2, 67)))
