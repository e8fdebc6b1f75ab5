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
from gpupipe.engines.identity import digest_of, origin_of
from gpupipe.errors import EngineError
from gpupipe.models import folder
from gpupipe.models.bind import bind
from gpupipe.models.load import load
from gpupipe.models.recipe import Recipe
from gpupipe.models.tile import padded, tiling
from gpupipe.plain import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gpupipe.models.card import Card
    from gpupipe.models.extras import Values
    from gpupipe.models.recipe import Numbers

SAMPLES = 12
"""Pictures of a clip: every other one is calibrated on, the rest is held out."""
SIDE = 160
"""Of the window that is taken of each."""
_RECIPE, _FILE = 2, "recipe.json"


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
    windows = [_window(picture.float().cpu(), asked.card) for picture in pictures]
    network = bind(asked.card, load(asked.card, asked.files), asked.inputs)
    digest = digest_of(network, origin_of(asked.card, asked.files))

    def make(place: Path) -> None:
        there = [window.to(asked.device) for window in windows]
        found: dict[str, object] = {}
        with torch.inference_mode(), arithmetic(Profile(1, 1, 1, "fp32", asked.device)):
            try:
                recipe = calibrate(network.to(asked.device), there[0::2], there[1::2], asked.numbers, asked.least)
                found["recipe"] = recipe.model_dump(mode="json")
            except EngineError as error:
                found["refused"] = error.message
        (place / _FILE).write_text(json.dumps(found), encoding="utf-8")

    place, _ = EngineCache(folder.engines()).entry(_key(asked, digest, windows), make)
    kept = parsed((place / _FILE).read_text(encoding="utf-8"))
    if "refused" in kept:
        raise EngineError(kept["refused"])
    return Recipe.model_validate(kept["recipe"])


def _key(asked: Asked, digest: str, windows: Sequence[torch.Tensor]) -> Key:
    """Of the network's, the pictures' and the request's contents; on another machine it is the same recipe."""
    seen = hashlib.sha256()
    for window in windows:
        seen.update(f"{tuple(window.shape)}".encode() + window.contiguous().numpy().tobytes())
    facts = (("least", f"{asked.least:g}"), ("pictures", seen.hexdigest()))
    return Key(
        network=digest, shape=(len(windows), SIDE), least=0, precision=asked.numbers, engine="calibration",
        recipe=_RECIPE, versions=facts, device="", capability="", driver="",
    )  # fmt: skip


def _window(picture: torch.Tensor, card: Card) -> torch.Tensor:
    """The part of a picture with the most contrast, which is where networks lose; all of it where cards want that."""
    height, width = picture.shape[-2:]
    if card.halo is not None:
        high, wide = min(SIDE, height), min(SIDE, width)
        luma = picture.mean(1, keepdim=True)
        edges = functional.pad((luma[..., 1:] - luma[..., :-1]).abs(), (0, 1))
        sums = functional.avg_pool2d(edges, (high, wide), stride=max(1, SIDE // 4))[0, 0]
        row, column = divmod(int(sums.argmax()), sums.shape[1])
        top, left = row * (SIDE // 4), column * (SIDE // 4)
        picture = picture[..., top : top + high, left : left + wide]
    plan = tiling(picture.shape[-2], picture.shape[-1], None, halo=0, multiple=card.multiple, least=card.minimum)
    return padded(picture, plan).contiguous()
