"""Pictures for the ProRes tests, both coders behind one interface, and the judges: ffmpeg and PyAV's decoder."""

from __future__ import annotations

import io
import subprocess
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import torch

from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.prores.encoder import ProresEncoder
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.device.cpu import CpuLane
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

if TYPE_CHECKING:
    from pathlib import Path

Planes = tuple[np.ndarray, ...]
COLOR = ColorSpec(Matrix.BT709, 1, 1, Range.LIMITED)


def picture(kind: str, width: int, height: int, *, full: bool = False, depth: int = 10, seed: int = 3) -> Planes:
    """Y, Cb, Cr of one frame, uint16, in the range that decoders do not clip (SDI's reserved codes left out)."""
    rng = np.random.default_rng(seed)
    y, x = np.indices((height, width)).astype(np.float64)
    cy, cx = np.indices((height, width if full else -(-width // 2))).astype(np.float64)
    cx *= 1 if full else 2
    if kind == "noise":
        planes = [rng.uniform(4, 1019, p.shape) for p in (x, cx, cx)]
    else:
        luma = 512 + 300 * np.sin(x / 37 + 0.3 * np.sin(y / 11)) * np.cos(y / 23)
        chroma = [512 + 200 * np.sin(cx / 51 + cy / 40), 512 + 200 * np.cos(cx / 45 - cy / 61)]
        if kind == "gradient":
            luma, chroma = 64 + 876 * x / width, [512 + 400 * (cx / width - 0.5), 512 + 400 * (cy / height - 0.5)]
        if kind == "grain":
            luma, chroma = luma + rng.normal(0, 10, x.shape), [c + rng.normal(0, 5, cx.shape) for c in chroma]
        if kind == "text":
            cells = np.kron(rng.integers(0, 2, (height // 4 + 1, width // 3 + 1)), np.ones((4, 3)))[:height, :width]
            luma = np.where((cells > 0) & (y % 24 < 16), 940.0, 64.0)
        planes = [luma, *chroma]
    scale = 1 << depth - 10
    return tuple(np.clip(np.rint(p * scale), 4 * scale, 1019 * scale).astype(np.uint16) for p in planes)


def settings(width: int, height: int, profile: str = "hq", **changes: object) -> EncoderSettings:
    """Settings of `prores_torch`; keys of FrameFormat and of EncoderSettings alike."""
    full = profile.startswith("4444") or profile in ("4", "5")
    of_format = {k: changes.pop(k) for k in ("field_order", "color", "sample_aspect") if k in changes}
    pixels = PIXEL_FORMATS[str(changes.pop("pixels", "yuv444p12le" if full else "yuv422p10le"))]
    source = FrameFormat(pixels, width, height, **{"color": COLOR, **of_format})
    base = {
        "codec": "prores", "encoder": "prores_torch", "input_format": source, "time_base": Fraction(1, 25),
        "rate": Fraction(25), "quality": None, "bitrate": None, "preset": None, "options": {"profile": profile},
    }  # fmt: skip
    return EncoderSettings(**{**base, **changes})


def coded(asked: EncoderSettings, frames: list[Planes], batch: int = 1) -> list[bytes]:
    """Packets of `prores_torch` on the CPU."""
    encoder = ProresEncoder(asked, CpuLane())
    packets = []
    for first in range(0, len(frames), batch):
        some = frames[first : first + batch]
        planes = tuple(torch.from_numpy(np.stack(p)) for p in zip(*some, strict=True))
        pts = tuple(range(first, first + len(some)))
        packets += encoder.encode(FrameBatch(asked.input_format, pts, asked.time_base, planes))
    assert encoder.finish() == []
    return [bytes(p) for p in packets]


def coded_by_ks(frames: list[Planes], profile: str, quantiser: int | None = None) -> list[bytes]:
    """Packets of libav's prores_ks for the same 10-bit planes; with its own rate control unless a quantiser is given."""
    high, wide = frames[0][0].shape
    name = "yuv444p10le" if frames[0][1].shape == frames[0][0].shape else "yuv422p10le"
    with av.open(io.BytesIO(), "w", format="mov") as scratch:
        stream = scratch.add_stream("prores_ks", rate=25, options={"profile": profile})
        if quantiser is not None:
            stream.codec_context.flags |= 2  # qscale
            stream.codec_context.global_quality = quantiser  # PyAV makes lambdas of it
        stream.width, stream.height, stream.pix_fmt = wide, high, name
        stream.codec_context.thread_count = 2
        packets = []
        for planes in frames:
            frame = av.VideoFrame(wide, high, name)
            for to, plane in zip(frame.planes, planes, strict=True):
                view = np.asarray(memoryview(to)).view(np.uint16).reshape(to.height, -1)
                view[:, : to.width] = plane
            packets += stream.encode(frame)
        packets += stream.encode(None)
    return [bytes(p) for p in packets]


def decoded(packets: list[bytes], width: int, height: int, tag: str | None = None) -> list[av.VideoFrame]:
    """Frames by PyAV's decoder, which stops at the first thing it does not like; 12 bit for ap4h and ap4x."""
    context = av.CodecContext.create("prores", "r")
    context.width, context.height, context.options = width, height, {"err_detect": "explode"}
    if tag is not None:
        context.codec_tag = tag
    return [frame for packet in [*map(av.Packet, packets), None] for frame in context.decode(packet)]


def planes_of(frame: av.VideoFrame) -> Planes:
    """Codes of each plane, as wide as the picture."""
    found = []
    for plane in frame.planes:
        view = np.frombuffer(plane, np.uint16).reshape(plane.height, -1)
        found.append(view[:, : plane.width])
    return tuple(found)


def depth_of(frame: av.VideoFrame) -> int:
    return 12 if "12" in frame.format.name else 10


def psnr(frame: av.VideoFrame, planes: Planes, depth: int = 10) -> float:
    """Of all samples of all planes together, dB of full scale; a perfect one as if a code in 1000 were wrong."""
    unit, square = 1 << depth_of(frame) - 10, 0.0
    found = planes_of(frame)[: len(planes)]
    for got, wanted in zip(found, planes, strict=True):
        square += float(((got / unit - wanted / (1 << depth - 10)) ** 2).sum())
    return 10 * np.log10(1023**2 / max(square / sum(p.size for p in planes), 1e-6))


def movie(path: Path, asked: EncoderSettings, packets: list[bytes]) -> Path:
    """A MOV of packets, described by the encoder's own template."""
    encoder = ProresEncoder(asked, CpuLane())
    with av.open(str(path), "w") as out:
        stream = out.add_stream_from_template(encoder.template([av.Packet(packets[0])]), opaque=True)
        stream.time_base = asked.time_base
        for n, data in enumerate(packets):
            packet = av.Packet(data)
            packet.pts = packet.dts = n
            packet.duration, packet.time_base, packet.is_keyframe, packet.stream = 1, asked.time_base, True, stream
            out.mux(packet)
    return path


def complaints(path: Path) -> str:
    """All that ffmpeg says while it decodes with `-err_detect explode`; fails where it fails."""
    command = [
        "ffmpeg",
        "-nostdin",
        "-v",
        "warning",
        "-err_detect",
        "explode",
        "-xerror",
        "-i",
        path,
        "-f",
        "null",
        "-",
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr
