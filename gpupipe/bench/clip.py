"""Clips to measure on: a short encode, then its packets again and again, so that a long clip costs little time."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING

import av
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

RATE = 30
GOP = 30
"""Frames between key frames, all GOPs closed."""
DISTINCT = 120
"""Pictures that are encoded; then they begin again."""
ROOM = 256
"""Samples by which the field of grain is larger than a picture."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a clip is encoded."""

    encoder: str
    width: int
    height: int
    bitrate: int
    pixel_format: str = "yuv420p"
    options: dict[str, str] = field(default_factory=dict)


_X265 = {"preset": "ultrafast", "x265-params": "log-level=none:open-gop=0:scenecut=0"}
RECIPES = {  # fast to decode on purpose: that leaves everything behind the decoders the least time
    "h264": Recipe("libx264", 1920, 1080, 8_000_000, options={"preset": "ultrafast", "sc_threshold": "0"}),
    "hevc": Recipe("libx265", 1920, 1080, 5_000_000, options=_X265),
    "hevc10-4k": Recipe("libx265", 3840, 2160, 20_000_000, "yuv420p10le", _X265),
}


def make_clip(path: Path, recipe: Recipe, frames: int) -> None:
    """Writes `frames` pictures, 30 a second, to `path` (.mp4): BT.709, no sound.

    More than `DISTINCT` are rounded up to whole GOPs.
    """
    distinct = min(frames, DISTINCT)
    short = path.with_name(f"short-{path.name}")
    try:
        _encode(short, recipe, distinct)
        repeat(short, path, frames)
    finally:
        short.unlink(missing_ok=True)


def _encode(path: Path, recipe: Recipe, frames: int) -> None:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(recipe.encoder, rate=RATE, options=recipe.options)
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = recipe.width, recipe.height, recipe.pixel_format
        context = stream.codec_context
        context.bit_rate, context.gop_size, context.time_base = recipe.bitrate, GOP, Fraction(1, RATE)
        context.colorspace = context.color_primaries = context.color_trc = context.color_range = 1  # BT.709, limited
        for n, picture in enumerate(_pictures(recipe, frames)):
            frame = av.VideoFrame.from_ndarray(picture, format=recipe.pixel_format)
            frame.pts, frame.colorspace, frame.color_range = n, 1, 1
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _pictures(recipe: Recipe, frames: int) -> Iterator[NDArray[np.uint8] | NDArray[np.uint16]]:
    """Moving gradients in all three planes, with grain on the luma."""
    width, height = recipe.width, recipe.height
    shift = 2 if recipe.pixel_format.endswith("10le") else 0
    rng = np.random.default_rng(1)
    grain = rng.integers(-(6 << shift), (6 << shift) + 1, (height + ROOM, width + ROOM), dtype=np.int16)
    x, y = np.arange(width, dtype=np.int16), np.arange(height, dtype=np.int16)[:, None]
    chroma_x = np.arange(width // 2, dtype=np.int16)
    chroma_y = np.arange(height // 2, dtype=np.int16)[:, None]
    for n in range(frames):
        down, right = rng.integers(0, ROOM, 2)
        fresh = grain[down : down + height, right : right + width]  # elsewhere in each frame: nothing predicts it
        luma = (((x + 4 * n) // 8 + (y - 2 * n) // 16) % 160 + 50 << shift) + fresh
        blue = np.broadcast_to(112 + (chroma_x + n) // 16 % 32 << shift, (height // 2, width // 2))
        red = np.broadcast_to(112 + (chroma_y + n) // 16 % 32 << shift, (height // 2, width // 2))
        planes = (np.clip(luma, 16 << shift, 235 << shift), blue, red)
        samples = np.concatenate([plane.ravel() for plane in planes]).reshape(-1, width)
        yield samples.astype(np.uint16) if shift else samples.astype(np.uint8)


def repeat(short: Path, out: Path, frames: int) -> None:
    """The same packets with times that go on, until whole GOPs hold `frames` pictures; all GOPs are closed."""
    with av.open(str(short)) as source, av.open(str(out), "w") as target:
        stream = source.streams.video[0]
        tick = stream.time_base
        assert tick
        copy = target.add_stream_from_template(stream, opaque=True)
        stored = [(bytes(p), p.pts or 0, p.dts or 0, p.duration or 0, p.is_keyframe) for p in source.demux(stream)
                  if p.size]  # fmt: skip
        length = max(pts + duration for _, pts, _, duration, _ in stored)
        end = length if frames <= len(stored) else -(-frames // GOP) * GOP * length // len(stored)
        for n in count():
            for payload, pts, dts, duration, key in stored:
                if pts + n * length >= end:
                    continue
                packet = av.Packet(payload)
                packet.pts, packet.dts, packet.duration = pts + n * length, dts + n * length, duration
                packet.is_keyframe, packet.stream, packet.time_base = key, copy, tick
                target.mux(packet)
            if (n + 1) * length >= end:
                return
