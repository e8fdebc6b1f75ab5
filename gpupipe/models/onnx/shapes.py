"""ONNX operators that move values about."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpupipe.models.onnx.node import Node

    Run = Callable[..., Any]


def _reshape(node: Node) -> Run:
    zero = node.get("allowzero", 0)
    node.on_host(1)

    def run(x: torch.Tensor, shape: list[int]) -> torch.Tensor:
        return x.reshape([x.shape[i] if size == 0 and not zero else size for i, size in enumerate(shape)])

    return run


def _transpose(node: Node) -> Run:
    order = node.get("perm")
    return lambda x: x.permute(order or tuple(range(x.dim()))[::-1])


def _flatten(node: Node) -> Run:
    axis = node.get("axis", 1)

    def run(x: torch.Tensor) -> torch.Tensor:
        cut = axis % (x.dim() + 1) if axis < 0 else axis
        return x.reshape(1, -1) if cut == 0 else x.flatten(0, cut - 1).flatten(1) if cut < x.dim() else x.reshape(-1, 1)

    return run


def _axes(node: Node) -> list[int] | None:
    axes: list[int] | None = node.get("axes")
    if node.has(1):
        given = node.fixed(1)
        axes = [int(axis) for axis in (given if isinstance(given, list) else [given or 0])]
    return axes


def _squeeze(node: Node) -> Run:
    axes = _axes(node)
    return lambda x: x.squeeze() if axes is None else x.squeeze(tuple(axes))


def _unsqueeze(node: Node) -> Run:
    axes = _axes(node) or []

    def run(x: torch.Tensor) -> torch.Tensor:
        rank = x.dim() + len(axes)
        for axis in sorted(axis % rank for axis in axes):
            x = x.unsqueeze(axis)
        return x

    return run


def _concat(node: Node) -> Run:
    axis = node.get("axis")
    return lambda *parts: torch.cat(parts, axis)


def _split(node: Node) -> Run:
    axis, sizes, count = node.get("axis", 0), node.get("split"), node.get("num_outputs", len(node.outputs))
    if node.has(1):
        sizes = node.fixed(1)

    def run(x: torch.Tensor) -> Any:
        parts = torch.split(x, sizes or -(-x.shape[axis] // count), axis)
        return parts if len(parts) > 1 else parts[0]

    return run


def _slice(node: Node) -> Run:
    if node.opset < 10:
        starts, ends, axes = node.get("starts"), node.get("ends"), node.get("axes")
        return lambda x: _sliced(x, starts, ends, axes, None)
    node.on_host(1, 2, 3, 4)
    return lambda x, starts, ends, axes=None, steps=None: _sliced(x, starts, ends, axes, steps)


def _sliced(
    x: torch.Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> torch.Tensor:
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step > 0:
            x = x[(*[slice(None)] * (axis % x.dim()), slice(start, end, step))]
        elif start in {-1, 2**63 - 1} and end <= -(2**31) and step == -1:
            x = x.flip(axis)
        else:
            raise ValueError(f"a slice from {start} to {end} by {step}")
    return x


def _gather(node: Node) -> Run:
    axis = node.get("axis", 0)
    index = node.weight(1)
    if index is None:
        return lambda x, index: torch.index_select(x, axis, index.reshape(-1)).reshape(
            *x.shape[: axis % x.dim()], *index.shape, *x.shape[axis % x.dim() + 1 :]
        )
    node.on_host(1)
    if index.dim() == 0:
        return lambda x, index: x.select(axis, index)
    if index.dim() > 1:
        raise node.wrong(f"indices of {index.dim()} dimensions are not read")
    return lambda x, index: torch.cat([x.narrow(axis, i % x.shape[axis], 1) for i in index], axis)


def _expand(node: Node) -> Run:
    node.on_host(1)

    def run(x: torch.Tensor, shape: list[int]) -> torch.Tensor:
        missing = max(x.dim() - len(shape), 0)
        wide = [1] * missing + list(shape)
        sizes = [1] * (len(wide) - x.dim()) + list(x.shape)
        return x.expand([a if b == 1 else b for a, b in zip(sizes, wide, strict=True)])

    return run


def _tile(node: Node) -> Run:
    node.on_host(1)
    return lambda x, times: x.repeat(*times)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}


def _pad(node: Node) -> Run:
    mode = node.get("mode", "constant")
    if mode not in _MODES:
        raise node.wrong(f"padding by {mode!r} is not read")
    if node.opset < 11:
        pads, value = node.get("pads", node.get("paddings")), node.get("value", 0.0)
        return lambda x: _padded(x, pads, _MODES[mode], value, None)
    node.on_host(1, 2, 3)
    return lambda x, pads, value=None, axes=None: _padded(x, pads, _MODES[mode], value or 0.0, axes)


def _padded(
    x: torch.Tensor, pads: Sequence[int], mode: str, value: float | list[float], axes: Sequence[int] | None
) -> torch.Tensor:
    """ONNX has all begins, then all ends, first axis first; torch has pairs, last axis first."""
    number = value[0] if isinstance(value, list) else value
    begins, ends = [0] * x.dim(), [0] * x.dim()
    for i, axis in enumerate(range(x.dim()) if axes is None else axes):
        begins[axis], ends[axis] = pads[i], pads[i + len(pads) // 2]
    pairs = list(itertools.chain.from_iterable(zip(begins[::-1], ends[::-1], strict=True)))
    while len(pairs) > 2 and isinstance(pairs[-1], int) and isinstance(pairs[-2], int) and pairs[-1] == pairs[-2] == 0:
        pairs = pairs[:-2]
    return functional.pad(x, pairs, mode) if mode != "constant" else functional.pad(x, pairs, mode, number)


def _depth_to_space(node: Node) -> Run:
    size, mode = node.get("blocksize"), node.get("mode", "DCR")
    if mode == "CRD":
        return nn.PixelShuffle(size)

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        parts = x.reshape(n, size, size, c // size**2, h, w).permute(0, 3, 4, 1, 5, 2)
        return parts.reshape(n, c // size**2, h * size, w * size)

    return run


def _space_to_depth(node: Node) -> Run:
    size = node.get("blocksize")

    def run(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        parts = x.reshape(n, c, h // size, size, w // size, size).permute(0, 3, 5, 1, 2, 4)
        return parts.reshape(n, c * size**2, h // size, w // size)

    return run


class _Full(nn.Module):
    value: torch.Tensor

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value.reshape(()), persistent=False)

    def forward(self, shape: list[int]) -> torch.Tensor:
        return self.value.expand(shape)


def _constant_of_shape(node: Node) -> Run:
    value = node.get("value")
    node.on_host(0)
    return _Full(torch.zeros(()) if value is None else value)


class _Range(nn.Module):
    """Numbers from one to another, on the device of the module and in its precision."""

    like: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, start: Any, end: Any, step: Any) -> torch.Tensor:
        broken = any(isinstance(value, float | torch.SymFloat) for value in (start, end, step))
        kind = self.like.dtype if broken else torch.int64
        return torch.arange(start, end, step, dtype=kind, device=self.like.device)


def _range(node: Node) -> Run:
    node.on_host(0, 1, 2)
    return _Range()


OPERATORS: dict[str, Callable[[Node], Run]] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
