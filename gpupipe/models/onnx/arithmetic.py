"""ONNX operators that work on values one by one, or reduce them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.models.onnx.node import Node

    Run = Callable[..., Any]
_FLOATS = {1, 10, 11, 16}
_KINDS = {2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool}


def _plain(function: Run) -> Callable[[Node], Run]:
    return lambda _: function


def _divide(a: Any, b: Any) -> Any:
    """Whole numbers are cut towards zero, as in C."""
    whole = not any(x.is_floating_point() if isinstance(x, torch.Tensor) else isinstance(x, float) for x in (a, b))
    return torch.div(a, b, rounding_mode="trunc") if whole else a / b


def _many(function: Run) -> Callable[[Node], Run]:
    return lambda _: lambda *values: functools.reduce(function, values)


class _ToFloat(nn.Module):
    """To the precision of the module, whatever it is moved to."""

    like: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.is_floating_point() else x.to(self.like.dtype)


def _cast(node: Node) -> Run:
    kind = node.get("to")
    node.get("saturate")
    if kind in _FLOATS:
        return _ToFloat()
    if kind not in _KINDS:
        raise node.wrong(f"a cast to type {kind} is not read")
    return lambda x: x.to(_KINDS[kind])


def _clip(node: Node) -> Run:
    if node.opset < 11:
        low, high = node.get("min"), node.get("max")
        return lambda x: torch.clamp(x, low, high)
    node.on_host(1, 2)
    return lambda x, low=None, high=None: torch.clamp(x, low, high)


def _softmax(function: Run) -> Callable[[Node], Run]:
    def build(node: Node) -> Run:
        axis = node.get("axis", -1 if node.opset >= 13 else 1)
        if node.opset >= 13:
            return lambda x: function(x, axis)

        def run(x: torch.Tensor) -> Any:  # over all axes from that one on
            return function(x.flatten(axis), -1).view(x.shape)

        return run

    return build


def _prelu(node: Node) -> Run:
    slope = node.weight(1)
    if slope is not None and (slope.numel() == 1 or slope.shape[-2:] == (1, 1)):
        node.take(1)
        layer = nn.PReLU(slope.numel())
        layer.weight.data = slope.reshape(-1)
        return layer
    return lambda x, slope: torch.where(x < 0, x * slope, x)


def _gelu(node: Node) -> Run:
    return nn.GELU(node.get("approximate", "none"))


def _with(function: Run, **defaults: float) -> Callable[[Node], Run]:
    def build(node: Node) -> Run:
        values = [node.get(name, default) for name, default in defaults.items()]
        return lambda x: function(x, *values)

    return build


def _reduce(function: Run) -> Callable[[Node], Run]:
    def build(node: Node) -> Run:
        axes, keep = node.get("axes"), bool(node.get("keepdims", 1))
        node.only("noop_with_empty_axes", 0)
        if node.has(1):
            axes = node.fixed(1)

        def run(x: torch.Tensor) -> Any:
            return function(x, list(range(x.dim())) if axes is None else axes, keep)

        return run

    return build


def _product(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keep)
    return x


def _argmax(node: Node) -> Run:
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    node.only("select_last_index", 0)
    return lambda x: torch.argmax(x, axis, keep)


def _mod(node: Node) -> Run:
    return torch.fmod if node.get("fmod", 0) else torch.remainder


OPERATORS: dict[str, Callable[[Node], Run]] = {
    "Abs": _plain(torch.abs),
    "Add": _plain(lambda a, b: a + b),
    "And": _plain(torch.logical_and),
    "ArgMax": _argmax,
    "Cast": _cast,
    "Ceil": _plain(torch.ceil),
    "Clip": _clip,
    "Cos": _plain(torch.cos),
    "Div": _plain(_divide),
    "Dropout": lambda node: (node.get("ratio"), node.get("seed"), nn.Identity())[2],
    "Elu": _with(functional.elu, alpha=1.0),
    "Equal": _plain(lambda a, b: a == b),
    "Erf": _plain(torch.erf),
    "Exp": _plain(torch.exp),
    "Floor": _plain(torch.floor),
    "Gelu": _gelu,
    "Greater": _plain(lambda a, b: a > b),
    "GreaterOrEqual": _plain(lambda a, b: a >= b),
    "HardSigmoid": _with(lambda x, a, b: torch.clamp(x * a + b, 0, 1), alpha=0.2, beta=0.5),
    "HardSwish": lambda _: nn.Hardswish(),
    "Identity": lambda _: nn.Identity(),
    "LeakyRelu": lambda node: nn.LeakyReLU(node.get("alpha", 0.01)),
    "Less": _plain(lambda a, b: a < b),
    "LessOrEqual": _plain(lambda a, b: a <= b),
    "Log": _plain(torch.log),
    "LogSoftmax": _softmax(functional.log_softmax),
    "Max": _many(torch.maximum),
    "Min": _many(torch.minimum),
    "Mish": lambda _: nn.Mish(),
    "Mod": _mod,
    "Mul": _plain(lambda a, b: a * b),
    "Neg": _plain(torch.neg),
    "Not": _plain(torch.logical_not),
    "Or": _plain(torch.logical_or),
    "PRelu": _prelu,
    "Pow": _plain(torch.pow),
    "Reciprocal": _plain(torch.reciprocal),
    "ReduceL2": _reduce(lambda x, axes, keep: torch.linalg.vector_norm(x, dim=axes, keepdim=keep)),
    "ReduceMax": _reduce(torch.amax),
    "ReduceMean": _reduce(torch.mean),
    "ReduceMin": _reduce(torch.amin),
    "ReduceProd": _reduce(_product),
    "ReduceSum": _reduce(torch.sum),
    "Relu": lambda _: nn.ReLU(),
    "Round": _plain(torch.round),
    "Sigmoid": lambda _: nn.Sigmoid(),
    "Sign": _plain(torch.sign),
    "Sin": _plain(torch.sin),
    "Softmax": _softmax(functional.softmax),
    "Softplus": lambda _: nn.Softplus(),
    "Sqrt": _plain(torch.sqrt),
    "Sub": _plain(lambda a, b: a - b),
    "Sum": _many(torch.add),
    "Tanh": lambda _: nn.Tanh(),
    "Where": _plain(torch.where),
}
