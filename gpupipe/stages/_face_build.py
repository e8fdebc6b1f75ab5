"""From the settings of the stage `face` to what runs."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gpupipe.device.replay import Recorder
from gpupipe.engines.identity import origin_of
from gpupipe.faces import choose, operate
from gpupipe.faces.detect import Wanted, faces_of, look, shown
from gpupipe.faces.follow import Likeness
from gpupipe.faces.identity import Identity, reference
from gpupipe.faces.line import Line
from gpupipe.faces.networks import card_of
from gpupipe.faces.paste import Mask, rehearse
from gpupipe.faces.refine import Refine
from gpupipe.faces.rework import Cut, Laying, Rework
from gpupipe.faces.seen import Following
from gpupipe.faces.sight import Sight
from gpupipe.faces.smooth import Calm
from gpupipe.models.load import load
from gpupipe.stages._face_networks import (
    LOOKS,
    WHERE,
    batched,
    closer_detector,
    dtype,
    looks_at_once,
    operations,
    precision,
    together,
    whole_detector,
)
from gpupipe.stages._face_settings import Select

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.faces.found import Faces
    from gpupipe.faces.line import Chooser
    from gpupipe.format import FrameFormat
    from gpupipe.stages._face_networks import Asked
    from gpupipe.stages._face_settings import FaceSettings, Operation
    from gpupipe.stages.face import Face

    Detector = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def build(stage: Face, source: FrameFormat) -> Line:
    """Loads and tries every network on the device of `source`. Raises PlanError where one does not fit."""
    settings, device = stage.settings, torch.device(source.device)
    following = _following(stage, source)
    detector = _detector(stage, whole_detector(stage, source))
    identity = _identity(stage, source) if stage.identifies else None
    size, much = (source.width, source.height), together(stage.rows, source)
    looks = looks_at_once(stage, source)
    closer = _detector(stage, closer_detector(stage, source)) if settings.detect.refine else None
    sight = Sight(
        detector, following, size, embed=identity, width=identity.width if identity else 0,
        refine=None if closer is None else Refine(closer, device, 0 if device.type == "cpu" else looks // LOOKS),
    )  # fmt: skip
    chooser = _chooser(settings, size, _reference(stage, identity))
    rework, end = None, 0
    if settings.operate:
        template, side = stage.cut()
        work, end = _work(stage, side, source)
        cut = Cut(template, side, stage.extent)
        laying = _laying(settings)
        rework = Rework(cut, work, laying, size, device, together=much if device.type != "cpu" else 0)
        rehearse(torch.zeros(1, 3, 8, 8, dtype=dtype(source), device=device), settings.detect.most, laying.mask)
    line = Line(sight, chooser, rework, end, device=device, debug=settings.debug)
    if stage.graphs and device.type != "cpu":
        _record(line, stage.rows, source)
    return line


def _record(line: Line, rows: int, source: FrameFormat) -> None:
    """On a lane of its own: the one that the stage runs on may be any, and is waited for first."""
    from gpupipe.device.cuda import CudaLane, release_spare  # noqa: PLC0415  only where there is a GPU

    torch.cuda.current_stream(source.device).synchronize()
    lane = CudaLane(source.device)
    with torch.inference_mode(), lane.active():
        rgb = torch.zeros(rows, 3, source.height, source.width, dtype=dtype(source), device=source.device)
        line.record(Recorder(lane), rgb)
        lane.synchronize()
    release_spare()


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


def _detector(stage: Face, asked: Asked) -> Detector:
    """(N, 3, h, w) R'G'B' 0..255 to four maps."""
    network = batched(stage, asked)
    stage.used[stage.settings.detect.card] = network.engine

    def detect(rgb: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.split(network(rgb / 255).float(), [1, 2, 2, 10], 1))

    return detect


def _identity(stage: Face, source: FrameFormat) -> Identity:
    card, files = card_of(stage.settings.track.card, "face-embedding", f"{WHERE}.track.card")
    crop = card.crop
    assert crop is not None, "a card for embeddings has a crop"
    assert crop.align != "box", "and a template"
    much = together(stage.rows, source)
    device = torch.device(source.device)
    return Identity(load(card, files), crop.align, crop.size, device, precision(source, half=card.half), together=much)


def _reference(stage: Face, identity: Identity | None) -> torch.Tensor | None:
    select, detect, name = stage.settings.select, stage.settings.detect, stage.settings.track.card
    if not isinstance(select, Select) or select.reference is None or identity is None:
        return None
    card, files = card_of(detect.card, "face-detection", f"{WHERE}.detect.card")
    network = load(card, files)  # on the CPU: one picture of any size
    both = origin_of(card, files) + origin_of(*card_of(name, "face-embedding", f"{WHERE}.track.card"))
    digest = hashlib.sha256(both.encode()).hexdigest()

    def find(rgb: torch.Tensor) -> Faces:
        how = look(rgb.shape[3], rgb.shape[2], max(rgb.shape[2:]))
        found = faces_of(network(shown(rgb, how)), how, Wanted(detect.score, 0.0, 8))
        return found.map(lambda x: x.to(identity.device))

    with torch.inference_mode():
        known = reference(Path(select.reference), find, identity, digest, f"{WHERE}.select.reference")
    return known.to(identity.device)


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
    blend, hides = settings.blend, settings.hides
    feather = (0.02 if hides else 0.15) if blend.feather is None else blend.feather
    return Laying(
        # An ellipse of one colour under hair is a face to a detector; a box is none.
        Mask(blend.mask or ("box" if hides else "ellipse"), feather, blend.opacity),
        blend.match_color,
        blend.method == "poisson",
        blend.steady,
    )


def _work(stage: Face, side: int, source: FrameFormat) -> tuple[list[Callable[[torch.Tensor], torch.Tensor]], int]:
    """What is done to crops that begin with `side` pixels, and how many they have in the end."""
    calls: list[Callable[[torch.Tensor], torch.Tensor]] = []
    for one in operations(stage, side, source):
        if one.asked is None or one.slot is None:
            calls.append(_simple(one.operation))
            continue
        if one.before != side:
            calls.append(partial(operate.sized, side=one.before))
        through = batched(stage, one.asked)
        stage.used[one.slot.name] = through.engine
        calls.append(lambda faces, through=through: through(faces).float())  # type: ignore[misc]
        side = one.after
    return calls, side


def _simple(operation: Operation) -> Callable[[torch.Tensor], torch.Tensor]:
    if operation.blur is not None:
        return partial(operate.blur, radius=operation.blur.radius)
    if operation.pixelate is not None:
        return partial(operate.pixelate, blocks=operation.pixelate.blocks, contrast=operation.pixelate.contrast)
    assert operation.fill is not None, "an operation is one of these"
    return partial(operate.fill, color=operation.fill.color)
