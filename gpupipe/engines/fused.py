"""Layers made one operator where compilers leave them several kernels: convolutions with their PReLU, how SR ends."""

from __future__ import annotations

import copy
import itertools
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from gpupipe.models.graph import Graph
from gpupipe.models.ncnn import Binary, Upscale
from gpupipe.ops.halve import doubled, doubled_now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.engines.base import Profile

_LEAST, _MOST, _NARROW = 16, 64, 8
"""Channels: of a matrix product of tensor cores at least, of the fast memory of a multiprocessor at most (72 KiB of the
99 that smaller cards have; of 128 channels it is 128 and more); and see `convolution_triton.NARROW`."""


def _convolved(
    pictures: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, slope: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """PReLU of a 3x3 convolution, see `convolution_triton.convolved`; in torch's own operators without a GPU."""
    if pictures.is_cuda:
        from gpupipe.engines.convolution_triton import convolved as ours  # noqa: PLC0415  only where triton is

        return ours(pictures, weight, bias, slope)
    taps = weight.view(3, 3, -1, weight.shape[1]).permute(3, 2, 0, 1)
    done = functional.prelu(functional.conv2d(pictures, taps, bias, padding=1), slope)
    return done.contiguous(memory_format=torch.channels_last)


convolved = torch.library.custom_op("gpupipe::convolved", _convolved, mutates_args=())
"""`_convolved` for compilers; called by others it imports theirs, which takes seconds."""


@convolved.register_fake
def _(pictures: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
    shape = (pictures.shape[0], weight.shape[1], *pictures.shape[2:])
    return torch.empty(shape, dtype=pictures.dtype, device=pictures.device, memory_format=torch.channels_last)


class Convolved(nn.Module):
    """Both layers in one."""

    weight: torch.Tensor
    bias: torch.Tensor
    slope: torch.Tensor

    def __init__(self, convolution: nn.Conv2d, after: nn.PReLU) -> None:
        super().__init__()
        assert convolution.bias is not None, "see `_known`"
        taps = convolution.weight.detach().permute(2, 3, 1, 0).reshape(-1, convolution.out_channels)
        self.register_buffer("weight", taps.contiguous())
        self.register_buffer("bias", convolution.bias.detach())
        self.register_buffer("slope", after.weight.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N x C x H x W to N x O x H x W."""
        call = convolved if torch.compiler.is_compiling() else _convolved
        return call(x, self.weight, self.bias, self.slope)


class Doubled(nn.Module):
    """What a network of four times the size ends with where half of it is wanted; the last convolution's bias, too."""

    bias: torch.Tensor

    def __init__(self, bias: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("bias", bias.detach())

    def forward(self, details: torch.Tensor, picture: torch.Tensor) -> torch.Tensor:
        """See `ops.halve.doubled`."""
        call = doubled if torch.compiler.is_compiling() else doubled_now
        return call(details, self.bias, picture)


def fusible(network: nn.Module, profile: Profile) -> bool:
    """Whether there are such layers, and a GPU in half precision with Triton to run them on."""
    if not profile.device.startswith("cuda") or profile.precision == "fp32" or find_spec("triton") is None:
        return False
    return any(_pairs(network)) or any(_ends(network))


def fused(network: nn.Module, profile: Profile) -> nn.Module:
    """A copy with such layers as one each; the network itself where it is not `fusible`."""
    return joined(network) if fusible(network, profile) else network


def joined(network: nn.Module) -> nn.Module:
    """`fused`, whatever the device is."""
    with torch.inference_mode(mode=False), torch.no_grad():  # what is made under it has no version, which compilers ask
        network = copy.deepcopy(network)
        for layers, first, second in list(_pairs(network)):
            convolution, after = layers[first], layers[second]
            assert isinstance(convolution, nn.Conv2d), "see `_known`"
            assert isinstance(after, nn.PReLU), "see `_known`"
            layers[first], layers[second] = nn.Identity(), Convolved(convolution, after)
        for layers, first, places, last in list(_ends(network)):
            convolution = layers[first]
            assert isinstance(convolution, nn.Conv2d), "see `_ends`"
            assert convolution.bias is not None, "see `_ends`"
            layers[last] = Doubled(convolution.bias)
            convolution.bias = None  # cuDNN's result would be read and written once more for it
            for place in places:
                layers[place] = nn.Identity()
    return network


def _ends(network: nn.Module) -> Iterator[tuple[nn.ModuleList, int, tuple[int, ...], int]]:
    """Lists of layers, and places of what `Doubled` does: the last convolution, layers of one input, the sum."""
    for graph in network.modules():
        if not isinstance(graph, Graph):
            continue
        layers, fed = graph.layers, graph.fed()
        for half, (added,) in ((place, by) for place, by in fed.items() if len(by) == 1):
            if added is None or not _scales(layers[half], "bicubic", 0.5) or not _adds(layers[added]):
                continue
            shuffle, nearest = fed[added]
            if shuffle is None or nearest is None or not _scales(layers[nearest], "nearest", 4.0):
                continue
            (first,) = fed[shuffle]
            if first is not None and _three_colours(layers[first], layers[shuffle]):
                yield layers, first, (shuffle, nearest, half), added


def _scales(layer: nn.Module, mode: str, scale: float) -> bool:
    return isinstance(layer, Upscale) and (layer.mode, layer.scale) == (mode, scale)


def _adds(layer: nn.Module) -> bool:
    return isinstance(layer, Binary) and layer.function is torch.add and layer.number is None


def _three_colours(last: nn.Module, shuffle: nn.Module) -> bool:
    """Whether they give three, of 48 channels four times the size."""
    if not isinstance(last, nn.Conv2d) or last.bias is None or last.out_channels != 48:
        return False
    return isinstance(shuffle, nn.PixelShuffle) and shuffle.upscale_factor == 4


def _pairs(network: nn.Module) -> Iterator[tuple[nn.Sequential | nn.ModuleList, int, int]]:
    """Lists of layers, and places in them of a convolution and of a PReLU that alone takes what it gives."""
    for module in network.modules():
        layers: nn.Sequential | nn.ModuleList
        if isinstance(module, Graph):
            layers, places = module.layers, module.followed()
        elif isinstance(module, nn.Sequential):
            layers, places = module, list(itertools.pairwise(range(len(module))))
        else:
            continue
        yield from ((layers, a, b) for a, b in places if _known(layers[a], layers[b]))


def _known(first: nn.Module, second: nn.Module) -> bool:
    """Whether the kernel knows them."""
    if not isinstance(first, nn.Conv2d) or not isinstance(second, nn.PReLU) or first.bias is None:
        return False
    shape = (first.kernel_size, first.stride, first.padding, first.dilation, first.groups, first.padding_mode)
    channels, wide = first.in_channels, first.out_channels
    fits = _fits(wide) and (_fits(channels) or channels <= _NARROW) and second.num_parameters == wide
    return fits and shape == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros")


def _fits(channels: int) -> bool:
    return _LEAST <= channels <= _MOST and channels.bit_count() == 1
