"""How close the encoded pictures are to what was to be encoded: PSNR and SSIM by libavfilter, VMAF by libvmaf.

Alpha is not measured.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import fmean
from typing import TYPE_CHECKING

import av

from gpupipe.codecs.matte import ONE_THREAD
from gpupipe.device import open_lane
from gpupipe.errors import MediaError, PlanError
from gpupipe.format import pixel_format, without_alpha
from gpupipe.journal import Journal
from gpupipe.media.demux import Demuxer
from gpupipe.media.timeline import Window
from gpupipe.render.codecs import make_decoder
from gpupipe.render.feed import Feed, check_stop
from gpupipe.render.pictures import Pictures, make_transform
from gpupipe.render.progress import Score, expected
from gpupipe.render.vmaf import Vmaf, vmaf_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from av.filter.context import FilterContext

    from gpupipe.config import Quality
    from gpupipe.plan import Plan
    from gpupipe.render.progress import StopFlag
    from gpupipe.render.stills import Picture

_TICK = Fraction(1, 25)
"""Pairs are numbered; the filters want a time base all the same."""


def check(plan: Plan) -> None:
    """Before the run: raises PlanError for what could not be measured after it."""
    wanted, made = plan.quality, plan.encoder.input_format
    if wanted is None:
        return
    source = plan.source.video.format
    if wanted.against == "input" and (source.width, source.height) != (made.width, made.height):
        raise PlanError(
            f"{source.width}x{source.height} cannot be compared with {made.width}x{made.height}",
            where="quality.against", hint="use `against: stages`",
        )  # fmt: skip
    if "vmaf" in wanted.metrics and vmaf_program() is None:
        raise PlanError(
            "no libvmaf here", where="quality.metrics", hint="pip install 'gpupipe[quality]', or an ffmpeg that has it"
        )


def measure(plan: Plan, wanted: Quality, output: Path, stop: StopFlag) -> tuple[Score, ...]:
    """Compares the pictures of `output` with those that the plan's stages give again.

    Raises:
        MediaError: a score lies under its threshold, or the pictures are not as many.
        StoppedError: `stop` was set.
    """
    meters: list[_Filter | Vmaf] = [Vmaf() if name == "vmaf" else _Filter(name) for name in wanted.metrics]
    total = expected(plan) or 0
    stride = 1 if wanted.frames == "all" else max(1, total // int(wanted.frames))
    try:
        for pts, made, reference in _pairs(plan, wanted, output, stride, stop):
            for meter in meters:
                meter.add(pts, made, reference)
        limits: Mapping[str, float] = {str(name): least for name, least in wanted.minimum.items()}
        tick = float(plan.encoder.time_base)
        scores = tuple(_score(m.name, m.finish(), limits.get(m.name), tick) for m in meters)
    finally:
        for meter in meters:
            meter.close()
    for score in scores:
        if not score.passed:
            raise MediaError(
                f"{score.name} is {score.mean_text}, less than {score.threshold:g}",
                where=str(plan.output), hint="raise the quality or the bitrate, or lower `quality.minimum`",
            )  # fmt: skip
    return scores


def _pairs(
    plan: Plan, wanted: Quality, output: Path, stride: int, stop: StopFlag
) -> Iterator[tuple[int, av.VideoFrame, av.VideoFrame]]:
    """(pts, encoded, reference) of every `stride`-th picture, both in the encoded one's format."""
    lane, journal = open_lane(plan.device), Journal()
    transform = make_transform(plan, lane, journal)
    from gpupipe.render.stills import owned  # noqa: PLC0415  imports torch

    with Demuxer(plan.source, journal, range_start=plan.start_pts) as demuxer, av.open(str(output)) as made:
        decoder = make_decoder(plan, demuxer.video_stream, lane, journal)
        feed = Feed(plan, demuxer, journal, lambda _: None, stop)
        pictures = Pictures(
            plan, feed, decoder, window=Window(plan.start_pts, plan.end_pts), transform=lambda batch: batch, lane=lane,
            journal=journal,
        )  # fmt: skip
        stream = made.streams.video[0]
        stream.thread_type = "AUTO"
        encoded = made.decode(stream)
        try:
            for number, batch in enumerate(pictures):
                check_stop(stop)
                frame = next(encoded, None)
                if frame is None:
                    raise MediaError(f"the output ends after {number} pictures", where=str(plan.output))
                wanted_one, staged = number % stride == 0, wanted.against == "stages"
                if staged and (wanted_one or transform.remembers):
                    batch = transform(batch)  # noqa: PLW2901
                if wanted_one:
                    plain = without_alpha(frame.format.name)
                    frame = frame if plain is None else frame.reformat(format=plain, threads=ONE_THREAD)
                    yield batch.pts[0], frame, _as(frame, owned(batch, lane))
        finally:
            decoder.close()
            stream.codec_context.flush_buffers()  # as LibavDecoder.close


