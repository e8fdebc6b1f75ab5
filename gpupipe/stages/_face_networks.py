"""The networks of the stage `face`: what each is built for, and on what it will run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gpupipe.engines.base import Profile
from gpupipe.engines.choice import Choice, holding, versions_of
from gpupipe.engines.identity import origin_of
from gpupipe.faces.detect import look
from gpupipe.faces.engine import Batched, foreseen
from gpupipe.faces.networks import card_of, network_of, rehearsed
from gpupipe.faces.refine import SIDE
from gpupipe.models.bind import bind
from gpupipe.models.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.engines.base import Precision
    from gpupipe.faces.networks import Slot
    from gpupipe.format import FrameFormat
    from gpupipe.stages._face_settings import Operation
    from gpupipe.stages.face import Face

WHERE = "stages.face"
CROPS, LOOKS = 16, 4
"""Most faces that a network gets at once, and crops of each that are looked at again."""
_PIXELS = 8 << 18
"""Most of crops that a network for large ones gets at once: eight of 512 x 512."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A network on the CPU, and what it is to be built for."""

    name: str
    network: torch.nn.Module
    profile: Profile
    origin: str
    """What it was made from, beside its weights."""


@dataclass(frozen=True, slots=True)
class Operated:
    """What is done to crops by one operation, and the sides that they then have."""

    operation: Operation
    slot: Slot | None
    before: int
    after: int
    asked: Asked | None
    """None where it is no network."""


def foreseen_choices(stage: Face, source: FrameFormat) -> tuple[Choice, ...] | None:
    """See `Stage.foreseen`."""
    _, side = stage.cut()
    closer = [closer_detector(stage, source)] if stage.settings.detect.refine else []
    work = [one.asked for one in operations(stage, side, source) if one.asked is not None]
    found = list[Choice]()
    for asked in (whole_detector(stage, source), *closer, *work):
        engine = foreseen(asked.network, asked.profile, stage.settings.engine, asked.origin)
        if engine is None:
            return None
        found.append(_choice(asked.name, engine, asked.profile))
    return tuple(found)


def _choice(name: str, engine: str, profile: Profile) -> Choice:
    return Choice(name, engine, profile.precision, profile.batch, None, versions_of(engine))


def seen_size(stage: Face, source: FrameFormat) -> tuple[int, int]:
    """Width and height of what the detector gets of a picture."""
    return look(source.width, source.height, stage.longest(source)).padded


def looks_at_once(stage: Face, source: FrameFormat) -> int:
    """Crops that are looked at again at once: they take no more memory than pictures do."""
    wide, high = seen_size(stage, source)
    room = max(CROPS, stage.rows * wide * high // SIDE**2)
    return min(LOOKS * together(stage.rows, source), room)


def whole_detector(stage: Face, source: FrameFormat) -> Asked:
    """Of whole pictures."""
    every = stage.settings.detect.every
    return _detector(stage, seen_size(stage, source), source, -(-stage.rows // every), "whole pictures")


def closer_detector(stage: Face, source: FrameFormat) -> Asked:
    """Of crops."""
    return _detector(stage, (SIDE, SIDE), source, looks_at_once(stage, source), "faces")


def together(rows: int, source: FrameFormat) -> int:
    """Faces that are worked on at once where `rows` pictures come. On a GPU fewer are filled up, on the CPU none."""
    return CROPS if source.device == "cpu" else min(CROPS, 2 * rows)


def dtype(source: FrameFormat) -> torch.dtype:
    return torch.float16 if source.pixels.name == "rgbf16" else torch.float32


def precision(source: FrameFormat, *, half: bool) -> Precision:
    return "fp16" if half and source.pixels.name == "rgbf16" else "fp32"


class _Maps(torch.nn.Module):
    """R'G'B' 0..1 to all of a detector's maps as one tensor, which is what engines run."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, rgb: torch.Tensor) -> torch.Tensor:
        """(N, 3, h, w) to (N, 15, h / 4, w / 4)."""
        return torch.cat(self.network(rgb * 255), 1)


def _detector(stage: Face, size: tuple[int, int], source: FrameFormat, batch: int, what: str) -> Asked:
    """(N, 3, h, w) R'G'B' 0..1 to all maps; `size` is the width and height of `what` it sees."""
    name = stage.settings.detect.card
    card, files = card_of(name, "face-detection", f"{WHERE}.detect.card")
    profile = Profile(batch, size[1], size[0], precision(source, half=card.half), source.device)
    return Asked(f"{name} on {what}", _Maps(load(card, files)), profile, origin_of(card, files))


def operations(stage: Face, side: int, source: FrameFormat) -> Iterator[Operated]:
    """What is done to crops that begin with `side` pixels, in order. Raises PlanError where a network does not fit."""
    for n, operation in enumerate(stage.settings.operate):
        if operation.network is None:
            yield Operated(operation, None, side, side, None)
            continue
        slot, where = stage.slots()[n], f"{WHERE}.operate[{n}]"
        wanted = slot.size or side + -side % slot.multiple
        network = network_of(_network(operation, where), slot)
        profile = Profile(
            1 if slot.single else max(1, min(together(stage.rows, source), _PIXELS // wanted**2)), wanted, wanted,
            precision(source, half=slot.half), source.device,
        )  # fmt: skip
        side = rehearsed(network, slot, wanted, where)
        asked = Asked(f"{slot.name} of operate[{n}]", network, profile, f"{slot} {_origin(operation, where)}")
        yield Operated(operation, slot, wanted, side, asked)


def batched(stage: Face, asked: Asked) -> Batched:
    """By the engine, and in the batches, that were chosen before, where they were; see `base.Stage.hold`."""
    name, profile, held = asked.name, asked.profile, stage.held.get(asked.name)
    assert held is not None or not stage.held, f"nothing was chosen for {name}"
    if held is not None:
        profile = replace(profile, batch=held.batch)
    engine = stage.settings.engine if held is None else held.engine
    with holding(held, profile.device):
        made = Batched(asked.network, name, profile, engine, origin=asked.origin, journal=stage.journal)
    stage.made[name] = _choice(name, made.engine, profile)
    return made


def _network(operation: Operation, where: str) -> torch.nn.Module:
    wanted = operation.network
    assert wanted is not None, "asked only where there is one"
    if wanted.card is not None:
        card, files = card_of(wanted.card, "", where)
        return bind(card, load(card, files), wanted.inputs)
    from gpupipe.models import onnx  # noqa: PLC0415  an extra

    return onnx.read(Path(wanted.onnx or ""))


def _origin(operation: Operation, where: str) -> str:
    """What the operation's network is made from: two files of the same weights may be two networks."""
    wanted = operation.network
    assert wanted is not None, "asked only where there is one"
    if wanted.card is not None:
        return origin_of(*card_of(wanted.card, "", where))
    return hashlib.sha256(Path(wanted.onnx or "").read_bytes()).hexdigest()
