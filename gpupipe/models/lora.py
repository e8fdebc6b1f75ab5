"""Low-rank changes of weights (Hu et al. 2021, arXiv 2106.09685), merged into a network before it runs.

A file has, for a weight NAME.weight, two small matrices: NAME.lora_down.weight and NAME.lora_up.weight, with
NAME.alpha beside them where it is not the rank (as kohya's scripts write them), or NAME.lora_A.weight and
NAME.lora_B.weight (as PEFT does, with or without its prefix `base_model.model.`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from gpupipe.errors import MediaError
from gpupipe.models import weights as data
from gpupipe.models.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import nn

_PAIRS = ((".lora_down.weight", ".lora_up.weight"), (".lora_A.weight", ".lora_B.weight"))
_PREFIX = "base_model.model."


@dataclass(frozen=True)
class Lora:
    """A file and how much of its change is made; 1 is all of it."""

    path: Path
    strength: float = 1.0


def merge(model: nn.Module, lora: Lora) -> None:
    """Adds the changes to the network's weights in place; nothing is changed where an error is raised.

    Raises:
        MediaError: the file holds no low-rank weights, names a weight that the network has not, or one of another
            shape. The weight is named.
    """
    where = str(lora.path)
    tensors = data.state(lora.path, "a LoRA")
    own = model.state_dict()
    names = model.weights if isinstance(model, Graph) else {name: name for name in own}
    changes = []
    for name, (down, up, alpha) in _pairs(tensors, where).items():
        key = names.get(f"{name}.weight")
        if key is None:
            raise MediaError(f"changes {name}.weight, which the network has not", where=where)
        changes.append((own[key], _change(own[key], down, up, name, where) * (lora.strength * alpha / down.shape[0])))
    with torch.no_grad():
        for weight, change in changes:
            weight.add_(change.to(weight.dtype))


def _pairs(tensors: Mapping[str, torch.Tensor], where: str) -> dict[str, tuple[torch.Tensor, torch.Tensor, float]]:
    """Both matrices and alpha of each weight. Raises MediaError for a name that belongs to none."""
    left = dict(tensors)
    found = {}
    for name in tensors:
        for first, second in _PAIRS:
            if not name.endswith(first):
                continue
            stem = name.removesuffix(first)
            if stem + second not in left:
                raise MediaError(f"has {name} but no {stem + second}", where=where)
            down, up = left.pop(name).float(), left.pop(stem + second).float()
            alpha = left.pop(f"{stem}.alpha", None)
            if down.dim() not in {2, 4} or not down.shape[0]:
                raise MediaError(f"{name} is {list(down.shape)}, no matrix", where=where)
            scale = float(down.shape[0] if alpha is None else alpha)
            found[stem.removeprefix(_PREFIX)] = (down, up, scale)
    if left:
        raise MediaError(f"{min(left)} is no part of a low-rank change", where=where)
    if not found:
        raise MediaError("holds no low-rank weights", where=where)
    return found


def _change(weight: torch.Tensor, down: torch.Tensor, up: torch.Tensor, name: str, where: str) -> torch.Tensor:
    """Up times down, as large as the weight: out x rank (x 1 x 1) times rank x in (x height x width)."""
    fits = (
        down.dim() == weight.dim() == up.dim()
        and down.shape[1:] == weight.shape[1:]
        and up.shape == (weight.shape[0], down.shape[0], *[1] * (weight.dim() - 2))
    )
    if not fits:
        wrong = f"{name}: {list(up.shape)} times {list(down.shape)} is no change of {list(weight.shape)}"
        raise MediaError(wrong, where=where)
    return (up.flatten(1) @ down.flatten(1)).reshape(weight.shape)
