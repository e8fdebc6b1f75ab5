"""From a card and its checked files to a torch module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.errors import ConfigError
from gpupipe.models import ffdnet, ncnn

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from gpupipe.models.card import Card


def load(card: Card, files: dict[str, Path]) -> nn.Module:
    """The network on the CPU, fp32, tried on a small picture. Raises ConfigError where the card's scale is wrong."""
    small = torch.zeros(1, 3, 8, 8)
    model: nn.Module
    if card.reader == "ncnn":
        model = ncnn.read(files["param"], files["bin"])
        shape = tuple(model(small).shape)
    else:
        model = ffdnet.read(files["weights"])
        shape = tuple(model(small, torch.zeros(1, 1, 1, 1)).shape)
    if shape != (1, 3, 8 * card.scale, 8 * card.scale):
        wrong = f"says {card.scale}, but 8x8 pixels become {shape[-1]}x{shape[-2]}"
        raise ConfigError(wrong, where=f"card {card.name}: scale")
    return model
