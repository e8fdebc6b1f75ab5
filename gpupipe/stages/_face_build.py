"""From the settings of the stage `face` to what runs."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gpupipe.device.replay import Recorder
from gpupipe.engines.base import Profile
from gpupipe.engines.choice import Choice, holding, versions_of
from gpupipe.engines.identity import origin_of
from gpupipe.faces import choose, operate
from gpupipe.faces.detect import STEP, Wanted, faces_of, look, shown
from gpupipe.faces.engine import Batched
from gpupipe.faces.follow import Likeness
from gpupipe.faces.identity import Identity, reference
from gpupipe.faces.line import Line
from gpupipe.faces.networks import card_of, network_of, rehearsed
from gpupipe.faces.paste import Mask, rehearse
from gpupipe.faces.refine import SIDE, Refine
from gpupipe.faces.rework import Cut, Laying, Rework
from gpupipe.faces.sight import Following, Sight
from gpupipe.faces.smooth import Calm
from gpupipe.models.bind import bind
from gpupipe.models.load import load
from gpupipe.stages._face_settings import Select

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.engines.base import Precision
    from gpupipe.faces.found import Faces
    from gpupipe.faces.line import Chooser
    from gpupipe.format import FrameFormat
    from gpupipe.stages._face_settings import FaceSettings, Operation
    from gpupipe.stages.face import Face

    Detector = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]

_WHERE = "stages.face"
_CROPS, _LOOKS = 16, 4
"""Most faces that a network gets at once, and crops of each that are looked at again."""
_PIXELS = 8 << 18
"""Most of crops that a network for large ones gets at once: eight of 512 x 512."""


def build(stage: Face, source: FrameFormat) -> Line:
    """Loads and tries every network on the device of `source`. Raises PlanError where one does not fit."""
    settings, device = stage.settings, torch.device(source.device)
    following = _following(stage, source)
    wide, high = (-(-side // STEP) * STEP for side in following.look[:2])
    detector = _detector(stage, (wide, high), source, -(-stage.rows // following.every), "whole pictures")
    identity = _identity(stage, source) if stage.identifies else None
    size, much = (source.width, source.height), _together(stage.rows, source)
    room = max(_CROPS, stage.rows * wide * high // SIDE**2)  # crops take no more memory than pictures do
    looks = min(_LOOKS * much, room)
    closer = _detector(stage, (SIDE, SIDE), source, looks, "faces") if settings.detect.refine else None
    sight = Sight(
        detector, following, size, embed=identity, width=identity.width if identity else 0,
        refine=None if closer is None else Refine(closer, device, 0 if device.type == "cpu" else looks // _LOOKS),
    )  # fmt: skip
    chooser = _chooser(settings, size, _reference(stage, identity))
    rework, end = None, 0
    if settings.operate:
        template, side = stage.cut()
        work, end = _work(stage, side, source)
        cut = Cut(template, side, stage.extent)
        laying = _laying(settings)
        rework = Rework(cut, work, laying, size, device, together=much if device.type != "cpu" else 0)
        rehearse(torch.zeros(1, 3, 8, 8, dtype=_dtype(source), device=device), settings.detect.most, laying.mask)
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
        rgb = torch.zeros(rows, 3, source.height, source.width, dtype=_dtype(source), device=source.device)
        line.record(Recorder(lane), rgb)
        lane.synchronize()
    release_spare()


def _together(rows: int, source: FrameFormat) -> int:
    """Faces that are worked on at once where `rows` pictures come. On a GPU fewer are filled up, on the CPU none."""
    return _CROPS if source.device == "cpu" else min(_CROPS, 2 * rows)


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


def _dtype(source: FrameFormat) -> torch.dtype:
    return torch.float16 if source.pixels.name == "rgbf16" else torch.float32


def _precision(source: FrameFormat, *, half: bool) -> Precision:
    return "fp16" if half and source.pixels.name == "rgbf16" else "fp32"


class _Maps(torch.nn.Module):
    """R'G'B' 0..1 to all of a detector's maps as one tensor, which is what engines run."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, rgb: torch.Tensor) -> torch.Tensor:
        """(N, 3, h, w) to (N, 15, h / 4, w / 4)."""
        return torch.cat(self.network(rgb * 255), 1)


