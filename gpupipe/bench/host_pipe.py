"""The usual way: libav decodes, numpy carries, the GPU computes, numpy carries back, libav encodes.

All cores decode, scale and encode: libav's codecs and swscale thread by themselves. In one loop, as such programs are
mostly written, or with decode, compute and encode each in a thread of its own.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any, TypeVar

import av
import torch
from av.video.reformatter import VideoReformatter

from gpupipe import stages
from gpupipe.bench.flow import Run, Stopwatch
from gpupipe.codecs.libav import LibavEncoder, encoder_name
from gpupipe.device import open_lane
from gpupipe.device.cuda import plane_dtype
from gpupipe.format import PIXEL_FORMATS
from gpupipe.frame import FrameBatch
from gpupipe.media.timeline import Window
from gpupipe.plan.chain import ChainBuilder
from gpupipe.render.chain import Chain
from gpupipe.render.feed import check_stop

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from gpupipe.bench.subject import Subject
    from gpupipe.plan import Plan
    from gpupipe.render.progress import StopFlag

    Picture = tuple[int, NDArray[Any]]
    """pts, and (H, W, 3) of uint8 R'G'B'."""

Item = TypeVar("Item")
AHEAD = 8
"""Pictures that wait between two threads."""


def host_pipe(subject: Subject, frames: int, device: str, stop: StopFlag, *, threads: bool) -> Run:
    """Does the subject's stages and its codec that way, into a file.

    Args:
        subject: what is measured.
        frames: how many.
        device: where the stages run.
        stop: looked at for each picture.
        threads: decode, compute and encode side by side.
    """
    plan = subject.on_cpu(frames)
    watch, done = Stopwatch(), 0
    with ExitStack() as stack:
        chain = _Stages(plan, subject, device)
        encoder = LibavEncoder(plan.encoder)
        stack.callback(encoder.close)
        source = stack.enter_context(av.open(str(plan.source.path)))
        target = stack.enter_context(av.open(str(plan.output), "w"))
        track = target.add_stream_from_template(encoder.template(()), opaque=True)
        watch.open()
        decoded: Iterable[Picture] = _decoded(source, plan, stop)
        computed: Iterable[Picture] = map(chain, stack.enter_context(_Ahead(decoded)) if threads else decoded)
        scaler = VideoReformatter()  # kept, for its threads: a new one a frame takes half as long again
        for picture in stack.enter_context(_Ahead(computed)) if threads else computed:
            _write(target, track, encoder.encode(_frame(picture, plan, scaler)))
            done += 1
        _write(target, track, encoder.finish())
    return watch.run(done)


def _decoded(container: av.container.InputContainer, plan: Plan, stop: StopFlag) -> Iterator[Picture]:
    """Pictures of the plan's range as R'G'B' in numpy."""
    stream = container.streams[plan.source.video.index]
    assert isinstance(stream, av.VideoStream)
    stream.thread_type = "AUTO"
    window, scaler = Window(plan.start_pts, plan.end_pts), VideoReformatter()
    if window.start is not None:
        container.seek(window.start, stream=stream)
    try:
        for frame in container.decode(stream):
            check_stop(stop)
            if frame.pts is None or window.past(frame.pts):
                return
            if window.holds(frame.pts):
                yield frame.pts, scaler.reformat(frame, format="rgb24").to_ndarray()
    finally:
        stream.codec_context.flush_buffers()  # as LibavDecoder.close


class _Stages:
    """The config's stages on R'G'B', of half floats on a GPU."""

    def __init__(self, plan: Plan, subject: Subject, device: str) -> None:
        pixels = PIXEL_FORMATS["rgbf32" if device == "cpu" else "rgbf16"]
        self._dtype = plane_dtype(plan.source.video.format.with_(pixels=pixels))
        picture = plan.source.video.format.with_(pixels=pixels, device=device, alpha=0)
        builder = ChainBuilder(picture)
        for n, entry in enumerate(subject.config.stages):
            if entry.name == "orient":
                continue
            stage = stages.load(entry.name)(entry.settings)
            builder.stage(entry.name, entry.settings.model_dump(mode="json"), f"stages[{n}].{entry.name}", stage)
        self._device, self._chain = device, Chain(builder.steps, open_lane(device))

    def __call__(self, picture: Picture) -> Picture:
        pts, rgb = picture
        with torch.inference_mode():
            planes = torch.from_numpy(rgb).to(self._device).permute(2, 0, 1)[None].to(self._dtype) / 255
            (planes,) = self._chain.transform((planes,))
            coded = (planes[0] * 255).round().clamp(0, 255).to(torch.uint8)
            return pts, coded.permute(1, 2, 0).contiguous().cpu().numpy()


def _frame(picture: Picture, plan: Plan, scaler: VideoReformatter) -> FrameBatch:
    """One of libav's frames, in the encoder's format, by swscale."""
    pts, rgb = picture
    wanted, settings = plan.encoder.input_format, plan.encoder
    frame = scaler.reformat(
        av.VideoFrame.from_ndarray(rgb, format="rgb24"),
        width=wanted.width,
        height=wanted.height,
        format=encoder_name(settings.encoder, wanted),
        dst_colorspace=int(wanted.color.matrix),
        dst_color_range=2 if wanted.color.range == "full" else 1,
    )
    return FrameBatch(wanted, (pts,), settings.time_base, native=frame)


def _write(target: av.container.OutputContainer, track: Any, packets: list[Any]) -> None:
    for packet in packets:
        packet.stream = track
        target.mux(packet)


class _Ahead:
    """Runs an iterator in a thread of its own, a few items ahead; a context manager, which ends the thread."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items, self._over = items, threading.Event()
        self._queue: Queue[Any] = Queue(AHEAD)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self) -> None:
        try:
            for item in self._items:
                self._put(item)
                if self._over.is_set():
                    return
        except BaseException as error:  # noqa: BLE001  told to whoever reads
            self._error = error
        self._put(self)

    def _put(self, item: object) -> None:
        while not self._over.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except Full:
                continue
            return

    def __enter__(self) -> Iterator[Any]:
        self._thread.start()
        return iter(self._get, self)

    def _get(self) -> Any:
        while True:
            try:
                item = self._queue.get(timeout=0.1)
            except Empty:
                if self._over.is_set():
                    return self
                continue
            if item is self and self._error is not None:
                raise self._error
            return item

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
