"""Single pictures of a run: what its decoder gives and what its encoder would get at a time, without the run."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from gpupipe.codecs.native import planes_of
from gpupipe.device import open_lane
from gpupipe.errors import ConfigError, PlanError
from gpupipe.journal import Journal
from gpupipe.media.demux import Demuxer
from gpupipe.media.timeline import Window
from gpupipe.media.window import resolve_range
from gpupipe.render.codecs import make_decoder
from gpupipe.render.feed import Feed
from gpupipe.render.pictures import Pictures, Transform, make_transform

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    import torch

    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture in memory of its own, on the host."""

    format: FrameFormat
    planes: tuple[torch.Tensor, ...]
    """As `PixelFormat` lays them out, with a leading 1."""


@dataclass(frozen=True, slots=True)
class Still:
    """A picture of a run, before and after its stages."""

    pts: int
    """Of the output, in `time_base`."""
    time_base: Fraction
    before: Picture
    """As decoded."""
    after: Picture
    """As the encoder would get it, bit for bit."""
    origin: Fraction
    """Seconds of the source that are 0 of a player."""

    @property
    def seconds(self) -> Fraction:
        """From the start of the file, as a player counts."""
        return self.pts * self.time_base - self.origin


def moments(texts: Sequence[str], plan: Plan) -> tuple[int, ...]:
    """Ticks of the source's video for times as `range.start` takes them.

    Raises ConfigError or PlanError for what is no time or lies outside the file or the range of the plan.
    """
    return tuple(_moment(text, plan) for text in texts)


def _moment(text: str, plan: Plan) -> int:
    try:
        tick = resolve_range(text, None, plan.source).start
    except (ConfigError, PlanError) as error:
        error.where = "--at"
        raise
    assert tick is not None
    if not Window(plan.start_pts, plan.end_pts).holds(tick):
        raise PlanError(f"{text} lies outside the range of the config", where="--at", hint="see range.start, range.end")
    return tick


def spread(count: int, plan: Plan) -> tuple[int, ...]:
    """`count` ticks, evenly over the plan's range, each amid its share. Raises PlanError where no length is known."""
    video = plan.source.video
    first = plan.start_pts if plan.start_pts is not None else video.start or 0
    length = video.duration
    if length is None and plan.source.duration is not None:
        length = int(plan.source.duration / video.time_base)
    if length is None and plan.end_pts is None:
        raise PlanError("the source does not say how long it is", where="--contact", hint="give times with --at")
    end = plan.end_pts if plan.end_pts is not None else (video.start or 0) + (length or 0)
    if plan.end_pts is not None and length is not None:
        end = min(end, (video.start or 0) + length)
    return tuple(first + (2 * n + 1) * (end - first) // (2 * count) for n in range(count))


def stills(plan: Plan, ticks: Sequence[int], *, beyond: bool = False) -> tuple[Still, ...]:
    """The first picture at or after each tick, by the plan's own decoder and stages.

    With `beyond`, ticks that no picture follows are left out, and where none is left, the first of the range is taken.

    Each is found by seeking, so a long file costs no more than a short one; only an `fps` stage, which counts from the
    beginning on, makes all before it be decoded.

    Raises:
        PlanError: no picture follows a tick, or there is none at all.
        MediaError, DeviceError: as a run.
    """
    lane, journal = open_lane(plan.device), Journal()
    transform = make_transform(plan, lane, journal)
    found: dict[int, Still] = {}
    for tick in sorted(set(ticks)):
        try:
            found[tick] = _still(plan, tick, lane, transform, journal)
        except PlanError:
            if not beyond:
                raise
            break
    if not found:
        first = plan.start_pts if plan.start_pts is not None else plan.source.video.start or 0
        return (_still(plan, first, lane, transform, journal),)
    return tuple(found[tick] for tick in ticks if tick in found)


def _still(plan: Plan, tick: int, lane: Lane, transform: Transform, journal: Journal) -> Still:
    transform.begin(0)
    begin = plan.start_pts if plan.retime is not None else tick
    with Demuxer(plan.source, journal, range_start=begin) as demuxer:
        decoder = make_decoder(plan, demuxer.video_stream, lane, journal)
        try:
            feed = Feed(plan, demuxer, journal, lambda _: None, Event())
            pictures = Pictures(
                plan, feed, decoder, window=Window(begin, plan.end_pts), transform=lambda batch: batch, lane=lane,
                journal=journal,
            )  # fmt: skip
            for batch in pictures:
                if batch.pts[0] * batch.time_base >= tick * plan.source.video.time_base:
                    before = owned(batch, lane)
                    after = owned(transform(batch), lane)
                    return Still(batch.pts[0], batch.time_base, before, after, plan.source.start)
        finally:
            decoder.close()
    at = float(tick * plan.source.video.time_base - plan.source.start)
    raise PlanError(f"no picture follows {at:.3f} s", where=str(plan.source.path), hint="give an earlier time")


def owned(batch: FrameBatch, lane: Lane) -> Picture:
    """The first picture of a batch, a copy on the host: decoders take their surfaces back."""
    with lane.active():
        lane.wait(batch.ready)
        planes = tuple(plane[:1].detach().to("cpu", copy=True) for plane in planes_of(batch))
    lane.synchronize()
    return Picture(batch.format.with_(device="cpu"), planes)
