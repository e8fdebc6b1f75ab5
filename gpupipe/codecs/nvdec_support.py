"""Which streams NVDEC decodes exactly, and the format of its surfaces."""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import av
import av.container

from gpupipe.codecs.capability import DecoderRow, decoder_row
from gpupipe.codecs.sequence import unusual_headers
from gpupipe.format import PIXEL_FORMATS, FrameFormat

CODECS = {"h264": "H264", "hevc": "HEVC", "vp8": "VP8", "vp9": "VP9", "av1": "AV1"}
"""libav's codec name -> PyNvVideoCodec's, of what NVDEC decodes to the same samples as libav (measured on an H200).

Not MPEG-2 and MPEG-4: their inverse DCT may be rounded in many ways (IEEE 1180), and NVDEC's is 1 to 2 code values off
libav's from the first pictures on. They are decoded on the CPU, which is fast enough at them.
"""
_PACKETS_TO_LOOK_AT = 100
_SURFACES = {
    "yuv420p": ("4:2:0", "nv12"), "nv12": ("4:2:0", "nv12"), "yuv420p10le": ("4:2:0", "p010le"),
    "p010le": ("4:2:0", "p010le"), "yuv420p12le": ("4:2:0", "p012le"), "yuv444p": ("4:4:4", "yuv444p"),
    "yuv444p10le": ("4:4:4", "yuv444p10msble"), "yuv444p12le": ("4:4:4", "yuv444p12msble"),
}  # fmt: skip
"""libav's pixel format of a stream -> its chroma format and the surface's pixel format."""


class StreamFacts(Protocol):
    """What must be known of a stream; `media.source.VideoInfo` is one."""

    @property
    def codec(self) -> str: ...  # noqa: D102
    @property
    def profile(self) -> str | None: ...  # noqa: D102
    @property
    def format(self) -> FrameFormat: ...  # noqa: D102
    @property
    def native_pixels(self) -> str: ...  # noqa: D102
    @property
    def coded_width(self) -> int: ...  # noqa: D102
    @property
    def coded_height(self) -> int: ...  # noqa: D102


def supports(video: StreamFacts, gpu: int = 0, stream: av.VideoStream | None = None) -> str | None:
    """Why NVDEC cannot decode a stream exactly; None where it can.

    Args:
        video: facts of the stream.
        gpu: N of cuda:N.
        stream: the stream, just opened, for what only its headers and packets tell; packets are read from it.
    """
    if video.codec in ("mpeg2video", "mpeg4"):
        return f"NVDEC rounds {video.codec} otherwise than libav"
    if video.codec not in CODECS:
        return f"NVDEC does not decode {video.codec}"
    surface = _SURFACES.get(video.native_pixels.replace("yuvj", "yuv"))
    if surface is None:
        return f"NVDEC does not decode {video.native_pixels}"
    reason = _inexact(video, stream)
    if reason is not None:
        return reason
    row = decoder_row(video.codec, surface[0], PIXEL_FORMATS[surface[1]].depth, gpu)
    if not row.supported:
        return row.reason
    return _size_reason(max(video.coded_width, video.format.width), max(video.coded_height, video.format.height), row)


def engines(video: StreamFacts, gpu: int = 0) -> int:
    """How many NVDEC engines of a GPU take a stream that `supports` has no objection to; at least 1."""
    chroma, name = _SURFACES[video.native_pixels.replace("yuvj", "yuv")]
    return max(1, decoder_row(video.codec, chroma, PIXEL_FORMATS[name].depth, gpu).engines)


def _inexact(video: StreamFacts, stream: av.VideoStream | None) -> str | None:
    """What the library would do to a stream beyond decoding it."""
    if video.codec == "h264" and video.format.field_order != "progressive":
        # PyNvVideoCodec deinterlaces whatever is not marked progressive, and cannot be told not to.
        kind = "interlaced" if video.format.interlaced else "of unknown field order"
        return f"the stream is {kind}, and NVDEC's library would deinterlace it"
    if "extended" in (video.profile or "").lower() or (video.profile or "").lower() == "scc":
        return f"NVDEC does not decode profile {video.profile}"
    if video.codec == "vp8" and (video.format.width % 2 or video.format.height % 2):
        return "NVDEC cuts off the last row or column of odd-sized VP8"
    if stream is None:
        return None
    if _some_times_missing(stream):
        return "some packets have no timestamp, and NVDEC's library says which picture is which by timestamps only"
    return unusual_headers(stream)


def _some_times_missing(stream: av.VideoStream) -> bool:
    """Looks at the first packets; where none has a timestamp, pictures need only be counted."""
    container = stream.container
    assert isinstance(container, av.container.InputContainer)
    missing = [p.pts is None for p in islice(container.demux(stream), _PACKETS_TO_LOOK_AT) if p.size]
    return any(missing) and not all(missing)


def _size_reason(width: int, height: int, row: DecoderRow) -> str | None:
    macroblocks = -(-width // 16) * -(-height // 16)
    if width < row.min_width or height < row.min_height:
        return f"{width}x{height} is below this NVDEC's {row.min_width}x{row.min_height} for {row.codec}"
    if width > row.max_width or height > row.max_height or macroblocks > row.max_macroblocks:
        return f"{width}x{height} is beyond this NVDEC's {row.max_width}x{row.max_height} for {row.codec}"
    return None


def surface_format(video: StreamFacts, device: str) -> FrameFormat:
    """The format of the surfaces of a stream that `supports` has no objection to."""
    pixels = PIXEL_FORMATS[_SURFACES[video.native_pixels.replace("yuvj", "yuv")][1]]
    return video.format.with_(pixels=pixels, device=device)
