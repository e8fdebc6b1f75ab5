"""Networks that faces go through: cards of gpupipe, and a user's own ONNX files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpupipe.errors import ConfigError, MediaError, PlanError
from gpupipe.models import folder
from gpupipe.models.card import Card, find
from gpupipe.models.extras import extras
from gpupipe.models.fetch import verify

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch
    from torch import nn


@dataclass(frozen=True, slots=True)
class Slot:
    """What a network takes for a face and gives back, as data."""

    name: str
    low: float = 0.0
    """What the network has for black and for white, going in and coming out."""
    high: float = 1.0
    size: int | None = None
    """Side of its crop; None where it takes any."""
    multiple: int = 1
    vector: tuple[float, ...] | None = None
    """Its second input, the same for all faces."""
    single: bool = False
    """Whether it was made for one face at a time."""
    half: bool = True
    """Whether it is good in fp16."""


def card_of(name: str, task: str, where: str) -> tuple[Card, Mapping[str, Path]]:
    """A card and its checked weights. Raises PlanError where either is missing, or the card is for something else."""
    try:
        card = find(name)
        files = verify(card, folder.weights())
    except (ConfigError, MediaError) as error:
        raise PlanError(error.message, where=where, hint=error.hint) from None
    if card.task != task and task:
        raise PlanError(f"{name} is for {card.task}, not for {task}", where=where)
    return card, files


def slot_of(card: Card, inputs: Mapping[str, float | tuple[float, ...]], where: str) -> Slot:
    """How a card's network is used on crops. Raises PlanError where it does not give a picture for a picture."""
    first = card.inputs[0]
    if first.kind != "picture" or card.outputs[0].kind != "picture" or card.window.before or card.window.after:
        raise PlanError(f"{card.name} ({card.task}) does not give a face for a face", where=where)
    try:
        extras(card, inputs)
    except ConfigError as error:
        raise PlanError(error.message, where=where, hint=error.hint) from None
    size = card.crop.size if card.crop else None
    return Slot(card.name, size=size, multiple=card.multiple, half=card.half)


def own_slot(path: Path, vector: tuple[float, ...] | None, levels: tuple[float, float], where: str) -> Slot:
    """How a user's ONNX file is used: a square picture in, a picture out, perhaps one vector beside.

    Raises PlanError where its graph is not of that kind, in one line that says what it has.
    """
    shapes = _inputs(path, where)
    (name, picture), *others = shapes.items()
    if len(picture) != 4 or picture[1] != 3 or picture[2] != picture[3]:
        raise PlanError(f"its first input {name} is {_words(picture)}, not a square picture of 3 channels", where=where)
    if len(others) > 1:
        raise PlanError(f"it takes {len(shapes)} inputs, and a face and one vector are given", where=where)
    wanted = math.prod(side for side in others[0][1][1:] if isinstance(side, int)) if others else 0
    if (given := len(vector or ())) != wanted:
        said = f"its input {others[0][0]} is {_words(others[0][1])}" if others else "it takes no vector"
        hint = "set `vector` to a list of numbers or a .npy file" if wanted else "leave `vector` out"
        raise PlanError(f"{said}, but `vector` holds {given} numbers", where=where, hint=hint)
    size = picture[2] if isinstance(picture[2], int) else None
    return Slot(path.name, *levels, size, 1, vector, single=picture[0] == 1, half=False)


def _inputs(path: Path, where: str) -> dict[str, list[int | str]]:
    """Names and shapes of a graph's inputs, in order."""
    try:
        import onnx  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise PlanError("needs the package onnx", where=where, hint="pip install 'gpupipe[models]'") from None
    from google.protobuf.message import DecodeError  # noqa: PLC0415  comes with onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}", where=where) from None
    except (DecodeError, ValueError):
        raise PlanError(f"{path} is no ONNX file", where=where) from None
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    if not inputs:
        raise PlanError(f"{path} is no network: it takes nothing", where=where)
    return {v.name: [d.dim_value or d.dim_param or "?" for d in v.type.tensor_type.shape.dim] for v in inputs}


def _words(shape: list[int | str]) -> str:
    return "x".join(map(str, shape)) or "a single number"


def network_of(module: nn.Module, slot: Slot) -> nn.Module:
    """R'G'B' 0..1 in and out, whatever the network counts in, and its vector set."""
    import torch  # noqa: PLC0415  not needed to plan

    class Face(torch.nn.Module):
        vector: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.inner = module
            self.register_buffer("vector", torch.tensor([slot.vector or ()]))

        def forward(self, faces: torch.Tensor) -> torch.Tensor:
            x = faces.clamp(0, 1) * (slot.high - slot.low) + slot.low
            given = () if slot.vector is None else (self.vector.expand(len(x), -1),)
            out = self.inner(x, *given)
            picture: torch.Tensor = out[0] if isinstance(out, tuple) else out
            return (picture - slot.low) / (slot.high - slot.low)

    return Face().eval()


def rehearsed(network: nn.Module, slot: Slot, size: int, where: str) -> int:
    """Runs it once on black, on the CPU; the side of what comes out. Raises PlanError where that is no picture."""
    import torch  # noqa: PLC0415  not needed to plan

    try:
        with torch.inference_mode():
            shape = tuple(network(torch.zeros(1, 3, size, size)).shape)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PlanError(f"{slot.name} does not take a face of {size}x{size}: {said}", where=where) from None
    if len(shape) != 4 or shape[:2] != (1, 3) or shape[2] != shape[3]:
        raise PlanError(f"{slot.name} gives {'x'.join(map(str, shape))}, not a square picture", where=where)
    return int(shape[2])