def _as(frame: av.VideoFrame, shown: Picture) -> av.VideoFrame:
    """A picture, without alpha, as a frame of the same format as the encoded one."""
    from gpupipe.codecs.native import new_frame  # noqa: PLC0415  imports torch
    from gpupipe.ops.color import Converter  # noqa: PLC0415

    pixels = pixel_format(frame.format.name)
    source = shown.format.with_(alpha=0)
    planes = shown.planes[:-1] if shown.format.alpha else shown.planes
    if pixels is None:
        return new_frame(source, source.pixels.name, planes, 0).reformat(format=frame.format.name, threads=ONE_THREAD)
    target = source.with_(pixels=pixels)
    return new_frame(target, frame.format.name, Converter(source, target, dither=False)(planes), 0)


class _Filter:
    """PSNR or SSIM: what ffmpeg's filter of that name says of each pair."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pts: list[int] = []
        self._values: list[float] = []
        self._errors: list[float] = []
        self._peak = 255
        self._inputs: tuple[FilterContext, FilterContext] | None = None

    def add(self, pts: int, made: av.VideoFrame, reference: av.VideoFrame) -> None:
        """One pair; `made` is what was encoded."""
        if self._inputs is None:
            self._open(made)
        assert self._inputs is not None
        for source, frame in zip(self._inputs, (made, reference), strict=True):
            frame.pts, frame.time_base = len(self._pts), _TICK
            source.push(frame)
        said = self._sink.pull().metadata
        self._pts.append(pts)
        if self.name == "ssim":
            self._values.append(float(said["lavfi.ssim.All"]))
        else:
            self._errors.append(float(said["lavfi.psnr.mse_avg"]))
            self._values.append(float(said["lavfi.psnr.psnr_avg"]))

    def _open(self, made: av.VideoFrame) -> None:
        self._graph = graph = av.filter.Graph()
        size = {"width": made.width, "height": made.height, "format": made.format, "time_base": _TICK}
        inputs = (graph.add_buffer(**size, name="made"), graph.add_buffer(**size, name="reference"))  # type: ignore[arg-type]
        compare, self._sink = graph.add(self.name), graph.add("buffersink")
        for number, source in enumerate(inputs):
            source.link_to(compare, 0, number)
        compare.link_to(self._sink)
        graph.configure()
        self._inputs, self._peak = inputs, (1 << made.format.components[0].bits) - 1

    def finish(self) -> tuple[list[int], list[float], float]:
        """(pts, score of each pair, score of all); PSNR's is that of the mean error, as ffmpeg has it."""
        if self.name == "ssim":
            return self._pts, self._values, fmean(self._values)
        error = fmean(self._errors)
        return self._pts, self._values, 10 * math.log10(self._peak**2 / error) if error else math.inf

    def close(self) -> None:
        """The graph goes with its last reference."""
        self._inputs = None


def _score(name: str, found: tuple[list[int], list[float], float], threshold: float | None, tick: float) -> Score:
    pts, values, mean = found
    least = min(range(len(values)), key=lambda n: values[n])
    passed = threshold is None or mean >= threshold
    return Score(name, mean, values[least], pts[least] * tick, len(values), threshold, passed)
