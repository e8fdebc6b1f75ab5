"""What 8 bits cost on real clips: dB against fp32 on pictures held out, and how much of a network bears them.

Called by `bench/models.py --clips`. Each row is what `gpupipe plan` decides for a clip and a card, and what that recipe
gives on `ELSEWHERE` more pictures, which had no part in it: other times, and the middle of the picture instead of the
quarters. They are decoded and converted by libav.
"""

from __future__ import annotations

import copy
import math
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import av
import numpy as np
import torch

from gpupipe.config import parse_config
from gpupipe.device.timing import seconds_of
from gpupipe.engines.base import Profile
from gpupipe.engines.cache import EngineCache
from gpupipe.engines.check import agreement, test_pictures
from gpupipe.engines.select import ENGINES, Selector
from gpupipe.errors import GpupipeError
from gpupipe.media.probe import probe
from gpupipe.models import folder
from gpupipe.models.bind import bind
from gpupipe.models.fetch import verify
from gpupipe.models.load import load
from gpupipe.models.quantised import quantised
from gpupipe.plan import make_plan
from gpupipe.render.learnt import learnt
from gpupipe.stages.model import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from gpupipe.models.card import Card
    from gpupipe.models.recipe import Numbers, Recipe

ELSEWHERE, SIDE = 5, 192
SIZE = (1080, 1920)


@dataclass
class Eight:
    """One card in 8 bits on one clip."""

    card: str
    clip: str
    numbers: str
    accuracy: float
    """dB asked for."""
    seconds: float = 0.0
    """It took to find out."""
    refused: str | None = None
    convolutions: int = 0
    in_8_bits: int = 0
    in_floats: list[str] | None = None
    """Of those that are left, in the network's order; the first and the last always are."""
    share: float = 0.0
    """Of the multiply-adds that are in 8 bits."""
    decibels: float | None = None
    """Of the pictures held out together."""
    worst: float | None = None
    """Of the worst of them."""
    hardest: float | None = None
    """Of the part of a picture held out that has the most contrast, the worst of them."""
    held_out: int = 0
    elsewhere_decibels: float | None = None
    elsewhere_worst: float | None = None
    """On the further pictures, together and of the worst."""
    elsewhere: int = 0
    milliseconds: dict[str, float | str] = field(default_factory=dict)
    """On a GPU: a picture by each engine, in 8 bits and in half floats, at `SIZE`; or why not."""


def eight_bits(
    cards: list[Card], clips: list[Path], numbers: list[str], accuracy: float, device: str,
    keep: Callable[[list[dict[str, object]]], None],
) -> None:  # fmt: skip
    """Measures and prints every combination; `keep` is told the rows so far after each."""
    rows: list[dict[str, object]] = []
    for kind in numbers:
        for clip in clips:
            for card in cards:
                made = _row(card, clip, kind, accuracy, device)
                print(_words(made), flush=True)
                rows.append(asdict(made))
                keep(rows)


def _row(card: Card, clip: Path, numbers: str, accuracy: float, device: str) -> Eight:
    made, begun = Eight(card.name, clip.name, numbers, accuracy), time.monotonic()
    model = {"card": card.name, "precision": numbers, "accuracy": accuracy}
    config = parse_config({"stages": [{"model": model}], "output": {"audio": "none", "subtitles": "none"}})
    plan = learnt(make_plan(config, probe(clip), clip.with_suffix(".bench.mkv"), device=device))
    made.seconds = round(time.monotonic() - begun, 1)
    (step,) = (step for step in plan.steps if step.kind == "stage" and step.name == "model")
    recipe = ModelSettings.model_validate(step.settings, strict=False).recipe
    if recipe is None:
        made.refused = next(one.message for one in plan.warnings if one.code == "model-precision")
        return made
    made.convolutions, made.in_8_bits, made.share = recipe.convolutions, len(recipe.layers), recipe.share
    made.decibels, made.worst, made.hardest = recipe.decibels, recipe.worst, recipe.hardest
    made.held_out = recipe.pictures
    _elsewhere(made, card, recipe, clip, device)
    return made


def _elsewhere(made: Eight, card: Card, recipe: Recipe, clip: Path, device: str) -> None:
    network = bind(card, load(card, verify(card, folder.weights())), {}).to(device)
    taken = {layer.name for layer in recipe.layers}
    convolutions = (name for name, module in network.named_modules() if isinstance(module, torch.nn.Conv2d))
    made.in_floats = [name for name in convolutions if name not in taken]
    rounded = quantised(network, recipe)
    with torch.inference_mode():
        found = [agreement(rounded(x), network(x)) for x in (p.to(device) for p in _pictures(clip))]
    made.elsewhere = len(found)
    if device != "cpu":
        made.milliseconds = _timed(network, rounded, recipe.numbers, device)
    together = -10 * math.log10(sum(10 ** (-one / 10) for one in found) / len(found))
    made.elsewhere_worst, made.elsewhere_decibels = round(min(found), 2), round(together, 2)


def _timed(network: nn.Module, rounded: nn.Module, numbers: Numbers, device: str) -> dict[str, float | str]:
    """Each built anew for one picture of `SIZE`; nothing is kept, since the next clip has another recipe."""
    profile = Profile(1, *SIZE, "fp16", device, numbers=numbers)
    found: dict[str, float | str] = {}
    for engine in (one for one in ENGINES if one.absent(device) is None):
        for made, shape in ((network, replace(profile, numbers="")), (rounded, profile)):
            what = f"{engine.name} {shape.numbers or 'fp16'}"
            try:
                found[what] = _milliseconds(made, engine.name, shape)
            except (GpupipeError, RuntimeError) as error:
                found[what] = str(error).strip().partition("\n")[0]
    return found


def _milliseconds(network: nn.Module, engine: str, profile: Profile) -> float:
    half = copy.deepcopy(network).to(profile.device, profile.dtype)
    with TemporaryDirectory() as scratch, torch.inference_mode():
        selector = Selector(half, "timed", engine, EngineCache(Path(scratch)), say=lambda _: None, warn=lambda _: None)
        built, pictures = selector(profile), test_pictures(profile)
        return round(1000 * seconds_of(lambda: built.run(pictures), profile.device), 3)


def _pictures(clip: Path) -> Iterator[torch.Tensor]:
    """At times of their own, by the count of frames."""
    with av.open(str(clip)) as file:
        count = sum(1 for _ in file.decode(video=0))
    wanted = {int((n + 0.37) * count / ELSEWHERE) for n in range(ELSEWHERE)}
    with av.open(str(clip)) as file:
        for number, frame in enumerate(file.decode(video=0)):
            if number in wanted:
                rgb = frame.to_ndarray(format="rgb24")
                top, left = (max(0, (side - SIDE) // 2) for side in rgb.shape[:2])
                part = np.ascontiguousarray(rgb[top : top + SIDE, left : left + SIDE])
                yield torch.from_numpy(part).permute(2, 0, 1)[None].float() / 255


def _words(made: Eight) -> str:
    what = f"{made.card:26} {made.clip[:34]:34} {made.numbers:5}"
    if made.refused is not None:
        return f"{what} {made.refused} ({made.seconds:.0f} s)"
    found = f"{made.decibels:.2f} dB held out ({made.worst:.2f} worst, {made.hardest:.2f} hardest)"
    found += f", {made.elsewhere_decibels:.2f} elsewhere"
    share = f"{made.in_8_bits} of {made.convolutions} convolutions, {made.share:.1%} of the multiply-adds"
    return f"{what} {found}, {share} ({made.seconds:.0f} s)"
