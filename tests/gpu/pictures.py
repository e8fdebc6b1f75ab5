"""One clip decoded by PyAV on the CPU and by NVDEC, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import numpy as np

from gpupipe.codecs import nvdec
from gpupipe.device.cuda import CudaLane
from gpupipe.format import FrameFormat, pixel_format
from gpupipe.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

    import torch


@dataclass
class Clip:
    times: list[int | None]
    sizes: list[tuple[int, int]]
    planes: list[list[np.ndarray]]
    """Y, U, V of each picture, in code values."""
    journal: Journal


def facts(stream: av.VideoStream, field_order: str = "progressive") -> SimpleNamespace:
    """What a plan knows of a stream."""
    context = stream.codec_context
    source = FrameFormat(pixel_format(context.pix_fmt), context.width, context.height, field_order=field_order)
    return SimpleNamespace(
        codec=context.codec.canonical_name, profile=context.profile, format=source, native_pixels=context.pix_fmt,
        coded_width=context.coded_width, coded_height=context.coded_height,
    )  # fmt: skip


def by_cpu(path: Path) -> Clip:
    clip = Clip([], [], [], Journal())
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                continue
            for frame in frames:
                clip.times.append(frame.pts)
                clip.sizes.append((frame.width, frame.height))
                wide = np.uint8 if frame.format.components[0].bits == 8 else np.uint16
                planes = []
                for plane in frame.planes:
                    rows = np.frombuffer(plane, wide).reshape(plane.height, -1)
                    planes.append(rows[:, : plane.width].copy())
                clip.planes.append(planes)
    return clip


def by_gpu(path: Path) -> Clip:
    clip = Clip([], [], [], Journal())
    lane = CudaLane("cuda:0")
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        source = nvdec.surface_format(facts(stream), "cuda:0")
        decoder = nvdec.NvdecDecoder(stream, source, stream.time_base or Fraction(1), clip.journal, lane)
        for packet in container.demux(stream):
            for batch in decoder.decode(packet if packet.size else None):
                with lane.active():
                    held = [p.clone() for p in batch.planes]
                lane.synchronize()
                clip.times.append(None if batch.pts[0] < -(2**62) else batch.pts[0])
                clip.sizes.append((batch.format.width, batch.format.height))
                clip.planes.append(_yuv(held, batch.format))
        decoder.close()
    return clip


def _yuv(planes: list[torch.Tensor], source: FrameFormat) -> list[np.ndarray]:
    arrays = [p[0].cpu().numpy() >> source.pixels.msb_shift for p in planes]
    if source.pixels.layout == "semiplanar":
        return [arrays[0], arrays[1][..., 0], arrays[1][..., 1]]
    return arrays
