"""A network as a function of R'G'B' alone: further inputs set, values brought to what it was trained on and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from gpupipe.models.extras import Values, extras

if TYPE_CHECKING:
    from gpupipe.models.card import Card, Value


class Picture(nn.Module):
    """R'G'B' in 0..1 to the values that a network has for them, or back."""

    factor: torch.Tensor
    offset: torch.Tensor

    def __init__(self, value: Value, *, back: bool = False) -> None:
        super().__init__()
        deviation = torch.tensor(value.deviation or [1.0], dtype=torch.float64).view(1, -1, 1, 1)
        mean = torch.tensor(value.mean or [0.0], dtype=torch.float64).view(1, -1, 1, 1)
        factor, offset = (value.high - value.low) / deviation, (value.low - mean) / deviation
        self._plain = bool((factor == 1).all() and (offset == 0).all())
        self._back, self._reversed = back, value.colour == "bgr"
        self.register_buffer("factor", (1 / factor if back else factor).float())
        self.register_buffer("offset", (-offset / factor if back else offset).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Channel by channel, in the network's order of them where it goes to the network."""
        if self._reversed and not self._back:
            x = x.flip(1)
        if not self._plain:
            x = x * self.factor + self.offset
        return x.flip(1) if self._reversed and self._back else x


class Bound(nn.Module):
    """N x 3 x H x W in 0..1 to the network's picture in 0..1; further inputs are the same for all pictures.

    A network of two pictures takes them as one of six channels, the first picture first, and so on.
    """

    def __init__(self, network: nn.Module, card: Card, inputs: Values) -> None:
        super().__init__()
        self.network = network
        self.before, self.after = Picture(card.inputs[0]), Picture(card.outputs[0], back=True)
        self._pictures = len(card.inputs) - len(card.extras)
        self._several = len(card.outputs) > 1
        self._further = [(f"value_{n}", value.shape[0] == "N") for n, value in enumerate(card.extras)]
        for (name, _), value, numbers in zip(self._further, card.extras, extras(card, inputs).values(), strict=True):
            shape = [side if isinstance(side, int) else 1 for side in value.shape]
            self.register_buffer(name, torch.tensor(numbers, dtype=torch.float32).view(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        given = [(getattr(self, name), batched) for name, batched in self._further]
        values = [v.expand(x.shape[0], *v.shape[1:]) if batched else v for v, batched in given]
        pictures = (x,) if self._pictures == 1 else x.chunk(self._pictures, 1)
        out = self.network(*(self.before(picture) for picture in pictures), *values)
        picture: torch.Tensor = self.after(out[0] if self._several else out)
        return picture


def bind(card: Card, network: nn.Module, inputs: Values) -> nn.Module:
    """The network of a card that gives a picture for one or several. Raises ConfigError as `extras`."""
    return Bound(network, card, inputs).eval().requires_grad_(requires_grad=False)
