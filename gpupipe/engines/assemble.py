"""From a card and its weights to a network that runs on pictures of one size."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from gpupipe.engines.base import Profile, dtype_of
from gpupipe.engines.cache import EngineCache
from gpupipe.engines.eager import Eager
from gpupipe.engines.identity import digest_of, key_of, origin_of
from gpupipe.engines.running import Running, pixel_bytes
from gpupipe.engines.select import Selector, candidates, named
from gpupipe.engines.sizes import Shape, Sizes, choose_sizes
from gpupipe.errors import EngineError
from gpupipe.journal import Journal
from gpupipe.models import folder
from gpupipe.models.bind import bind
from gpupipe.models.load import load
from gpupipe.models.quantised import quantised

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from gpupipe.engines.base import Precision
    from gpupipe.engines.cache import Key
    from gpupipe.format import FrameFormat
    from gpupipe.models.card import Card
    from gpupipe.models.recipe import Recipe

    _Known = Callable[[Profile, Callable[[], float]], float]
    """What a profile takes, measured by the second, where nobody knows."""

_PROBE = {"cpu": 32, "cuda": 256}
"""Side of the picture that a network's memory is measured with."""
_BYTES = "bytes.json"
_PLENTY = 1 << 16
"""Bytes for each input pixel that no network takes."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a network is to run; see the settings of the stage `model`."""

    precision: Precision = "fp32"
    engine: str = "auto"
    tile: int | Literal["auto", "off"] = "auto"
    batch: int | Literal["auto"] = "auto"
    inputs: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)
    recipe: Recipe | None = None
    """Of 8 bits, made for this network."""
    rows: int = 1
    """Pictures that come at once, at most."""
    room: int | None = None
    """Bytes of the device for what is computed in between; None where nobody knows."""
    exact: bool = False
    """`tile` and `batch` are sizes that were chosen before, whatever comes at once here."""


def assemble(
    card: Card, files: Mapping[str, Path], wanted: Wanted, source: FrameFormat, journal: Journal | None = None
) -> Running:
    """The network of a card, prepared for pictures of a format and on its device.

    Raises:
        EngineError: the engine that was named does not do it, or the recipe is of another network.
        ShortMemoryError: there is too little even for the smallest tiles.
    """
    running, _ = _put_together(card, files, wanted, source, Journal() if journal is None else journal)
    try:
        with torch.inference_mode():
            running.prepare()
    except EngineError as error:
        raise EngineError(error.message, where=error.where or f"model {card.name}", hint=error.hint) from error
    return running


def foreseen(card: Card, files: Mapping[str, Path], wanted: Wanted, source: FrameFormat) -> tuple[str, Sizes] | None:
    """The engine and the sizes that `assemble` would come to, from what is kept; None where it would find out anew.

    Nothing is loaded but weights, and the device is left alone. Raises EngineError as `assemble` does.
    """
    try:
        running, selector = _put_together(card, files, wanted, source, Journal(), only_ask=True)
    except LookupError:
        return None
    engine = selector.foreseen(running.profile)
    return None if engine is None else (engine, running.sizes)


def _put_together(
    card: Card, files: Mapping[str, Path], wanted: Wanted, source: FrameFormat, told: Journal, *, only_ask: bool = False
) -> tuple[Running, Selector]:
    """Nothing is built yet; only to ask what would be, the network stays on the CPU and nothing is measured.

    Raises LookupError where it would have to be.
    """
    device = source.device
    bound, recipe = bind(card, load(card, files), wanted.inputs), wanted.recipe
    if recipe is not None:
        try:
            bound = quantised(bound, recipe)
        except ValueError as error:
            raise EngineError(str(error), where=f"model {card.name}") from error
    digest = "" if candidates(wanted.engine, device) == (named("eager"),) else digest_of(bound, origin_of(card, files))
    network = bound if only_ask else bound.to(device, dtype_of(wanted.precision))
    shape = Shape(source.height, source.width, card.scale, card.halo, card.multiple, card.minimum)
    cache = EngineCache(folder.engines(), say=told.say)
    ask = partial(_looked_up if only_ask else _kept, cache, digest)
    sizes = _sizes(network, shape, wanted, device, ask if digest or only_ask else _anew)
    selector = Selector(
        network, digest, wanted.engine, cache,
        say=lambda line: told.say(f"{card.name}: {line}"),
        warn=lambda line: told.warn("engine-left-out", f"{card.name}: {line}"),
    )  # fmt: skip
    running = Running(
        selector, shape, sizes, device=device, precision=wanted.precision,
        warn=lambda line: told.warn("out-of-memory", f"{card.name}: {line}"),
        numbers="" if recipe is None else recipe.numbers,
    )  # fmt: skip
    return running, selector


def _sizes(network: nn.Module, shape: Shape, wanted: Wanted, device: str, known: _Known) -> Sizes:
    if wanted.exact:
        assert wanted.batch != "auto", "it was chosen"
        return Sizes(wanted.tile if isinstance(wanted.tile, int) else None, wanted.batch)
    measured = _measured(network, shape, wanted, device, known)
    return choose_sizes(
        shape, rows=wanted.rows, room=wanted.room, pixel_bytes=measured, tile=wanted.tile, batch=wanted.batch
    )


def _measured(network: nn.Module, shape: Shape, wanted: Wanted, device: str, known: _Known) -> float:
    """Bytes for each input pixel; not measured where nothing depends on it."""
    pixels = shape.height * shape.width * wanted.rows
    plenty = device == "cpu" and wanted.room is not None and pixels * _PLENTY <= wanted.room and wanted.rows == 1
    if plenty or (wanted.tile != "auto" and (wanted.batch != "auto" or wanted.rows == 1)):
        return 1.0
    side = -(-max(_PROBE[torch.device(device).type], shape.least) // shape.multiple) * shape.multiple
    profile, part = Profile(1, side, side, wanted.precision, device), 1.0
    if device == "cpu" and wanted.precision != "fp32":  # takes the CPU a hundred times as long, and half the bytes
        profile, network, part = replace(profile, precision="fp32"), copy.deepcopy(network).float(), 0.5

    def measure() -> float:
        with torch.inference_mode():
            return part * pixel_bytes(Eager().load(network, profile, Path()), profile)

    return known(profile, measure)


def _anew(profile: Profile, measure: Callable[[], float]) -> float:
    del profile
    return measure()


def _kept(cache: EngineCache, digest: str, profile: Profile, measure: Callable[[], float]) -> float:
    """As it was measured before: to measure it loads libraries that an engine may do without, which takes seconds."""
    place, _ = cache.entry(_bytes_key(digest, profile), lambda new: _write(new / _BYTES, measure()))
    return _read(place)


def _looked_up(cache: EngineCache, digest: str, profile: Profile, measure: Callable[[], float]) -> float:
    """The same, and LookupError where it was not measured."""
    del measure
    if (place := cache.known(_bytes_key(digest, profile))) is None:
        raise LookupError
    return _read(place)


def _bytes_key(digest: str, profile: Profile) -> Key:
    return key_of(digest, profile, "memory", 1, Eager().versions())


def _read(place: Path) -> float:
    return float(json.loads((place / _BYTES).read_text(encoding="utf-8")))


def _write(path: Path, value: float) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