def _detector(stage: Face, size: tuple[int, int], source: FrameFormat, batch: int, what: str) -> Detector:
    """(N, 3, h, w) R'G'B' 0..255 to four maps; `size` is the width and height of `what` it sees."""
    name = stage.settings.detect.card
    card, files = card_of(name, "face-detection", f"{_WHERE}.detect.card")
    profile = Profile(batch, size[1], size[0], _precision(source, half=card.half), source.device)
    network = _batched(stage, _Maps(load(card, files)), f"{name} on {what}", profile, origin_of(card, files))
    stage.used[name] = network.engine

    def detect(rgb: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.split(network(rgb / 255).float(), [1, 2, 2, 10], 1))

    return detect


def _batched(stage: Face, network: torch.nn.Module, name: str, profile: Profile, origin: str) -> Batched:
    """By the engine, and in the batches, that were chosen before, where they were; see `base.Stage.hold`."""
    held = stage.held.get(name)
    assert held is not None or not stage.held, f"nothing was chosen for {name}"
    if held is not None:
        profile = replace(profile, batch=held.batch)
    engine = stage.settings.engine if held is None else held.engine
    with holding(held, profile.device):
        made = Batched(network, name, profile, engine, origin=origin, journal=stage.journal)
    versions = versions_of(made.engine)
    stage.made[name] = Choice(name, made.engine, profile.precision, profile.batch, None, versions)
    return made


def _identity(stage: Face, source: FrameFormat) -> Identity:
    card, files = card_of(stage.settings.track.card, "face-embedding", f"{_WHERE}.track.card")
    crop = card.crop
    assert crop is not None, "a card for embeddings has a crop"
    assert crop.align != "box", "and a template"
    precision, much = _precision(source, half=card.half), _together(stage.rows, source)
    device = torch.device(source.device)
    return Identity(load(card, files), crop.align, crop.size, device, precision, together=much)


def _reference(stage: Face, identity: Identity | None) -> torch.Tensor | None:
    select, detect, name = stage.settings.select, stage.settings.detect, stage.settings.track.card
    if not isinstance(select, Select) or select.reference is None or identity is None:
        return None
    card, files = card_of(detect.card, "face-detection", f"{_WHERE}.detect.card")
    network = load(card, files)  # on the CPU: one picture of any size
    both = origin_of(card, files) + origin_of(*card_of(name, "face-embedding", f"{_WHERE}.track.card"))
    digest = hashlib.sha256(both.encode()).hexdigest()

    def find(rgb: torch.Tensor) -> Faces:
        how = look(rgb.shape[3], rgb.shape[2], max(rgb.shape[2:]))
        found = faces_of(network(shown(rgb, how)), how, Wanted(detect.score, 0.0, 8))
        return found.map(lambda x: x.to(identity.device))

    with torch.inference_mode():
        known = reference(Path(select.reference), find, identity, digest, f"{_WHERE}.select.reference")
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
    for n, operation in enumerate(stage.settings.operate):
        if operation.network is None:
            calls.append(_simple(operation))
            continue
        slot, where = stage.slots()[n], f"{_WHERE}.operate[{n}]"
        wanted = slot.size or side + -side % slot.multiple
        if wanted != side:
            calls.append(partial(operate.sized, side=wanted))
        network = network_of(_network(operation, where), slot)
        profile = Profile(
            1 if slot.single else max(1, min(_together(stage.rows, source), _PIXELS // wanted**2)), wanted, wanted,
            _precision(source, half=slot.half), source.device,
        )  # fmt: skip
        side = rehearsed(network, slot, wanted, where)
        origin = f"{slot} {_origin(operation, where)}"
        through = _batched(stage, network, f"{slot.name} of operate[{n}]", profile, origin)
        stage.used[slot.name] = through.engine
        calls.append(lambda faces, through=through: through(faces).float())  # type: ignore[misc]
    return calls, side


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


def _simple(operation: Operation) -> Callable[[torch.Tensor], torch.Tensor]:
    if operation.blur is not None:
        return partial(operate.blur, radius=operation.blur.radius)
    if operation.pixelate is not None:
        return partial(operate.pixelate, blocks=operation.pixelate.blocks, contrast=operation.pixelate.contrast)
    assert operation.fill is not None, "an operation is one of these"
    return partial(operate.fill, color=operation.fill.color)
