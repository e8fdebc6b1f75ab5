"""From the settings of the stage `face` to what runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gpupipe.faces import choose, operate
from gpupipe.faces.detect import Wanted, faces_of, look, shown
from gpupipe.faces.follow import Likeness
from gpupipe.faces.identity import Identity, reference
from gpupipe.faces.line import Line
from gpupipe.faces.networks import Through, card_of
from gpupipe.faces.paste import Mask
from gpupipe.faces.rework import Cut, Laying, Rework
from gpupipe.faces.sight import Following, Sight
from gpupipe.faces.smooth import Calm
from gpupipe.models.bind import bind
from gpupipe.models.load import load
from gpupipe.stages._face_settings import Select

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.faces.found import Faces
    from gpupipe.faces.line import Chooser
    from gpupipe.format import FrameFormat
    from gpupipe.models.card import Card
    from gpupipe.stages._face_settings import FaceSettings, Operation
    from gpupipe.stages.face import Face

_WHERE = "stages.face"


def build(stage: Face, source: FrameFormat) -> Line:
    """Loads and tries every network on the device of `source`. Raises PlanError where one does not fit."""
    settings, device = stage.settings, torch.device(source.device)
    precision = torch.float16 if source.pixels.name == "rgbf16" else torch.float32
    detector = _detector(settings.detect.card, device, precision)
    identity = _identity(settings.track.card, device, precision) if stage.identifies else None
    following = _following(stage, source)
    size = (source.width, source.height)
    sight = Sight(detector, following, size, identity, identity.width if identity else 0)
    chooser = _chooser(settings, size, _reference(settings, detector, identity, device))
    rework = None
    if settings.operate:
        template, side = stage.cut()
        work, end = _work(stage, side, device, precision)
        del end
        rework = Rework(Cut(template, side, settings.align.extent), work, _laying(settings), size, device)
    return Line(sight, chooser, rework, device, debug=settings.debug)


def _following(stage: Face, source: FrameFormat) -> Following:
    detect, track, smooth = stage.settings.detect, stage.settings.track, stage.settings.smooth
    return Following(
        look(source.width, source.height, stage.longest(source)),
        Wanted(detect.score, detect.smallest, detect.most),
        detect.every,
        Likeness(track.overlap, track.distance),
        track.hold,
        None if isinstance(smooth, str) else Calm(smooth.cutoff, smooth.beta, smooth.slope, smooth.window),
    )


def _precision(card: Card, wanted: torch.dtype) -> torch.dtype:
    return wanted if card.half else torch.float32


def _detector(
    name: str, device: torch.device, wanted: torch.dtype
) -> Callable[[torch.Tensor], tuple[torch.Tensor, ...]]:
    card, files = card_of(name, "face-detection", f"{_WHERE}.detect.card")
    precision = _precision(card, wanted)
    network = load(card, files).to(device, precision).eval()

    def detect(rgb: torch.Tensor) -> tuple[torch.Tensor, ...]:
        maps: tuple[torch.Tensor, ...] = network(rgb.to(precision))
        return tuple(m.float() for m in maps)

    return detect


def _identity(name: str, device: torch.device, wanted: torch.dtype) -> Identity:
    card, files = card_of(name, "face-embedding", f"{_WHERE}.track.card")
    crop = card.crop
    assert crop is not None, "a card for embeddings has a crop"
    assert crop.align != "box", "and a template"
    return Identity(load(card, files), crop.align, crop.size, device, _precision(card, wanted))


def _reference(
    settings: FaceSettings, detector: Callable[[torch.Tensor], tuple[torch.Tensor, ...]], identity: Identity | None,
    device: torch.device,
) -> torch.Tensor | None:  # fmt: skip
    select = settings.select
    if not isinstance(select, Select) or select.reference is None or identity is None:
        return None

    def find(rgb: torch.Tensor) -> Faces:
        how = look(rgb.shape[3], rgb.shape[2], max(rgb.shape[2:]))
        return faces_of(detector(shown(rgb.to(device), how)), how, Wanted(settings.detect.score, 0.0, 8))

    with torch.inference_mode():
        known = reference(Path(select.reference), find, identity, settings.track.card, f"{_WHERE}.select.reference")
    return known.to(device)


def _chooser(settings: FaceSettings, size: tuple[int, int], known: torch.Tensor | None) -> Chooser:
    select = settings.select
    if select == "all":
        return lambda seen: seen.faces.valid
    if isinstance(select, str):
        return lambda seen: choose.largest(seen.faces)
    if select.region is not None:
        x, y, width, height = select.region
        region = (x * size[0] - 0.5, y * size[1] - 0.5, width * size[0], height * size[1])
        return lambda seen: choose.within(seen.faces, region)
    if select.index is not None:
        return lambda seen: choose.numbered(seen.faces, select.index or 0)
    assert known is not None, "the settings ask for one"
    return lambda seen: choose.like(seen.embeddings, seen.faces.valid, known, select.distance)


def _laying(settings: FaceSettings) -> Laying:
    blend = settings.blend
    return Laying(Mask(blend.mask, blend.feather, blend.opacity), blend.match_color, blend.method == "poisson")


def _work(
    stage: Face, side: int, device: torch.device, precision: torch.dtype
) -> tuple[list[Callable[[torch.Tensor], torch.Tensor]], int]:  # fmt: skip
    """What is done to crops, and the side that they have in the end."""
    calls = []
    for n, operation in enumerate(stage.settings.operate):
        if operation.network is None:
            calls.append(_simple(operation))
            continue
        slot, where = stage.slots()[n], f"{_WHERE}.operate[{n}]"
        through = Through(_network(operation, where), slot, device, precision if slot.half else torch.float32)
        if slot.size is not None and slot.size != side:
            calls.append(partial(operate.sized, side=slot.size))
            side = slot.size
        elif side % slot.multiple:
            side += -side % slot.multiple
            calls.append(partial(operate.sized, side=side))
        with torch.inference_mode():
            side = through.rehearse(side, where)
        calls.append(through)
    return calls, side


def _network(operation: Operation, where: str) -> torch.nn.Module:
    wanted = operation.network
    assert wanted is not None, "asked only where there is one"
    if wanted.card is not None:
        card, files = card_of(wanted.card, "", where)
        return bind(card, load(card, files), wanted.inputs)
    from gpupipe.models import onnx  # noqa: PLC0415  an extra

    return onnx.read(Path(wanted.onnx or ""))


def _simple(operation: Operation) -> Callable[[torch.Tensor], torch.Tensor]:
    if operation.blur is not None:
        return partial(operate.blur, radius=operation.blur.radius)
    if operation.pixelate is not None:
        return partial(operate.pixelate, blocks=operation.pixelate.blocks)
    assert operation.fill is not None, "an operation is one of these"
    return partial(operate.fill, color=operation.fill.color)
