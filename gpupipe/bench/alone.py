"""The encoder by itself, fed from memory with pictures of the plan: the limit of everything that ends in it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from gpupipe.bench.flow import Discard, Run, Stopwatch, unwritten
from gpupipe.codecs.encoders import encoder_facts
from gpupipe.device import enter_device, open_lane
from gpupipe.errors import NoSessionError
from gpupipe.plan.memory import ENCODE_LANES
from gpupipe.render.codecs import make_encoder
from gpupipe.render.lanes import Crew
from gpupipe.render.segmented import in_lanes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.device.base import Lane
    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan
    from gpupipe.render import StopFlag

KEPT_BYTES = 1 << 30
MOST_KEPT = 300


class _Keep(Discard):
    """Keeps copies of all batches in the list that it is given."""

    def __init__(self, batches: list[FrameBatch]) -> None:
        self._batches = batches

    def encode(self, batch: FrameBatch) -> list[Packet]:
        super().encode(batch)
        self._batches.append(batch.with_(planes=tuple(plane.clone() for plane in batch.planes), ready=None))
        return []


def pictures_kept(plan: Plan) -> int:
    """How many pictures of the encoder's format are kept for it."""
    return max(1, min(MOST_KEPT, KEPT_BYTES // plan.encoder.input_format.frame_bytes))


def keep(plan: Plan, stop: StopFlag) -> list[FrameBatch]:
    """The pictures that a plan hands to its encoder, in memory; of a CPU encoder as libav's own frames."""
    batches: list[FrameBatch] = []
    unwritten(plan, lambda _: _Keep(batches), stop)
    batches.sort(key=lambda batch: batch.pts)
    if encoder_facts(plan.encoder.encoder).alone or batches[0].native is not None or batches[0].format.device != "cpu":
        return batches
    return [single for batch in batches for single in _native(batch, plan)]


def _native(batch: FrameBatch, plan: Plan) -> Iterator[FrameBatch]:
    from gpupipe.codecs.libav import encoder_name  # noqa: PLC0415
    from gpupipe.codecs.native import new_frame  # noqa: PLC0415  imports torch

    name = encoder_name(plan.encoder.encoder, batch.format)
    for row, pts in enumerate(batch.pts):
        frame = new_frame(batch.format, name, batch.planes, row)
        yield batch.with_(pts=(pts,), durations=batch.durations[row : row + 1], planes=(), native=frame)


def encoder_alone(plan: Plan, kept: list[FrameBatch], frames: int) -> Run:
    """Encodes `frames` pictures: those kept forwards, then backwards, and so on; the scene never cuts.

    With as many encoders side by side as the plan has.
    """
    lanes = plan.sessions
    if encoder_facts(plan.encoder.encoder).alone and plan.decoder == "nvdec" and in_lanes(plan):
        lanes = ENCODE_LANES
    watch = Stopwatch()
    places: list[Lane] = [open_lane(plan.device) for _ in range(lanes)]
    encoders = _open(plan, places)
    lanes, places = len(encoders), places[: len(encoders)]
    shares = [frames * (n + 1) // lanes - frames * n // lanes for n in range(lanes)]
    watch.open()
    with Crew() as crew:
        for n, (encoder, place, share) in enumerate(zip(encoders, places, shares, strict=True)):
            crew.start(f"encode-{n}", partial(_feed, encoder, place.device, kept, share))
    crew.check()
    run = watch.run(frames)
    for encoder in encoders:
        encoder.close()
    return run


def _open(plan: Plan, places: list[Lane]) -> list[Encoder]:
    """An encoder a lane, or as many as the GPU gives; raises NoSessionError where that is none."""
    encoders: list[Encoder] = []
    for place in places:
        try:
            encoders.append(make_encoder(plan.encoder, place, plan.batch, graphs=plan.graphs != "off"))
        except NoSessionError:
            if not encoders:
                raise
            break
    return encoders


def _feed(encoder: Encoder, device: str, kept: list[FrameBatch], frames: int) -> None:
    enter_device(device)
    step = max(1, round(1 / (encoder.settings.rate * encoder.settings.time_base)))
    sent = 0
    for batch in cycle((*kept, *kept[-2:0:-1])):
        take = min(batch.valid, frames - sent)
        if take <= 0:
            break
        pts = tuple((sent + n) * step for n in range(take))
        encoder.encode(replace(batch, pts=pts, durations=(step,) * take))
        sent += take
    encoder.finish()
