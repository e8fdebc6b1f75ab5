"""Convolutions on 8-bit numbers: a recipe says which, and in what ranges; everything else stays in floats."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import nn
from torch.nn import functional

from gpupipe.models.recipe import OCTAVE

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.models.recipe import Layer, Numbers, Recipe

_LARGEST: dict[Numbers, float] = {"int8": 127.0, "fp8": 448.0}


class Quantiser(nn.Module):
    """Rounds to 8 bits and back, in the input's own dtype.

    Args:
        numbers: to what.
        top: the magnitude that becomes the largest number; one, or one for each output channel of weights.
    """

    top: torch.Tensor

    def __init__(self, numbers: Numbers, top: torch.Tensor) -> None:
        super().__init__()
        self.numbers, self.explicit = numbers, False
        self.register_buffer("top", top.float(), persistent=False)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """Ranges move with the module and stay fp32: the 127th part of one may be too small for half floats."""
        kept = self.top
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.top = kept.to(self.top.device)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        if self.explicit:  # modelopt's operator, which torch_tensorrt turns into TensorRT's quantise and dequantise
            bits, exponent = 8, 4 if self.numbers == "fp8" else 0
            marked: torch.Tensor = torch.ops.tensorrt.quantize_op(x, self.top, bits, exponent, False, False)
            return marked
        largest = _LARGEST[self.numbers]
        step = self.top / largest
        wide = x.float() / step
        if self.numbers == "fp8":
            rounded = wide.clamp(-largest, largest).to(torch.float8_e4m3fn).float()
        else:
            rounded = wide.round().clamp(-largest - 1, largest)
        return (rounded * step).to(x.dtype)

    def extra_repr(self) -> str:
        """Part of a network's identity, see `engines.identity`."""
        return self.numbers


class Convolution(nn.Module):
    """A convolution whose input and weights are rounded; the names of its parts are those that torch_tensorrt knows."""

    factor: torch.Tensor

    def __init__(self, conv: nn.Conv2d, layer: Layer, numbers: Numbers) -> None:
        super().__init__()
        weight = conv.weight.detach()
        self._balanced = bool(layer.balance)
        if layer.balance:
            steps = torch.tensor(layer.balance, device=weight.device, dtype=torch.float32)
            factor = (steps / OCTAVE).exp2().to(weight.dtype)
            weight = weight * factor.view(1, -1, 1, 1)
            self.register_buffer("factor", (1 / factor).view(1, -1, 1, 1))
        self.weight = nn.Parameter(weight.clone(), requires_grad=False)
        self.bias = conv.bias
        self.input_quantizer = Quantiser(numbers, torch.tensor(layer.top, device=weight.device))
        self.weight_quantizer = Quantiser(numbers, weight_tops(weight, numbers))
        self._how: tuple[Any, ...] = (conv.stride, conv.padding, conv.dilation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the convolution."""
        if self._balanced:
            x = x * self.factor
        return functional.conv2d(self.input_quantizer(x), self.weight_quantizer(self.weight), self.bias, *self._how)

    def extra_repr(self) -> str:
        """Part of a network's identity, see `engines.identity`."""
        return f"{tuple(self.weight.shape)}, stride, padding, dilation = {self._how}, balanced={self._balanced}"


def weight_tops(weight: torch.Tensor, numbers: Numbers) -> torch.Tensor:
    """Largest magnitudes: of each output channel (O, 1, 1, 1) for int8, of all for fp8, as TensorRT has them."""
    sizes = weight.detach().float().abs()
    return (sizes.amax((1, 2, 3), keepdim=True) if numbers == "int8" else sizes.amax()).clamp(min=1e-8)


def quantisable(conv: nn.Module) -> bool:
    """Whether it is a convolution that `Convolution` can stand for."""
    return isinstance(conv, nn.Conv2d) and conv.groups == 1 and conv.padding_mode == "zeros"


def quantised(network: nn.Module, recipe: Recipe) -> nn.Module:
    """A copy whose convolutions are replaced as the recipe has it. Raises ValueError where it is of another network."""
    network = copy.deepcopy(network)
    there, stands_for = dict(network.named_modules()), {}
    for layer in recipe.layers:
        conv = there.get(layer.name)
        if not isinstance(conv, nn.Conv2d) or (layer.balance and len(layer.balance) != conv.in_channels):
            raise ValueError(f"the recipe is of another network: {layer.name}")
        stands_for[id(conv)] = Convolution(conv, layer, recipe.numbers)
    for parent in list(network.modules()):
        for name, child in list(parent._modules.items()):  # noqa: SLF001  `named_children` leaves out what comes twice
            if child is not None and id(child) in stands_for:
                setattr(parent, name, stands_for[id(child)])
    return network.eval()


def marked(network: nn.Module) -> bool:
    """Makes every quantiser of a network say what it does by modelopt's operator; whether there is any."""
    found = [module for module in network.modules() if isinstance(module, Quantiser)]
    for module in found:
        module.explicit = True
    return bool(found)
