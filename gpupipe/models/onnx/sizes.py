"""Arithmetic on sizes: what an exporter computes from `Shape` stays on the host, as Python numbers.

A value is a number or a list of numbers; sizes may be torch.SymInt, so torch.export sees a dynamic height and width.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.models.onnx.node import Node

_FLOATS = {1, 10, 11, 16}
_INTEGERS = {2, 3, 4, 5, 6, 7, 12, 13}


def _each(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numbers, on numbers and lists that are as long or have one element."""

    def run(*values: Any) -> Any:
        if not any(isinstance(value, list) for value in values):
            return function(*values)
        length = max(len(value) for value in values if isinstance(value, list))
        lists = [value if isinstance(value, list) else [value] for value in values]
        if any(len(value) not in {1, length} for value in lists):
            raise ValueError("sizes of different length")
        return [function(*(value[i % len(value)] for value in lists)) for i in range(length)]

    return run


def _simple(function: Callable[..., Any]) -> Callable[[Node], Callable[..., Any]]:
    return lambda node: _each(function) if node.op != "Identity" else function


def _divide(a: Any, b: Any) -> Any:
    whole = not isinstance(a, float | torch.SymFloat) and not isinstance(b, float | torch.SymFloat)
    return a // b if whole else a / b


def _float(size: Any) -> Any:
    return torch.sym_float(size)  # type: ignore[no-untyped-call]


def _cast(node: Node) -> Callable[..., Any]:
    kind = node.get("to")
    node.get("saturate")
    if kind in _FLOATS:
        return _each(_float)
    if kind in _INTEGERS:
        return _each(torch.sym_int)
    raise node.wrong(f"a size cast to type {kind}")


def _gather(node: Node) -> Callable[..., Any]:
    node.only("axis", 0)

    def run(values: list[Any], index: Any) -> Any:
        return [values[i] for i in index] if isinstance(index, list) else values[index]

    return run


def _slice(node: Node) -> Callable[..., Any]:
    starts, ends = node.get("starts"), node.get("ends")
    node.only("axes", None, [0])
    if starts is not None:
        return lambda values: values[starts[0] : ends[0]]

    def run(values: list[Any], start: Any, end: Any, axes: Any = None, step: Any = None) -> Any:
        del axes  # there is one
        return values[start[0] : end[0] : step[0] if step else None]

    return run


def _concat(node: Node) -> Callable[..., Any]:
    node.only("axis", 0, -1)
    return lambda *parts: [value for part in parts for value in part]


def _unsqueeze(node: Node) -> Callable[..., Any]:
    node.get("axes")

    def run(value: Any, axes: Any = None) -> Any:
        del axes
        if isinstance(value, list):
            raise ValueError("sizes of two dimensions")  # noqa: TRY004  (of the file, not of a caller)
        return [value]

    return run


def _squeeze(node: Node) -> Callable[..., Any]:
    node.get("axes")

    def run(value: list[Any], axes: Any = None) -> Any:
        del axes
        (only,) = value
        return only

    return run


def _reshape(node: Node) -> Callable[..., Any]:
    node.only("allowzero", 0, 1)

    def run(value: Any, shape: list[Any]) -> Any:
        flat = value if isinstance(value, list) else [value]
        if not shape:
            (only,) = flat
            return only
        if len(shape) != 1:
            raise ValueError("sizes of two dimensions")
        return flat

    return run


def _product(node: Node) -> Callable[..., Any]:
    node.get("axes")
    keep = node.get("keepdims", 1)
    node.only("noop_with_empty_axes", 0)

    def run(value: list[Any], axes: Any = None) -> Any:
        del axes
        result = math.prod(value)
        return [result] if keep else result

    return run


def _constant_of_shape(node: Node) -> Callable[..., Any]:
    value = node.get("value")
    fill = 0 if value is None else value.reshape(-1)[0].item()

    def run(shape: list[Any]) -> list[Any]:
        (length,) = shape
        return [fill] * length

    return run


def _shape(node: Node) -> Callable[..., Any]:
    start, end = node.get("start", 0), node.get("end")

    def run(x: Any) -> list[Any]:
        return [len(x)] if isinstance(x, list) else list(x.shape)[start:end]

    return run


FROM_TENSOR: dict[str, Callable[[Node], Callable[..., Any]]] = {
    "Shape": _shape,
    "Size": lambda _: lambda x: math.prod(x.shape),
}
"""Operators that look at a tensor's sizes only."""

OPERATORS: dict[str, Callable[[Node], Callable[..., Any]]] = {
    "Identity": _simple(lambda a: a),
    "Add": _simple(lambda a, b: a + b),
    "Sub": _simple(lambda a, b: a - b),
    "Mul": _simple(lambda a, b: a * b),
    "Div": _simple(_divide),
    "Mod": _simple(lambda a, b: a % b),
    "Neg": _simple(lambda a: -a),
    "Floor": _simple(lambda a: _float(math.floor(a))),
    "Ceil": _simple(lambda a: _float(math.ceil(a))),
    "Sqrt": _simple(torch.sym_sqrt),
    "Max": _simple(torch.sym_max),
    "Min": _simple(torch.sym_min),
    "Equal": _simple(lambda a, b: a == b),
    "Where": _simple(lambda c, a, b: a if c else b),
    "Cast": _cast,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "ReduceProd": _product,
    "ConstantOfShape": _constant_of_shape,
}
"""Operators on sizes alone."""
