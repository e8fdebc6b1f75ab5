"""A card for a file of the user's own, from what the file says and from trying the network."""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING

import torch

from gpupipe.errors import ConfigError, MediaError, first_line
from gpupipe.models.card import Card, Licence, Member, Reader, Source, Value
from gpupipe.models.graph import Graph
from gpupipe.models.load import READERS, OneByOne

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from torch import nn

ARCHITECTURES: tuple[Reader, ...] = ("ffdnet", "span", "srvgg")
"""Networks that gpupipe can build for weights alone."""
_READERS: dict[str, Reader] = {".onnx": "onnx", ".pt2": "pt2", ".tflite": "tflite"}
_WEIGHTS = {".safetensors", ".pth", ".pt"}
_SMALL, _LARGE = 96, 192
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)


def describe(path: Path, architecture: str | None = None) -> Card:
    """What a network takes and gives; values are taken to be R'G'B' in 0..1, where they are not it needs a card.

    Args:
        path: ONNX, `.pt2` or TFLite; or weights alone (safetensors, or tensors in a .pth).
        architecture: for weights alone, one of ARCHITECTURES.

    Raises:
        ConfigError: the kind of file, or its inputs, cannot be understood without a card.
        MediaError: as its reader.
    """
    reader, role = _reader(path, architecture)
    if path.exists() and not path.is_file():
        raise MediaError("is no file", where=str(path), hint="a pipe or folder holds no network")
    model = READERS[reader]({role: path})
    where = str(path)
    if isinstance(model, Graph):
        inputs = [_value(name, sizes, where) for name, sizes in zip(model.inputs, model.sizes, strict=True)]
    else:
        inputs = [Value(name="picture", kind="picture", shape=["N", 3, "H", "W"])]
        if reader == "ffdnet":
            inputs.append(Value(name="sigma", kind="scalar", shape=["N", 1, 1, 1], default=0.0196))
    inputs = sorted(inputs, key=lambda value: value.kind != "picture")
    if [value.kind for value in inputs].count("picture") != 1:
        raise ConfigError("takes other than one picture N x 3 x H x W", where=where, hint="write a card for it")
    tried = _Trial(model, inputs, where)
    return Card(
        name=re.sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip("._-") or "network",
        task="generate" if inputs[1:] else "restore",
        source=Source(files={role: Member(path=str(path))}),
        licence=Licence(code="own", weights="the user's own", commercial=True),
        reader=reader,
        inputs=tried.inputs,
        outputs=tried.outputs,
        scale=tried.scale,
        halo=tried.halo(),
        multiple=tried.multiple,
        minimum=tried.minimum,
    )


def _reader(path: Path, architecture: str | None) -> tuple[Reader, str]:
    kind = path.suffix.lower()
    if architecture is not None:
        for known in ARCHITECTURES:
            if architecture == known:
                return known, "weights"
        raise ConfigError(f"no architecture {architecture!r}", where=str(path), hint=", ".join(ARCHITECTURES))
    if kind in _READERS:
        return _READERS[kind], _READERS[kind]
    if kind in _WEIGHTS:
        hint = f"architecture: {' | '.join(ARCHITECTURES)}, or export it as ONNX or .pt2"
        raise ConfigError("holds weights alone: say of which network", where=str(path), hint=hint)
    raise ConfigError("is no kind of network that is read", where=str(path), hint="ONNX, .pt2, TFLite, safetensors")


