"""NVDEC's library and parser, as far as what it is fed goes.

It forgets all parameter sets at an end of stream, as NVIDIA's own source does (`EndOfStream` in vk_video_samples), shows
nothing as long as it has none, and shows every picture else, damaged ones too. libav decodes for it what it is fed, so
that times and pixels can be compared.
"""

from __future__ import annotations

from ctypes import string_at
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import numpy as np
from av.codec.context import Flags

from gpupipe.codecs import nvdec
from gpupipe.device.cpu import CpuLane
from gpupipe.format import PIXEL_FORMATS, FrameFormat

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.journal import Journal

W, H, COUNT = 192, 160, 48
"""Of the clip that `encoded` makes: pixels, and pictures."""


class Forgetful:
    """NVDEC's parser as far as parameter sets go."""

    def __init__(self, owner: SimpleNamespace, codec: str) -> None:
        self.owner, self.codec = owner, codec
        self.begin()

    def begin(self) -> None:
        self.context = av.CodecContext.create(self.codec, "r")
        self.context.flags |= Flags.output_corrupt
        self.context.thread_count = 1
        self.first = True

    def Decode(self, data: SimpleNamespace) -> list[SimpleNamespace]:  # noqa: N802  the library's name
        if not data.bsl:
            found = self.shown(self.context.decode(None)) if not self.first else []
            self.begin()
            return found
        unit = string_at(data.bsl_data, data.bsl)
        if self.first:
            self.owner.begun.append(unit)
        self.first = False
        self.owner.fed.append(unit)
        if len(self.owner.fed) in self.owner.bad:
            raise RuntimeError("HandlePictureDecode :\nError code : 1")
        packet = av.Packet(unit)
        packet.pts = data.pts
        try:
            return self.shown(self.context.decode(packet))
        except av.error.InvalidDataError:
            return []

    def shown(self, frames: list[av.VideoFrame]) -> list[SimpleNamespace]:
        found = []
        for frame in frames:
            self.owner.pictures[frame.pts - nvdec._TIME_OFFSET] = frame.to_ndarray()
            found.append(
                SimpleNamespace(getPTS=lambda pts=frame.pts: pts, format="Pixel_Format.NV12", GetPtrToPlane=lambda _: 0)
            )
        return found

    def GetWidth(self) -> int:  # noqa: N802
        return W

    def GetHeight(self) -> int:  # noqa: N802
        return H


def library(codec: str, *bad: int) -> SimpleNamespace:
    """Fails at the packets, counted from one, that it is told to."""
    owner = SimpleNamespace(fed=[], begun=[], pictures={}, bad=bad)
    owner.cudaVideoCodec = SimpleNamespace(HEVC="HEVC", H264="H264")
    owner.PacketData = lambda: SimpleNamespace(bsl=0, bsl_data=0, pts=0)
    owner.CreateDecoder = lambda **_: Forgetful(owner, codec)
    return owner


def encoded(encoder: str, options: dict[str, str], path: Path, form: str | None = None) -> None:
    """Waves that move, at 25 frames a second."""
    with av.open(str(path), "w", format=form) as out:
        stream = out.add_stream(encoder, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        for number in range(COUNT):
            y, x = np.mgrid[0 : H * 3 // 2, 0:W]
            picture = (128 + 60 * np.sin((x + 3 * number) / 19) * np.cos((y + number) / 13)).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, format="yuv420p")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


def decoder(stream: av.VideoStream, journal: Journal, lib: SimpleNamespace) -> nvdec.NvdecDecoder:
    source = FrameFormat(PIXEL_FORMATS["nv12"], W, H)
    return nvdec.NvdecDecoder(stream, source, stream.time_base, journal, CpuLane(), library=lib)
