"""TFLite operators as torch layers and functions."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tflite
import torch
from torch import nn
from torch.nn import functional

from gpupipe.errors import MediaError

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., Any]

_ACTIVATIONS: dict[int, Callable[[], nn.Module]] = {
    tflite.ActivationFunctionType.RELU: nn.ReLU,
    tflite.ActivationFunctionType.RELU6: nn.ReLU6,
    tflite.ActivationFunctionType.TANH: nn.Tanh,
}
_Pads = tuple[int, int, int, int]
"""Left, right, top, bottom, as torch wants them."""
_CHANNELS_FIRST = {0: 0, 1: 2, 2: 3, 3: 1, -1: 1}
"""Axis of a TFLite picture to ours."""


@dataclass(frozen=True)
class Node:
    """One operator: its options, the shapes of what it takes and gives, and the constants among them."""

    name: str
    options: Any
    shapes: list[list[int]]
    out: list[int]
    constants: list[torch.Tensor | None]
    where: str
    custom: bytes = b""
    """Options of an operator that is not TFLite's own."""

    def wrong(self, message: str) -> MediaError:
        """An error that names the operator."""
        return MediaError(message, where=self.where)

    def read(self, kind: Any) -> Any:
        """The options as what they are; where a file has none, each is the schema's default."""
        if self.options is None:
            raise self.wrong("has no options")
        options = kind()
        options.Init(self.options.Bytes, self.options.Pos)
        return options

    def constant(self, index: int) -> torch.Tensor:
        """An input from the file. Raises MediaError where it is computed."""
        value = self.constants[index]
        if value is None:
            raise self.wrong(f"its input {index} is computed, only a constant is read")
        return value

    def then(self, run: Run, activation: int) -> Run:
        """With what TFLite fuses into an operator."""
        if activation == tflite.ActivationFunctionType.NONE:
            return run
        if activation not in _ACTIVATIONS:
            raise self.wrong(f"activation {activation} is not read")
        return nn.Sequential(run, _ACTIVATIONS[activation]()) if isinstance(run, nn.Module) else _Then(run, activation)


class _Then(nn.Module):
    def __init__(self, run: Run, activation: int) -> None:
        super().__init__()
        self._run, self.activation = run, _ACTIVATIONS[activation]()

    def forward(self, *values: torch.Tensor) -> Any:
        return self.activation(self._run(*values))