def _value(name: str, sizes: Sequence[int | None], where: str) -> Value:
    """An input as the file has it."""
    if 0 in sizes:
        raise ConfigError(f"its input {name} is empty: {list(sizes)}", where=where, hint="export it again")
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-") or "input"
    if len(sizes) == 4 and sizes[1] == 3:
        places = [letter if side is None else side for letter, side in zip("N3HW", sizes, strict=True)]
        return Value(name=plain, kind="picture", shape=places)
    if len(sizes) > 2 and any(side != 1 for side in sizes[2:]):
        raise ConfigError(f"its input {name} is neither a picture nor numbers", where=where, hint="write a card for it")
    if any(side is None for side in sizes[1:]):
        raise ConfigError(f"its input {name} has an open size", where=where, hint="write a card for it")
    shape: list[int | str] = ["N" if side is None else side for side in sizes] or [1]
    whole = [side for side in sizes if side not in {None, 1}]
    return Value(name=plain, kind="vector" if whole else "scalar", shape=shape)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Convolutions in the order they are defined; faster ones work on tiles, which would carry a value further."""
    with warnings.catch_warnings(), torch.backends.nnpack.flags(enabled=False):
        warnings.simplefilter("ignore", UserWarning)  # of TF32, whatever the machine
        with torch.backends.mkldnn.flags(enabled=False):
            yield


class _Trial:
    """A network tried at several sizes: what it scales by, which sizes it takes, how far it looks."""

    def __init__(self, model: nn.Module, inputs: list[Value], where: str) -> None:
        self._model, self._where = model, where
        picture = inputs[0]
        self.fixed = isinstance(picture.shape[2], int) or isinstance(picture.shape[3], int)
        if picture.shape[0] == 1 and self._takes(inputs, 64, batch=2):
            inputs = [_any_batch(value) for value in inputs]
        self.inputs = inputs
        if inputs[0].shape[0] == 1:
            self._model = OneByOne(model)
        self.multiple, self.minimum, self.scale = 1, 1, 1
        self.outputs: list[Value] = []
        self._measure()

    def _run(self, inputs: list[Value], height: int, width: int, *, batch: int = 1) -> tuple[torch.Tensor, ...]:
        known = {"N": batch, "H": height, "W": width}
        shapes = [[side if isinstance(side, int) else known[side] for side in value.shape] for value in inputs]
        if batch > 1:
            shapes = [[batch, *shape[1:]] if shape[0] == 1 and len(shape) > 1 else shape for shape in shapes]
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            out = self._model(*(torch.rand(shape, generator=generator) for shape in shapes))
        return out if isinstance(out, tuple) else (out,)

    def _takes(self, inputs: list[Value], side: int, *, batch: int = 1) -> bool:
        try:
            out = self._run(inputs, side, side, batch=batch)
        except (RuntimeError, ValueError, IndexError, TypeError):
            return False
        return out[0].shape[0] == batch

    def _measure(self) -> None:
        sides = self.inputs[0].shape[2:]
        height, width = (side if isinstance(side, int) else 64 for side in sides)
        try:
            out = self._run(self.inputs, height, width)
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            hint = "write a card for it"
            raise MediaError(f"does not run: {first_line(error)}", where=self._where, hint=hint) from error
        first = out[0]
        square = first.dim() == 4 and first.shape[1] == 3 and first.shape[2] * width == first.shape[3] * height
        if not square or first.shape[2] % height:
            wrong = f"makes {list(first.shape)} of {height} x {width} pixels, no picture of one or more times its size"
            raise ConfigError(wrong, where=self._where, hint="write a card for it")
        self.scale = first.shape[2] // height
        self.outputs = [Value(name="picture", kind="picture", shape=["N", 3, *sides])]
        self.outputs += [
            Value(name=f"output-{n}", kind="map", shape=list(one.shape)) for n, one in enumerate(out[1:], 1)
        ]
        if self.fixed:
            return
        self.multiple = next(m for m in _MULTIPLES if m == 64 or self._fits(64 + m, 64 + 2 * m))
        self.minimum = next(m for m in (*_MULTIPLES, 64) if m >= self.multiple and (m == 64 or self._fits(m, m)))

    def _fits(self, height: int, width: int) -> bool:
        try:
            shape = self._run(self.inputs, height, width)[0].shape
        except (RuntimeError, ValueError, IndexError, TypeError):
            return False
        return tuple(shape[2:]) == (height * self.scale, width * self.scale)

    def halo(self) -> int | None:
        """Pixels on each side that an output pixel depends on; None where it is all of them, or no tiles can be."""
        if self.fixed:
            return None
        for side in (_SMALL, _LARGE):
            if (found := self._reach(-(-side // self.multiple) * self.multiple)) is not None:
                return found
        return None

    def _reach(self, side: int) -> int | None:
        """How far 'not a number' spreads from one pixel of each place in the network's grid."""
        known = {"N": 1, "H": side, "W": side}
        shapes = [[s if isinstance(s, int) else known[s] for s in value.shape] for value in self.inputs]
        far = 0
        middle = side // 2 // self.multiple * self.multiple
        for offset in {0, self.multiple - 1}:
            given = [torch.rand(shape) for shape in shapes]
            given[0][..., middle + offset, middle + offset] = torch.nan
            with torch.no_grad(), _plainly():
                out = self._model(*given)
            spread = (out[0] if isinstance(out, tuple) else out).isnan().any(1)[0]
            rows, columns = (spread.any(axis).nonzero().flatten() // self.scale for axis in (1, 0))
            for places in (rows, columns):
                if not len(places) or places[0] == 0 or places[-1] == side - 1:
                    return None
                far = max(far, int(places[-1]) - middle - offset, middle + offset - int(places[0]))
        return far


def _any_batch(value: Value) -> Value:
    several = len(value.shape) > 1 and value.shape[0] == 1
    return value.model_copy(update={"shape": ["N", *value.shape[1:]]}) if several else value
