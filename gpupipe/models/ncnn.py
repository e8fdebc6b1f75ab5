"""ncnn's .param and .bin as a plain torch module (Tencent/ncnn: param-and-model-file-structure)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from gpupipe.errors import MediaError
from gpupipe.models.graph import Graph, Step
from gpupipe.ops.halve import halved

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Parameters = dict[int, Any]
"""Numbers, or lists of numbers, by ncnn's ids."""
_MAGIC = "7767517"
_HALF = 0x01306B47
_OPERATIONS: dict[int, Callable[..., torch.Tensor]] = {0: torch.add, 1: torch.sub, 2: torch.mul}
_RESAMPLING = {1: "nearest", 2: "bilinear", 3: "bicubic"}
_FUNCTIONS: dict[str, Callable[[], nn.Module]] = {"Sigmoid": nn.Sigmoid, "Swish": nn.SiLU}


class Upscale(nn.Module):
    """`scale` times the size; `mode` is a word of `interpolate`."""

    def __init__(self, kind: int, scale: float) -> None:
        super().__init__()
        self.mode, self.scale = _RESAMPLING[kind], scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N x C x H x W to `scale` times H and W."""
        compiled = torch.compiler.is_compiling() and not torch.compiler.is_exporting()  # TensorRT has a layer for it
        if compiled and self.mode == "bicubic" and self.scale == 0.5:
            height, width = x.shape[-2:]
            if height % 2 == 0 and width % 2 == 0:
                return halved(x)
        corners = None if self.mode == "nearest" else False
        return functional.interpolate(x, scale_factor=self.scale, mode=self.mode, align_corners=corners)


class Binary(nn.Module):
    """Two inputs, or one and a `number`."""

    def __init__(self, operation: int, number: float | None) -> None:
        super().__init__()
        self.function, self.number = _OPERATIONS[operation], number

    def forward(self, a: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        """Element by element."""
        other = self.number if b is None else b
        if other is None:
            raise ValueError("an operation of two inputs got one")
        return self.function(a, other)


class _Sum(nn.Module):
    """Of its inputs, each times its own factor where there are factors."""

    def __init__(self, factors: list[float] | None) -> None:
        super().__init__()
        self.factors = factors

    def forward(self, *parts: torch.Tensor) -> torch.Tensor:
        factors = self.factors or [1.0] * len(parts)
        terms = [part if factor == 1 else part * factor for part, factor in zip(parts, factors, strict=True)]
        return functools.reduce(torch.add, terms)


class _Split(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return x if self.count == 1 else (x,) * self.count


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


def _convolution(p: Parameters, weights: _Weights) -> nn.Module:
    known = {0, 1, 3, 4, 5, 6, 9, 10}
    if set(p) - known:
        raise ValueError(f"parameters {sorted(set(p) - known)} of a convolution")
    wide, kernel, bias = int(p[0]), int(p[1]), bool(p.get(5, 0))
    deep = int(p[6]) // (wide * kernel * kernel)
    layer = nn.Conv2d(deep, wide, kernel, stride=int(p.get(3, 1)), padding=int(p.get(4, 0)), bias=bias)
    layer.weight.data = weights.tagged(int(p[6])).view(wide, deep, kernel, kernel)
    if layer.bias is not None:
        layer.bias.data = weights.raw(wide)
    kind = int(p.get(9, 0))
    if kind == 0:
        return layer
    if kind not in {1, 2}:
        raise ValueError(f"activation {kind} of a convolution")
    return nn.Sequential(layer, nn.ReLU() if kind == 1 else nn.LeakyReLU(p[10][0]))


def _parameters(words: list[str]) -> Parameters:
    """`id=value`, or `-23300 - id=count,value,value...` for several."""
    found: Parameters = {}
    for word in words:
        key, _, value = word.partition("=")
        number = int(key)
        if number > -23300:
            found[number] = float(value)
        else:
            count, *values = value.split(",")
            if int(count) != len(values):
                raise ValueError(f"{count} values, but there are {len(values)}")
            found[-23300 - number] = [float(one) for one in values]
    return found


def _layer(kind: str, p: Parameters, weights: _Weights) -> nn.Module:  # noqa: PLR0911  (a table of layers)
    if kind == "Convolution":
        return _convolution(p, weights)
    if kind == "PReLU":
        layer = nn.PReLU(int(p[0]))
        layer.weight.data = weights.raw(int(p[0]))
        return layer
    if kind == "PixelShuffle" and not p.get(1):
        return nn.PixelShuffle(int(p[0]))
    if kind == "Interp" and set(p) <= {0, 1, 2} and p[1] == p[2]:
        return Upscale(int(p[0]), p[1])
    if kind == "BinaryOp" and set(p) <= {0, 1, 2}:
        return Binary(int(p.get(0, 0)), p.get(2, 0.0) if p.get(1) else None)
    if kind == "Eltwise" and p.get(0) == 1 and set(p) <= {0, 1}:
        return _Sum(p.get(1))
    if kind == "Concat" and not p.get(0):
        return _Concat()
    if kind in _FUNCTIONS:
        return _FUNCTIONS[kind]()
    raise ValueError(f"a layer {kind} with {p}")


def _constant(p: Parameters, weights: _Weights) -> torch.Tensor:
    if set(p) != {0, 1, 2}:
        raise ValueError(f"a MemoryData with {p}")
    width, height, channels = (int(p[k]) for k in range(3))
    return weights.raw(width * height * channels).view(1, channels, height, width)


def _ordered(inputs: list[str], known: set[str]) -> None:
    unknown = set(inputs) - known
    if unknown:
        raise ValueError(f"{min(unknown)} is not computed before it")


def read(param: Path, binary: Path) -> Graph:
    """The network of the two files, in evaluation mode. Raises MediaError where they hold what is not read."""
    lines = param.read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) < 3 or lines[0].strip() != _MAGIC:
        raise MediaError("is no ncnn .param", where=str(param))
    weights = _Weights(binary.read_bytes(), str(binary))
    steps: list[Step] = []
    taken: list[str] = []
    constants: dict[str, torch.Tensor] = {}
    for number, line in enumerate(lines[2:], 3):
        try:
            kind, _, ins, outs, *rest = line.split()
            inputs, outputs = rest[: int(ins)], rest[int(ins) : int(ins) + int(outs)]
            p = _parameters(rest[int(ins) + int(outs) :])
            _ordered(inputs, {*taken, *constants, *(name for step in steps for name in step.outputs)})
            if kind == "Input":
                taken += outputs
            elif kind == "MemoryData":
                constants[outputs[0]] = _constant(p, weights)
            else:
                layer = _Split(len(outputs)) if kind == "Split" else _layer(kind, p, weights)
                steps.append(Step(layer, tuple(inputs), tuple(outputs)))
        except (ValueError, KeyError, IndexError, ZeroDivisionError, RuntimeError) as error:
            raise MediaError(f"is not read: {error}", where=f"{param}: line {number}") from error
    weights.end()
    if len(taken) != 1 or not steps:
        raise MediaError("has other than one input, or no layers", where=str(param))
    return Graph(taken, steps[-1].outputs, steps, constants, {}).eval().requires_grad_(requires_grad=False)
