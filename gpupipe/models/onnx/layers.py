"""ONNX operators that have weights, and those that look at neighbours. Constant weights become torch's own layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpupipe.models.onnx.node import Node

    Run = Callable[..., Any]
_CONVOLUTIONS: dict[int, Callable[..., nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def _filled(layer: nn.Module, **tensors: torch.Tensor | None) -> nn.Module:
    for name, tensor in tensors.items():
        if tensor is not None:
            getattr(layer, name).data = tensor
    return layer


def _atleast0(size: Any) -> Any:
    return torch.sym_max(size, 0)  # type: ignore[no-untyped-call]


def _same(x: torch.Tensor, mode: str, kernel: Sequence[int], strides: Sequence[int], steps: Sequence[int]) -> list[int]:
    """ONNX's `auto_pad`: ends large enough for ceil(size / stride) results, the odd one at the end for SAME_UPPER."""
    sizes = x.shape[-len(kernel) :]
    whole = [
        _atleast0((-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        for size, k, s, d in zip(sizes, kernel, strides, steps, strict=True)
    ]
    small, large = [n // 2 for n in whole], [n - n // 2 for n in whole]
    return small + large if mode == "SAME_UPPER" else large + small


def _pairs(pads: Sequence[int]) -> list[int]:
    """ONNX's begins and ends to torch's pairs, last axis first."""
    half = len(pads) // 2
    return [n for i in reversed(range(half)) for n in (pads[i], pads[i + half])]


class _Padded(nn.Module):
    """Uneven or size-dependent padding before a layer that pads by itself only evenly."""

    def __init__(self, run: Run, pads: Callable[[torch.Tensor], Sequence[int]], value: float = 0.0) -> None:
        super().__init__()
        self.run, self._pads, self._value = run, pads, value

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> Any:
        return self.run(functional.pad(x, _pairs(self._pads(x)), value=self._value), *more)


def _padding(node: Node, kernel: Sequence[int], strides: Sequence[int], steps: Sequence[int]) -> Any:
    """Even padding as a list, or a function of the input that gives begins and ends."""
    rank = len(kernel)
    mode, pads = node.get("auto_pad", "NOTSET"), node.get("pads") or [0] * (2 * rank)
    if mode in {"SAME_UPPER", "SAME_LOWER"}:
        return lambda x: _same(x, mode, kernel, strides, steps)
    if mode == "VALID":
        return [0] * rank
    if pads[:rank] == pads[rank:]:
        return pads[:rank]
    return lambda _: pads


def _conv(node: Node) -> Run:
    weight = node.weight(1)
    kernel = node.get("kernel_shape") or (None if weight is None else list(weight.shape[2:]))
    if kernel is None:
        raise node.wrong("a convolution with computed weights and no kernel_shape is not read")
    rank = len(kernel)
    strides, steps = node.get("strides") or [1] * rank, node.get("dilations") or [1] * rank
    groups = node.get("group", 1)
    pads = _padding(node, kernel, strides, steps)
    even = [0] * rank if callable(pads) else pads
    run: Run
    if weight is None or (node.has(2) and node.weight(2) is None):
        run = lambda x, w, b=None: _CONVOLVE[rank](x, w, b, strides, even, steps, groups)  # noqa: E731
    else:
        node.take(1)
        bias = node.take(2)
        layer = _CONVOLUTIONS[rank](
            weight.shape[1] * groups,
            weight.shape[0],
            kernel,
            stride=strides,
            padding=even,
            dilation=steps,
            groups=groups,
            bias=bias is not None,
        )
        run = _filled(layer, weight=weight, bias=bias)
    return _Padded(run, pads) if callable(pads) else run


def _transposed(node: Node) -> Run:
    weight = node.take(1)
    if weight is None or weight.dim() != 4:
        raise node.wrong("a transposed convolution is read with constant weights of two dimensions only")
    bias = node.take(2)
    node.get("kernel_shape")
    node.only("auto_pad", "NOTSET", "VALID")
    node.only("output_shape", None)
    pads, extra = node.get("pads", [0] * 4), node.get("output_padding", [0, 0])
    groups, strides, steps = node.get("group", 1), node.get("strides", [1, 1]), node.get("dilations", [1, 1])
    if pads[:2] != pads[2:]:
        raise node.wrong(f"uneven padding {pads} of a transposed convolution is not read")
    layer = nn.ConvTranspose2d(
        weight.shape[0],
        weight.shape[1] * groups,
        (weight.shape[2], weight.shape[3]),
        stride=tuple(strides),
        padding=tuple(pads[:2]),
        output_padding=tuple(extra),
        groups=groups,
        bias=bias is not None,
        dilation=tuple(steps),
    )
    return _filled(layer, weight=weight, bias=bias)


def _gemm(node: Node) -> Run:
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    first, second = bool(node.get("transA", 0)), bool(node.get("transB", 0))
    weight, bias = node.weight(1), node.weight(2)
    plain = not first and weight is not None and (bias is not None) == node.has(2) and (bias is None or bias.dim() == 1)
    if plain and weight is not None:
        node.take(1), node.take(2)
        rows = (weight if second else weight.T).contiguous() * alpha
        layer = nn.Linear(rows.shape[1], rows.shape[0], bias=bias is not None)
        bias = None if bias is None else (bias * beta).expand(rows.shape[0]).contiguous()
        return _filled(layer, weight=rows, bias=bias)

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None = None) -> Any:
        product = (a.T if first else a) @ (b.T if second else b) * alpha
        return product if c is None else product + c * beta

    return run


def _matmul(node: Node) -> Run:
    weight = node.weight(1)
    if weight is None or weight.dim() != 2:
        return torch.matmul
    node.take(1)
    layer = nn.Linear(weight.shape[0], weight.shape[1], bias=False)
    return _filled(layer, weight=weight.T.contiguous())


class _Normalisation(nn.BatchNorm2d):
    """Of any rank: the same operator follows convolutions and plain matrices."""

    def _check_input_dim(self, input: torch.Tensor) -> None:  # noqa: A002  (torch's name)
        del input


def _batch_norm(node: Node) -> Run:
    epsilon = node.get("epsilon", 1e-5)
    node.get("momentum")
    node.only("training_mode", 0)
    node.only("spatial", 1)
    node.only("consumed_inputs", None, [0, 0, 0, 1, 1])
    gain, bias, mean, variance = (node.take(i) for i in range(1, 5))
    if gain is None or bias is None or mean is None or variance is None:
        raise node.wrong("a batch normalisation is read with constant weights only")
    layer = _Normalisation(len(gain), eps=epsilon)
    return _filled(layer, weight=gain, bias=bias, running_mean=mean, running_var=variance).eval()


def _instance_norm(node: Node) -> Run:
    epsilon = node.get("epsilon", 1e-5)
    return lambda x, gain, bias: functional.instance_norm(x, weight=gain, bias=bias, eps=epsilon)


def _layer_norm(node: Node) -> Run:
    axis, epsilon = node.get("axis", -1), node.get("epsilon", 1e-5)
    node.get("stash_type")

    def run(x: torch.Tensor, gain: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return functional.layer_norm(x, list(x.shape[axis:]), gain, bias, epsilon)

    return run


def _group_norm(node: Node) -> Run:
    groups, epsilon = node.get("num_groups"), node.get("epsilon", 1e-5)
    node.get("stash_type")
    if node.opset < 21:
        raise node.wrong("GroupNormalization before operator set 21 is not read")
    return lambda x, gain, bias: functional.group_norm(x, groups, gain, bias, epsilon)


def _pool(node: Node) -> Run:
    kernel = node.get("kernel_shape")
    rank = len(kernel)
    strides, steps = node.get("strides") or [1] * rank, node.get("dilations") or [1] * rank
    ceil, largest = bool(node.get("ceil_mode", 0)), node.op == "MaxPool"
    counted = bool(node.get("count_include_pad", 0))
    node.only("storage_order", 0)
    pads = _padding(node, kernel, strides, steps)
    if rank != 2 or len(node.outputs) > 1:
        raise node.wrong("pooling is read in two dimensions and with one output only")
    uneven = callable(pads)
    even = [0, 0] if uneven else pads
    if largest:
        run: Run = lambda x: functional.max_pool2d(x, kernel, strides, even, steps, ceil)  # noqa: E731
        return _Padded(run, pads, float("-inf")) if uneven else run
    if (uneven and not counted) or steps != [1] * rank:
        raise node.wrong("this average is not read: its padding is uneven and not counted, or it is dilated")
    run = lambda x: functional.avg_pool2d(x, kernel, strides, even, ceil, counted)  # noqa: E731
    return _Padded(run, pads) if uneven else run


def _over_picture(function: Run) -> Callable[[Node], Run]:
    return lambda _: lambda x: function(x, list(range(2, x.dim())), keepdim=True)


def _grid_sample(node: Node) -> Run:
    mode, corners = node.get("mode", "linear"), bool(node.get("align_corners", 0))
    border = node.get("padding_mode", "zeros")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return lambda x, grid: functional.grid_sample(x, grid, mode=mode, padding_mode=border, align_corners=corners)


def _einsum(node: Node) -> Run:
    equation = node.get("equation")
    return lambda *parts: torch.einsum(equation, *parts)


OPERATORS: dict[str, Callable[[Node], Run]] = {
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "ConvTranspose": _transposed,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GlobalAveragePool": _over_picture(torch.mean),
    "GlobalMaxPool": _over_picture(torch.amax),
    "GridSample": _grid_sample,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "MatMul": _matmul,
    "MaxPool": _pool,
}
