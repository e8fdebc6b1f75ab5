"""ncnn's .param and .bin as a plain torch module (Tencent/ncnn: param-and-model-file-structure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from gpupipe.errors import MediaError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MAGIC = "7767517"
_HALF = 0x01306B47
_OPERATIONS: dict[int, Callable[..., torch.Tensor]] = {0: torch.add, 1: torch.sub, 2: torch.mul}
_RESAMPLING = {1: "nearest", 2: "bilinear", 3: "bicubic"}
_FUNCTIONS: dict[str, Callable[[], nn.Module]] = {"Sigmoid": nn.Sigmoid, "Swish": nn.SiLU}


class _Upscale(nn.Module):
    def __init__(self, kind: int, scale: float) -> None:
        super().__init__()
        self.mode, self.scale = _RESAMPLING[kind], scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        corners = None if self.mode == "nearest" else False
        return functional.interpolate(x, scale_factor=self.scale, mode=self.mode, align_corners=corners)


class _Binary(nn.Module):
    """Two inputs, or one and a number."""

    def __init__(self, operation: int, number: float | None) -> None:
        super().__init__()
        self.function, self.number = _OPERATIONS[operation], number

    def forward(self, a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        other = self.number if b is None else b
        if other is None:
            raise ValueError("an operation of two inputs got one")
        return self.function(a, other)


class _Constant(nn.Module):
    value: torch.Tensor

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        del x
        return self.value


class _Concat(nn.Module):
    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        return torch.cat(parts, 1)


class _Weights:
    """The .bin, read from front to back."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data, self._at, self._where = data, 0, where

    def raw(self, count: int, kind: str = "<f4") -> torch.Tensor:
        size = count * np.dtype(kind).itemsize
        if count < 0 or self._at + size > len(self._data):
            raise MediaError("ends before the weights that the .param asks for", where=self._where)
        values = np.frombuffer(self._data, kind, count, self._at)
        self._at += size
        return torch.from_numpy(values.astype(np.float32))

    def tagged(self, count: int) -> torch.Tensor:
        tag = int.from_bytes(self._data[self._at : self._at + 4], "little")
        self._at += 4
        if tag not in {0, _HALF}:
            raise MediaError(f"weights of kind {tag:#x} are not read, only fp32 and fp16", where=self._where)
        values = self.raw(count, "<f2" if tag else "<f4")
        self._at = (self._at + 3) & ~3
        return values

    def end(self) -> None:
        if self._at != len(self._data):
            raise MediaError(f"{len(self._data) - self._at} bytes are left over", where=self._where)


class Graph(nn.Module):
    """N x 3 x H x W in 0..1 to the network's output, layer after layer of the .param."""

    def __init__(self, layers: list[tuple[nn.Module, list[str], list[str]]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer for layer, _, _ in layers)
        self._names = [(inputs, outputs) for _, inputs, outputs in layers]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Runs the layers; the last one's output is the result."""
        values: dict[str, torch.Tensor] = {"": x}
        for layer, (inputs, outputs) in zip(self.layers, self._names, strict=True):
            x = layer(*(values[name] for name in inputs))
            values.update(dict.fromkeys(outputs, x))
        return x


def _convolution(p: dict[int, float], weights: _Weights) -> nn.Module:
    known = {0, 1, 3, 4, 5, 6}
    if set(p) - known:
        raise ValueError(f"parameters {sorted(set(p) - known)} of a convolution")
    wide, kernel, bias = int(p[0]), int(p[1]), bool(p.get(5, 0))
    deep = int(p[6]) // (wide * kernel * kernel)
    layer = nn.Conv2d(deep, wide, kernel, stride=int(p.get(3, 1)), padding=int(p.get(4, 0)), bias=bias)
    layer.weight.data = weights.tagged(int(p[6])).view(wide, deep, kernel, kernel)
    if layer.bias is not None:
        layer.bias.data = weights.raw(wide)
    return layer


def _layer(kind: str, p: dict[int, float], weights: _Weights) -> nn.Module:  # noqa: PLR0911  (a table of layers)
    if kind in {"Input", "Split"}:
        return nn.Identity()
    if kind == "Convolution":
        return _convolution(p, weights)
    if kind == "PReLU":
        layer = nn.PReLU(int(p[0]))
        layer.weight.data = weights.raw(int(p[0]))
        return layer
    if kind == "PixelShuffle" and not p.get(1):
        return nn.PixelShuffle(int(p[0]))
    if kind == "Interp" and set(p) <= {0, 1, 2} and p[1] == p[2]:
        return _Upscale(int(p[0]), p[1])
    if kind == "BinaryOp" and set(p) <= {0, 1, 2}:
        return _Binary(int(p.get(0, 0)), p.get(2, 0.0) if p.get(1) else None)
    if kind == "MemoryData" and set(p) == {0, 1, 2}:
        width, height, channels = (int(p[k]) for k in range(3))
        return _Constant(weights.raw(width * height * channels).view(1, channels, height, width))
    if kind == "Concat" and not p.get(0):
        return _Concat()
    if kind in _FUNCTIONS:
        return _FUNCTIONS[kind]()
    raise ValueError(f"a layer {kind} with {p}")


def read(param: Path, binary: Path) -> Graph:
    """The network of the two files, in evaluation mode. Raises MediaError where they hold what is not read."""
    lines = param.read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != _MAGIC:
        raise MediaError("is no ncnn .param", where=str(param))
    weights = _Weights(binary.read_bytes(), str(binary))
    layers = []
    for number, line in enumerate(lines[2:], 3):
        try:
            kind, _, ins, outs, *rest = line.split()
            names, values = rest[: int(ins) + int(outs)], rest[int(ins) + int(outs) :]
            p = {int(k): float(v) for k, v in (value.split("=") for value in values)}
            layer = _layer(kind, p, weights)
        except (ValueError, KeyError, ZeroDivisionError, RuntimeError) as error:
            raise MediaError(f"is not read: {error}", where=f"{param}: line {number}") from error
        layers.append((layer, names[: int(ins)] or [""], names[int(ins) :]))
    weights.end()
    return Graph(layers).eval().requires_grad_(requires_grad=False)
