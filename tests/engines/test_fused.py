"""Convolution and PReLU as one operator: the graph that is made of a network, and the kernel in Triton's interpreter."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.testing import assert_close

from gpupipe.engines.base import Profile
from gpupipe.engines.fused import Convolved, Doubled, fused, joined
from gpupipe.engines.triton import Triton
from gpupipe.errors import EngineError
from gpupipe.models.graph import Graph, Step
from gpupipe.models.ncnn import Binary, Upscale

if TYPE_CHECKING:
    from collections.abc import Callable


def packed(weight: torch.Tensor) -> torch.Tensor:
    return weight.permute(2, 3, 1, 0).reshape(-1, len(weight)).contiguous()


def compare(device: str, sizes: tuple[tuple[int, int, int], ...], channels: tuple[tuple[int, int], ...]) -> None:
    """The kernel against torch's own operators in float64, at most two steps of half precision apart."""
    from gpupipe.engines import convolution_triton as ours  # noqa: PLC0415  (reads the environment)

    random = torch.Generator().manual_seed(2)
    for count, height, width in sizes:
        for deep, wide in channels:
            x = torch.randn(count, deep, height, width, generator=random).to(device).half()
            weight = (torch.randn(wide, deep, 3, 3, generator=random) / (9 * deep) ** 0.5).to(device).half()
            bias, slope = (torch.randn(wide, generator=random).to(device).half() for _ in range(2))
            wanted = functional.prelu(
                functional.conv2d(x.double(), weight.double(), bias.double(), padding=1), slope.double()
            )
            x = x.contiguous(memory_format=torch.channels_last)
            for fetched in {False, device == "cpu" or ours.fetched(x)}:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(ours, "fetched", lambda _, by_tiles=fetched: by_tiles)
                    got = ours.convolved(x, packed(weight), bias, slope)
                assert got.is_contiguous(memory_format=torch.channels_last)
                assert torch.allclose(got.double(), wanted, rtol=2**-9, atol=2**-9), (x.shape, wide, fetched)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed; the gpu tests run the kernel")
def test_kernel_in_the_interpreter(by_the_interpreter: Callable[[], None]) -> None:
    by_the_interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernel_compiles_for_gpus_and_fits_their_memory(by_the_compiler: Callable[[str], None]) -> None:
    """Without a GPU, to machine code; what the interpreter lets pass may not compile. KiB of a block: CUDA's guide."""
    program = """
from gpupipe.engines.convolution_triton import _COLUMNS, _PIXELS, _ROWS, _STAGES, _WARPS, _narrow, _tiled, _wide
from gpupipe.engines.fused import _MOST
wide = dict(IN=_MOST, OUT=_MOST, PIXELS=_PIXELS, STAGES=_STAGES)
narrow = dict(IN=3, OUT=_MOST, PIXELS=_PIXELS, DEEP=32)
for capability, memory in ((89, 99), (90, 227)):
    for kernel, warps, constants in ((_wide, _WARPS, wide), (_narrow, 4, narrow)):
        done = compiled(kernel, constants, capability=capability, warps=warps, aligned=True)
        assert done.metadata.shared <= memory << 10, (capability, done.metadata.shared)
        assert kernel is _narrow or "cp.async" in done.asm["ptx"], "pixels are asked for ahead"
tiled = dict(IN=_MOST, OUT=_MOST, ROWS=_ROWS, COLUMNS=_COLUMNS, STAGES=_STAGES)
done = compiled(_tiled, tiled, dict(tiles=f"tensordesc<fp16[1,{_ROWS},{_COLUMNS},{_MOST}]>"), warps=_WARPS)
assert "cp.async.bulk.tensor" in done.asm["ptx"]
assert done.metadata.shared <= 227 << 10
"""
    by_the_compiler(program)


@pytest.mark.gpu
def test_kernel_on_the_gpu() -> None:
    compare("cuda", ((1, 1080, 1920), (2, 33, 129)), ((3, 64), (64, 64), (16, 32)))


@pytest.mark.gpu
def test_values_beyond_what_32_bits_count_on_the_gpu() -> None:
    """A picture of 8K with 64 channels: its last lines, which no one else computes so far into memory."""
    from gpupipe.engines.convolution_triton import convolved  # noqa: PLC0415

    random, deep, height, width, last = torch.Generator().manual_seed(3), 64, 4320, 8192, 6
    x = torch.zeros(1, deep, height, width, dtype=torch.float16, device="cuda").contiguous(
        memory_format=torch.channels_last
    )
    end = torch.randn(1, deep, last, width, generator=random).to("cuda").half()
    x[:, :, -last:] = end
    weight = (torch.randn(deep, deep, 3, 3, generator=random) / 24).to("cuda").half()
    bias = slope = torch.rand(deep, generator=random).to("cuda").half()
    wanted = convolved(end, packed(weight), bias, slope)[:, :, 1:]
    assert torch.equal(convolved(x, packed(weight), bias, slope)[:, :, 1 - last :], wanted)