def _same(size: int, kernel: int, stride: int, step: int = 1) -> tuple[int, int]:
    whole = max((-(-size // stride) - 1) * stride + (kernel - 1) * step + 1 - size, 0)
    return whole // 2, whole - whole // 2


def _pads(
    node: Node, kernel: tuple[int, int], options: Any, steps: tuple[int, int] = (1, 1)
) -> tuple[int, int, int, int]:
    """Left, right, top, bottom, as torch wants them."""
    if options.Padding() == tflite.Padding.VALID:
        return 0, 0, 0, 0
    height, width = node.shapes[0][1:3]
    top, bottom = _same(height, kernel[0], options.StrideH(), steps[0])
    left, right = _same(width, kernel[1], options.StrideW(), steps[1])
    return left, right, top, bottom


def _convolved(node: Node, options: Any, weight: torch.Tensor, groups: int) -> Run:
    """A convolution whose weights are already torch's: out, in / groups, height, width."""
    steps = (options.DilationHFactor(), options.DilationWFactor())
    kernel = (weight.shape[2], weight.shape[3])
    left, right, top, bottom = _pads(node, kernel, options, steps)
    even = (top, left) if (left, top) == (right, bottom) else (0, 0)
    bias = node.constant(2) if len(node.constants) > 2 and node.shapes[2] else None
    strides = (options.StrideH(), options.StrideW())
    wide, deep = weight.shape[0], weight.shape[1] * groups
    layer: nn.Module = nn.Conv2d(deep, wide, kernel, strides, even, steps, groups, bias=bias is not None)
    layer.weight.data = weight.contiguous()
    if bias is not None:
        layer.bias.data = bias
    if even == (0, 0) and any((left, right, top, bottom)):
        layer = nn.Sequential(nn.ZeroPad2d((left, right, top, bottom)), layer)
    return node.then(layer, options.FusedActivationFunction())


def _conv(node: Node) -> Run:
    return _convolved(node, node.read(tflite.Conv2DOptions), node.constant(1).permute(0, 3, 1, 2), 1)


def _depthwise(node: Node) -> Run:
    weight = node.constant(1).permute(3, 0, 1, 2)
    return _convolved(node, node.read(tflite.DepthwiseConv2DOptions), weight, node.shapes[0][3])


def _pool(node: Node) -> Run:
    options = node.read(tflite.Pool2DOptions)
    kernel, strides = (options.FilterHeight(), options.FilterWidth()), (options.StrideH(), options.StrideW())
    pads = _pads(node, kernel, options)
    if node.name == "MAX_POOL_2D":
        layers = [nn.ConstantPad2d(pads, float("-inf"))] if any(pads) else []
        return node.then(nn.Sequential(*layers, nn.MaxPool2d(kernel, strides)), options.FusedActivationFunction())
    if any(pads):
        raise node.wrong("an average with padding is not read")
    return node.then(nn.AvgPool2d(kernel, strides), options.FusedActivationFunction())


def _two(function: Run, kind: Any) -> Callable[[Node], Run]:
    return lambda node: node.then(function, node.read(kind).FusedActivationFunction())


def _concat(node: Node) -> Run:
    options = node.read(tflite.ConcatenationOptions)
    axis = _CHANNELS_FIRST[options.Axis()] if len(node.out) == 4 else options.Axis()
    return node.then(lambda *parts: torch.cat(parts, axis), options.FusedActivationFunction())


def _pad(node: Node) -> Run:
    pairs = node.constant(1).tolist()
    if len(pairs) != 4 or any(pairs[0]):
        raise node.wrong(f"padding {pairs} is not read")
    _, height, width, channels = pairs
    return lambda x: functional.pad(x, (*width, *height, *channels))


def _reshape(node: Node) -> Run:
    """The sizes that TFLite has in the file, but for the batch."""
    sizes = node.out[1:]

    def run(x: torch.Tensor) -> torch.Tensor:
        flat = x.permute(0, 2, 3, 1) if x.dim() == 4 else x
        shaped = flat.reshape(x.shape[0], *sizes)
        return shaped.permute(0, 3, 1, 2) if shaped.dim() == 4 else shaped

    return run


def _prelu(node: Node) -> Run:
    slope = node.constant(1)
    if tuple(slope.shape[:-1]) != (1, 1):
        raise node.wrong(f"slopes {list(slope.shape)} are not read")
    layer = nn.PReLU(slope.numel())
    layer.weight.data = slope.reshape(-1)
    return layer


def _resize(node: Node) -> Run:
    options = node.read(tflite.ResizeBilinearOptions)
    if not options.HalfPixelCenters() and not options.AlignCorners():
        raise node.wrong("bilinear sampling from the corner is not read")
    size, corners = tuple(node.constant(1).tolist()), bool(options.AlignCorners())
    return lambda x: functional.interpolate(x, size, mode="bilinear", align_corners=corners)


def _mean(node: Node) -> Run:
    axes = sorted(node.constant(1).reshape(-1).tolist())
    if axes != [1, 2] or not node.read(tflite.ReducerOptions).KeepDims():
        raise node.wrong(f"a mean over axes {axes} is not read, only one over height and width that keeps them")
    return lambda x: x.mean((2, 3), keepdim=True)


def _transposed(node: Node) -> Run:
    """MediaPipe's Convolution2DTransposeBias: weights are out, height, width, in; options are padding and strides."""
    weight, bias = node.constant(1).permute(3, 0, 1, 2), node.constant(2)
    _, down, across = struct.unpack("<3i", node.custom)
    if (down, across) != tuple(weight.shape[2:]):
        raise node.wrong(f"kernel {list(weight.shape[2:])} at strides {[down, across]} is not read, only equal ones")
    layer = nn.ConvTranspose2d(weight.shape[0], weight.shape[1], (down, across), (down, across))
    layer.weight.data = weight.contiguous()
    layer.bias.data = bias  # type: ignore[union-attr]
    return layer


SEVERAL: dict[str, Callable[[Node], Run]] = {
    "ADD": _two(torch.add, tflite.AddOptions),
    "MUL": _two(torch.mul, tflite.MulOptions),
    "SUB": _two(torch.sub, tflite.SubOptions),
    "CONCATENATION": _concat,
}
"""Operators that take all of their inputs while they run."""

OPERATORS: dict[str, Callable[[Node], Run]] = SEVERAL | {
    "AVERAGE_POOL_2D": _pool,
    "CONV_2D": _conv,
    "Convolution2DTransposeBias": _transposed,
    "DEPTHWISE_CONV_2D": _depthwise,
    "HARD_SWISH": lambda _: nn.Hardswish(),
    "LOGISTIC": lambda _: nn.Sigmoid(),
    "MAX_POOL_2D": _pool,
    "MEAN": _mean,
    "PAD": _pad,
    "PRELU": _prelu,
    "RELU": lambda _: nn.ReLU(),
    "RELU6": lambda _: nn.ReLU6(),
    "RESHAPE": _reshape,
    "RESIZE_BILINEAR": _resize,
    "TANH": lambda _: nn.Tanh(),
}
"""Of the others the first input alone; the rest is constant and part of the layer."""
