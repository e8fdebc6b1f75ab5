"""From a card and its checked files to a torch module."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from gpupipe.errors import ConfigError, MediaError
from gpupipe.models import animesr, dlib, ffdnet, lora, ncnn, pt2, rife, span, srvgg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpupipe.models.card import Card, Value


def _extra(module: str, role: str) -> Callable[[Mapping[str, Path]], nn.Module]:
    """A reader that wants a package of the extra `models`."""

    def read(files: Mapping[str, Path]) -> nn.Module:
        try:
            reader = importlib.import_module(f"gpupipe.models.{module}")
        except ModuleNotFoundError as error:
            hint = "pip install 'gpupipe[models]'"
            raise MediaError(f"needs the package {error.name}", where=str(files[role]), hint=hint) from error
        made: nn.Module = reader.read(files[role])
        return made

    return read


READERS: dict[str, Callable[[Mapping[str, Path]], nn.Module]] = {
    "animesr": lambda files: animesr.read(files["weights"]),
    "dlib": lambda files: dlib.read(files["dat"]),
    "ffdnet": lambda files: ffdnet.read(files["weights"]),
    "ncnn": lambda files: ncnn.read(files["param"], files["bin"]),
    "onnx": _extra("onnx", "onnx"),
    "pt2": lambda files: pt2.read(files["pt2"]),
    "rife": lambda files: rife.read(files["weights"]),
    "span": lambda files: span.read(files["weights"]),
    "srvgg": lambda files: srvgg.read(files["weights"]),
    "tflite": _extra("tflite", "tflite"),
}


class OneByOne(nn.Module):
    """Any number of pictures through a network that takes one; other inputs come with each picture or are shared."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """See the class."""
        count = x.shape[0]
        rows = [[one[i : i + 1] if one.shape[0] == count > 1 else one for one in (x, *more)] for i in range(count)]
        made = [self.network(*row) for row in rows]
        if isinstance(made[0], tuple):
            return tuple(torch.cat(parts) for parts in zip(*made, strict=True))
        return torch.cat(made)


def load(card: Card, files: Mapping[str, Path]) -> nn.Module:
    """The network on the CPU, fp32, tried on a small black picture.

    It takes the card's inputs and gives its outputs, in the card's order and in the network's own values (`value.low`
    to `value.high`, mean and deviation applied): one output alone is a tensor, more are a tuple.

    Raises:
        ConfigError: the card's scale or shapes are not the network's.
        MediaError: a file is not what its reader takes.
    """
    model = READERS[card.reader](files)
    for change in card.lora:
        lora.merge(model, lora.Lora(Path(change.path), change.strength))
    if card.inputs[0].shape[0] == 1:
        model = OneByOne(model)
    size = math.lcm(card.multiple, 8)
    size *= -(-max(card.minimum, size) // size)
    try:
        with torch.no_grad():
            outputs = model(*examples(card, size, size))
    except (ValueError, RuntimeError, IndexError, TypeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"the network does not take them: {said}", where=f"card {card.name}: inputs") from error
    _compare(card, outputs if isinstance(outputs, tuple) else (outputs,), size)
    return model


def examples(card: Card, height: int, width: int, batch: int = 1) -> tuple[torch.Tensor, ...]:
    """Inputs as the network takes them: black pictures, defaults (or zeros) of vectors and scalars, fp32."""
    return tuple(_example(value, _sizes(value, height, width, batch)) for value in card.inputs)


def _example(value: Value, shape: tuple[int, ...]) -> torch.Tensor:
    if value.default is None:
        return torch.zeros(shape)
    return torch.tensor(value.default, dtype=torch.float32).expand(shape).contiguous()


def _sizes(value: Value, height: int, width: int, batch: int) -> tuple[int, ...]:
    known = {"N": batch, "H": height, "W": width}
    sizes = []
    for side in value.shape:
        if isinstance(side, int):
            sizes.append(side)
        else:
            size, by = known[side[0]], int(side[2:] or 1)
            sizes.append(size * by if side[1:2] == "*" else -(-size // by))
    return tuple(sizes)


def _compare(card: Card, outputs: tuple[torch.Tensor, ...], size: int) -> None:
    where = f"card {card.name}"
    if len(outputs) != len(card.outputs):
        wrong = f"names {len(card.outputs)}, but the network gives {len(outputs)}"
        raise ConfigError(wrong, where=f"{where}: outputs")
    for value, output in zip(card.outputs, outputs, strict=True):
        picture = value.kind == "picture"
        wanted = _sizes(value, size * card.scale, size * card.scale, 1) if picture else _sizes(value, size, size, 1)
        found = tuple(output.shape)
        if found == wanted:
            continue
        if picture and len(found) == 4 and found[:2] == wanted[:2]:
            wrong = f"says {card.scale}, but {size}x{size} pixels become {found[-1]}x{found[-2]}"
            raise ConfigError(wrong, where=f"{where}: scale")
        wrong = f"says {list(wanted)}, but {size}x{size} pixels become {list(found)}"
        raise ConfigError(wrong, where=f"{where}: outputs.{value.name}.shape")