def layers() -> list[nn.Module]:
    """Pairs of every kind that is taken, and of some that are not."""
    return [
        nn.Conv2d(3, 16, 3, padding=1), nn.PReLU(16), nn.Conv2d(16, 32, 3, padding=1), nn.PReLU(32),
        nn.Conv2d(32, 32, 3, padding=1, stride=2), nn.PReLU(32), nn.Conv2d(32, 24, 3, padding=1), nn.PReLU(24),
        nn.Conv2d(24, 16, 3, padding=1), nn.PReLU(1), nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.PReLU(16),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 128, 3, padding=1), nn.PReLU(128),
        nn.Conv2d(128, 3, 3, padding=1),
    ]  # fmt: skip


def listed() -> Graph:
    """The same as a list of steps; one value more is wanted, of a convolution that a PReLU follows."""
    steps = [Step(layer, (str(n),), (str(n + 1),)) for n, layer in enumerate(layers())]
    steps.append(Step(torch.add, ("17", "17"), ("out",)))
    return Graph(["0"], ["out", "3"], steps, {}, {})


@pytest.mark.parametrize(("make", "taken"), [(lambda: nn.Sequential(*layers()), 2), (listed, 1)])
def test_pairs_that_the_kernel_knows_become_one_layer(make, taken: int) -> None:
    torch.manual_seed(1)
    network, x = nn.ModuleDict({"inner": make().eval()})["inner"], torch.rand(2, 3, 12, 20)
    made = joined(network)
    assert sum(isinstance(one, Convolved) for one in made.modules()) == taken
    assert sum(isinstance(one, Convolved) for one in network.modules()) == 0, "a copy"
    with torch.inference_mode():
        assert_close(made(x), network(x), atol=1e-5, rtol=1e-4)


def test_a_compiler_takes_it() -> None:
    torch.manual_seed(1)
    network, x = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.PReLU(16)).eval(), torch.rand(1, 3, 8, 12)
    made = joined(network)
    with torch.inference_mode():
        compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
        assert_close(compiled(x), network(x), atol=1e-5, rtol=1e-4)
    torch.library.opcheck(torch.ops.gpupipe.convolved, (x, made[1].weight, made[1].bias, made[1].slope))


def ending(scale: float = 0.5, factor: int = 4, *, taken_twice: bool = False) -> Graph:
    """How a network that doubles by way of four ends."""
    steps = [
        Step(nn.Conv2d(3, 3 * factor**2, 3, padding=1), ("0",), ("1",)),
        Step(nn.PixelShuffle(factor), ("1",), ("2",)),
        Step(Upscale(1, float(factor)), ("0",), ("3",)),
        Step(Binary(0, None), ("2", "3"), ("4",)),
        Step(Upscale(3, scale), ("4",), ("5",)),
    ]
    return Graph(["0"], ["5", "4"] if taken_twice else ["5"], steps, {}, {})


def test_the_end_of_a_network_that_doubles_is_one_layer() -> None:
    torch.manual_seed(1)
    network, x = ending().eval(), torch.rand(2, 3, 12, 20)
    made = joined(network)
    assert [type(one) for one in made.layers].count(Doubled) == 1
    with torch.inference_mode():
        assert_close(made(x), network(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("other", [ending(0.25), ending(factor=2), ending(taken_twice=True)])
def test_another_end_stays_what_it_is(other: Graph) -> None:
    assert not any(isinstance(layer, Doubled) for layer in joined(other.eval()).layers)


def test_where_there_is_no_such_layer_the_network_stays_what_it_is() -> None:
    plain, half = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()), Profile(1, 8, 8, "fp16", "cuda:0")
    assert fused(plain, half) is plain
    several = nn.Sequential(*layers())
    for profile in (Profile(1, 8, 8, "fp16", "cpu"), Profile(1, 8, 8, "fp32", "cuda:0")):
        assert fused(several, profile) is several
    assert Triton().suits(several, half) == (find_spec("triton") is not None)
    assert not Triton().suits(plain, half)
    with pytest.raises(EngineError, match="engine triton has no kernels for this network in fp16"):
        Triton().load(plain, half, Path())


if __name__ == "__main__":
    compare("cpu", ((1, 3, 5), (2, 3, 131)), ((3, 16), (16, 16), (32, 16)))
