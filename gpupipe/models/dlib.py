"""dlib's face recognition network from its .dat file (dlib: dnn_face_recognition_ex.cpp, serialize.h, dnn/layers.h)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from gpupipe.errors import MediaError

if TYPE_CHECKING:
    from pathlib import Path

_TAG = re.compile(rb"\x01[\x03-\x20](input_rgb_image_sized|con_4|affine_|relu_|max_pool_2|avg_pool_2|add_prev_|fc_2)")
_BETWEEN = 400
"""Most bytes of a layer's small print before the next layer's name."""


class _Data:
    """The file, read from front to back."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data, self._at, self._where = data, 0, where

    def wrong(self, what: str) -> MediaError:
        return MediaError(f"is not dlib's face recognition network: {what} at byte {self._at}", where=self._where)

    def tag(self) -> str:
        """The next layer's name; whatever is before it is passed over."""
        found = _TAG.search(self._data, self._at, self._at + _BETWEEN)
        if found is None:
            raise self.wrong("no layer")
        self._at = found.end()
        return found[1].decode()

    def integer(self) -> int:
        """A byte with the number of bytes and the sign, then those bytes, the lowest first."""
        head = self._data[self._at] if self._at < len(self._data) else 0
        size = head & 15
        if not 1 <= size <= 8 or self._at + size >= len(self._data):
            raise self.wrong("no whole number")
        value = int.from_bytes(self._data[self._at + 1 : self._at + 1 + size], "little")
        self._at += 1 + size
        return -value if head & 128 else value

    def real(self) -> float:
        """Mantissa and exponent of two."""
        mantissa, exponent = self.integer(), self.integer()
        if abs(exponent) > 200:
            raise self.wrong("no number")
        return float(mantissa * 2.0**exponent)

    def tensor(self) -> torch.Tensor:
        """Version, four sizes, values."""
        version, *sizes = (self.integer() for _ in range(5))
        count = int(np.prod(sizes, dtype=object))
        if version != 2 or min(sizes) < 1 or self._at + 4 * count > len(self._data):
            raise self.wrong("no tensor")
        values = np.frombuffer(self._data, "<f4", count, self._at).astype(np.float32)
        self._at += 4 * count
        return torch.from_numpy(values).reshape(sizes)


class _Affine(nn.Module):
    def __init__(self, values: torch.Tensor) -> None:
        super().__init__()
        gain, bias = values.reshape(2, 1, -1, 1, 1)
        self.gain, self.bias = nn.Parameter(gain), nn.Parameter(bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gain + self.bias


class _Residual(nn.Module):
    """Two convolutions beside the picture itself, which is halved where they halve it; what one lacks is zero."""

    def __init__(self, body: list[nn.Module], *, down: bool) -> None:
        super().__init__()
        self.body, self.down = nn.Sequential(*body), down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.body(x)
        if self.down:
            x = functional.avg_pool2d(x, 2)
        (_, c, h, w), (_, a, b, d) = made.shape, x.shape
        deep, high, wide = max(a, c), max(b, h), max(d, w)
        made = functional.pad(made, (0, wide - w, 0, high - h, 0, deep - c))
        return functional.relu(made + functional.pad(x, (0, wide - d, 0, high - b, 0, deep - a)))


class Embedding(nn.Module):
    """N x 3 x 150 x 150, R'G'B' in 0..255, to N x 128; the same person is nearer than 0.6."""

    mean: torch.Tensor

    def __init__(self, mean: list[float], layers: list[nn.Module], weight: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear(weight.shape[0], weight.shape[1], bias=False)
        self.last.weight.data = weight.T.contiguous()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The embedding."""
        return self.last(self.layers((x - self.mean) / 256).mean((2, 3)))  # type: ignore[no-any-return]


def _convolution(data: _Data) -> nn.Module:
    """Weights and biases in one tensor, then filters, kernel, stride, padding, and the weights' own sizes."""
    values = data.tensor().reshape(-1)
    wide, height, width, down, across, top, left = (data.integer() for _ in range(7))
    deep = (len(values) // wide - 1) // (height * width) if wide > 0 and height * width > 0 else 0
    if len(values) != wide * (deep * height * width + 1) or deep < 1 or min(down, across) < 1 or min(top, left) < 0:
        raise data.wrong("no convolution")
    layer = nn.Conv2d(deep, wide, (height, width), stride=(down, across), padding=(top, left))
    layer.weight.data = values[:-wide].reshape(wide, deep, height, width)
    if layer.bias is not None:
        layer.bias.data = values[-wide:]
    return layer


def read(path: Path) -> Embedding:
    """The network in evaluation mode. Raises MediaError where the file is another one."""
    data = _Data(path.read_bytes(), str(path))
    if data.tag() != "input_rgb_image_sized":
        raise data.wrong("another input")
    mean = [data.real() for _ in range(3)]
    layers: list[nn.Module] = []
    body: list[nn.Module] = []
    halved = False
    while (tag := data.tag()) != "fc_2":
        if tag == "con_4":
            body.append(_convolution(data))
        elif tag == "affine_":
            body.append(_Affine(data.tensor()))
        elif tag == "relu_" and body:
            body.append(nn.ReLU())
        elif tag == "max_pool_2":
            layers += [*body, nn.MaxPool2d(3, 2)]
            body = []
        elif tag == "avg_pool_2":
            halved = True
        elif tag == "add_prev_":
            layers.append(_Residual(body, down=halved))
            body, halved = [], False
    outputs, inputs = data.integer(), data.integer()
    weight = data.tensor().reshape(-1)
    if len(weight) != outputs * inputs or body or not layers:
        raise data.wrong("another last layer")
    return Embedding(mean, layers, weight.reshape(inputs, outputs)).eval().requires_grad_(requires_grad=False)
