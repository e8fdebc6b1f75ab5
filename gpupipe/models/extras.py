"""What a network takes beside pictures: values that a user sets, the same for every picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpupipe.errors import ConfigError

if TYPE_CHECKING:
    from gpupipe.models.card import Card, Value

Given = float | tuple[float, ...]
Values = Mapping[str, Given]


def extras(card: Card, inputs: Values) -> dict[str, tuple[float, ...]]:
    """The numbers of every further input, in the card's order; the card's own where `inputs` has none.

    Raises ConfigError for an input that the card has not, one that is left out and has no default, or a wrong number
    of numbers.
    """
    there = [value.name for value in card.extras]
    for name in inputs:
        if name not in there:
            known = f"it takes {', '.join(there)}" if there else "it takes pictures only"
            raise ConfigError(f"{card.name} has no input {name!r}", hint=known)
    return {value.name: _numbers(card, value, inputs.get(value.name)) for value in card.extras}


def pictures_taken(card: Card) -> int:
    """How many R'G'B' pictures of a video, all of its size, a network takes for the one that it gives.

    Raises ConfigError where it takes or gives something else.
    """
    taken = [value for value in card.inputs if value.kind not in {"vector", "scalar"}]
    shown = [*taken, card.outputs[0]]
    if card.crop is not None or any(value.kind != "picture" or value.colour == "grey" for value in shown):
        raise ConfigError(f"{card.name} ({card.task}) does not give a picture for every picture")
    for _, _, height, width in (value.shape for value in taken):
        if (height, width) != ("H", "W"):
            raise ConfigError(f"{card.name} takes pictures of {width}x{height} only, not those of a video")
    return len(taken)


def one_to_one(card: Card) -> None:
    """Raises ConfigError where a network does not give one R'G'B' picture for one."""
    if pictures_taken(card) != 1 or card.window.before or card.window.after:
        raise ConfigError(f"{card.name} ({card.task}) does not give a picture for every picture")


def _numbers(card: Card, value: Value, given: Given | None) -> tuple[float, ...]:
    wanted = math.prod(side for side in value.shape if isinstance(side, int))
    default = tuple(value.default) if isinstance(value.default, list) else value.default
    chosen = default if given is None else given
    if chosen is None:
        raise ConfigError(f"{card.name} needs `inputs: {{{value.name}: ...}}`", hint=f"{_count(wanted)}")
    numbers = chosen if isinstance(chosen, tuple) else (chosen,) * (wanted if given is None else 1)
    if len(numbers) != wanted:
        raise ConfigError(f"{card.name} takes {_count(wanted)} for {value.name}, not {len(numbers)}")
    return numbers


def _count(numbers: int) -> str:
    return "a number" if numbers == 1 else f"{numbers} numbers"
