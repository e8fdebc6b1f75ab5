"""Recipes of 8 bits for a clip's own pictures: made once, kept beside the engines, the same when asked again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from gpupipe.engines.base import Profile, arithmetic
from gpupipe.engines.cache import EngineCache, Key
from gpupipe.engines.calibrate import calibrate
from gpupipe.engines.check import agreement
from gpupipe.engines.identity import digest_of, origin_of
from gpupipe.errors import EngineError
from gpupipe.models import folder
from gpupipe.models.bind import bind
from gpupipe.models.load import load
from gpupipe.models.quantised import quantised
from gpupipe.models.recipe import Recipe
from gpupipe.models.tile import padded, tiling
from gpupipe.plain import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpupipe.models.card import Card
    from gpupipe.models.extras import Values
    from gpupipe.models.recipe import Numbers

SAMPLES = 10
"""Pictures of a clip: every other one is calibrated on, the rest is held out."""
HARD, SIDE = 128, 96
"""Sides of windows: of the one with the most contrast, which ranges are taken from, and of those measured on."""
_RECIPE, _FILE = 4, "recipe.json"


@dataclass(frozen=True)
class Asked:
    """What is to be calibrated."""

    card: Card
    files: Mapping[str, Path]
    inputs: Values
    numbers: Numbers
    least: float
    """See `calibrate`."""
    device: str
    """Where; ranges are rounded, so that it does not matter."""


def recipe_for(asked: Asked, pictures: Sequence[torch.Tensor]) -> Recipe:
    """The recipe for a card's network on a clip, from the cache where the same was asked for before.

    Args:
        asked: the network and how much it may lose.
        pictures: of the clip, in order, each 1 x 3 x H x W of R'G'B' in 0..1; those at odd places are held out.

    Raises:
        EngineError: there is none, see `calibrate`; that is kept, too.
    """
    if len(pictures) < 2:
        raise EngineError("it needs two pictures at least: one to calibrate on, another to measure with")
    card, floats = asked.card, [picture.float().cpu() for picture in pictures]
    hard = [_hardest(picture, card) for picture in floats]
    spread = [_quarters(picture, card) for picture in floats[1::2]]
    network = bind(asked.card, load(asked.card, asked.files), asked.inputs)
    digest = digest_of(network, origin_of(asked.card, asked.files))

    def make(place: Path) -> None:
        there = [window.to(asked.device) for window in hard]
        held_out = [tuple(part.to(asked.device) for part in parts) for parts in spread]
        found: dict[str, object] = {}
        with torch.inference_mode(), arithmetic(Profile(1, 1, 1, "fp32", asked.device)):
            try:
                exact = network.to(asked.device)
                recipe = calibrate(exact, there[0::2], held_out, asked.numbers, asked.least)
                rounded = quantised(exact, recipe)
                worst = min(200.0, *(agreement(rounded(x), exact(x)) for x in there[1::2]))
                recipe = recipe.model_copy(update={"hardest": round(worst, 2)})
                found["recipe"] = recipe.model_dump(mode="json")
            except EngineError as error:
                found["refused"] = error.message
        (place / _FILE).write_text(json.dumps(found), encoding="utf-8")

    place, _ = EngineCache(folder.engines()).entry(_key(asked, digest, floats), make)
    kept = parsed((place / _FILE).read_text(encoding="utf-8"))
    if "refused" in kept:
        raise EngineError(kept["refused"])
    return Recipe.model_validate(kept["recipe"])


def _key(asked: Asked, digest: str, pictures: Sequence[torch.Tensor]) -> Key:
    """Of the network's, the pictures' and the request's contents; on another machine it is the same recipe."""
    seen = hashlib.sha256()
    for one in pictures:
        seen.update(f"{tuple(one.shape)}".encode() + one.contiguous().numpy().tobytes())
    facts = (("least", f"{asked.least:g}"), ("pictures", seen.hexdigest()))
    return Key(
        network=digest, shape=(len(pictures), SIDE), least=0, precision=asked.numbers, engine="calibration",
        recipe=_RECIPE, versions=facts, device="", capability="", driver="",
    )  # fmt: skip


def _hardest(picture: torch.Tensor, card: Card) -> torch.Tensor:
    """The part with the most contrast, where values are the largest; all of it where the card wants it whole."""
    height, width = picture.shape[-2:]
    if card.halo is not None:
        high, wide, step = min(HARD, height), min(HARD, width), HARD // 4
        luma = picture.mean(1, keepdim=True)
        edges = functional.pad((luma[..., 1:] - luma[..., :-1]).abs(), (0, 1))
        sums = functional.avg_pool2d(edges, (high, wide), stride=step)[0, 0]
        row, column = divmod(int(sums.argmax()), sums.shape[1])
        picture = picture[..., row * step : row * step + high, column * step : column * step + wide]
    return _fitted(picture, card)


def _quarters(picture: torch.Tensor, card: Card) -> tuple[torch.Tensor, ...]:
    """The middle of each quarter, whatever is in it: what a picture is measured by."""
    if card.halo is None:
        return (_fitted(picture, card),)
    high, wide = (max(1, side // 2) for side in picture.shape[-2:])
    top, left = max(0, (high - SIDE) // 2), max(0, (wide - SIDE) // 2)
    parts = [picture[..., y : y + high, x : x + wide] for y in (0, high) for x in (0, wide)]
    return tuple(_fitted(p[..., top : top + SIDE, left : left + SIDE], card) for p in parts if p.numel())


def _fitted(part: torch.Tensor, card: Card) -> torch.Tensor:
    plan = tiling(part.shape[-2], part.shape[-1], None, halo=0, multiple=card.multiple, least=card.minimum)
    return padded(part, plan).contiguous()
