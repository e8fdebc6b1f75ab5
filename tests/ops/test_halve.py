"""Half the size, bicubic, beside torch's own; the kernel on the GPU, and by Triton's interpreter where there is none."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional

from gpupipe.ops.halve import halved

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


def test_compilers_can_take_it_as_an_operator() -> None:
    torch.library.opcheck(torch.ops.gpupipe.halved, (noise(1, 3, 6, 8),))


def compare(device: str, shapes: tuple[tuple[int, int, int, int], ...]) -> None:
    """The kernel against torch's in float64, at most a step of its precision apart; planes, channels last, a part."""
    from gpupipe.ops.halve_triton import halved as by_triton  # noqa: PLC0415  (reads the environment)

    for n, c, h, w in shapes:
        for dtype, most in ((torch.float16, 2**-10), (torch.float32, 2**-21)):
            x = noise(n, c, h + 2, w + 2).to(device, dtype)
            for given in (x, x.contiguous(memory_format=torch.channels_last), x[..., 1:-1, 1:-1]):
                got = by_triton(given)
                assert got.is_contiguous()
                assert got.dtype == dtype
                assert float((got.double() - half(given.double())).abs().max()) < most, (n, c, h, w, dtype)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed; the gpu tests run the kernel")
def test_kernel_in_the_interpreter(by_the_interpreter: Callable[[], None]) -> None:
    by_the_interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernel_compiles_for_a_gpu(by_the_compiler: Callable[[str], None]) -> None:
    """To machine code of compute capability 9.0, which needs no GPU: what the interpreter lets pass may not compile."""
    program = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from gpupipe.ops.halve_triton import _halved
names = [p.name for p in _halved.params]
kinds = {n: "constexpr" if n == "COLUMNS" else "*fp16" if n.endswith("_ptr") else "i32" for n in names}
source = ASTSource(fn=_halved, signature=kinds, constexprs=dict(COLUMNS=256))
assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
"""
    by_the_compiler(program)


@pytest.mark.gpu
def test_kernel_on_the_gpu() -> None:
    compare("cuda", (*SHAPES, (1, 3, 2160, 3840)))


@pytest.mark.gpu
def test_torch_compile_takes_the_kernel_behind_a_shuffle() -> None:
    x = noise(1, 48, 33, 70).to("cuda").half().contiguous(memory_format=torch.channels_last)
    torch._dynamo.reset()
    with torch.no_grad():
        out = torch.compile(lambda t: halved(functional.pixel_shuffle(t, 4)), fullgraph=True, dynamic=False)(x)
    wanted = half(functional.pixel_shuffle(x, 4).double())
    assert float((out.double() - wanted).abs().max()) < 2**-10


if __name__ == "__main__":
    compare("cpu", ((1, 3, 2, 2), (2, 3, 4, 6), (1, 1, 4, 600)))
