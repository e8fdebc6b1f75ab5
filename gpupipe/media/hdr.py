"""Static HDR metadata (SMPTE ST 2086, CTA-861.3) as a container wants it, beside the stream.

libav's muxers write `mdcv`/`clli` boxes and Matroska's MasteringMetadata from side data of the stream, which PyAV can
carry from one stream to another but not create. So the stream is described once more in an MP4 header in memory, the
two boxes are put into it, and what libav reads back is a stream that has the side data.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import av

from gpupipe.codecs.mastering import MasteringDisplay

if TYPE_CHECKING:
    from gpupipe.media.source import HdrInfo

_PATH = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd")
_VIDEO_SAMPLE_ENTRY = 78
"""Bytes of a VisualSampleEntry (ISO/IEC 14496-12, 12.1.3) after its box header and before its own boxes."""


def boxes(hdr: HdrInfo) -> bytes:
    """`mdcv` and `clli` of ISO/IEC 23001-17 and 14496-12 for what `hdr` says; empty where it says nothing."""
    found = b""
    if hdr.mastering_display:
        found += struct.pack(">I4s", 32, b"mdcv") + MasteringDisplay.parse(hdr.mastering_display).payload()
    if hdr.content_light:
        found += struct.pack(">I4s2H", 12, b"clli", *hdr.content_light)
    return found


def _child(data: bytearray, start: int, end: int, name: bytes) -> tuple[int, int]:
    """Where the box `name` between `start` and `end` begins and ends. Raises LookupError."""
    while start + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, start)
        if kind == name:
            return start, start + size
        start += size if size >= 8 else end
    raise LookupError(name.decode())


def insert(header: bytes, extra: bytes) -> bytes:
    """Puts boxes at the end of the first sample entry of the first track, and makes every box around it longer."""
    data = bytearray(header)
    start, end, parents = 0, len(data), []
    for name in _PATH:
        box, end = _child(data, start, end, name)
        parents.append(box)
        start = box + 8
    entry = start + 8  # stsd is a full box with a count of entries before the first of them
    parents.append(entry)
    (size,) = struct.unpack_from(">I", data, entry)
    for at in parents:
        (old,) = struct.unpack_from(">I", data, at)
        struct.pack_into(">I", data, at, old + len(extra))
    data[entry + size : entry + size] = extra
    return bytes(data)


@dataclass(slots=True)
class DescribedStream:
    """A template stream with side data; keep it until the output's header is written."""

    stream: av.VideoStream
    owner: object
    """The container it belongs to."""


def describe(template: av.VideoStream, hdr: HdrInfo) -> DescribedStream | None:
    """`template` with the metadata of `hdr` beside it; None where there is none, or no MP4 for the codec."""
    extra = boxes(hdr)
    if not extra:
        return None
    for muxer in ("mp4", "mov"):  # VP9 and AV1 are in MP4 alone, ProRes in MOV alone
        try:
            header = _header(template, muxer)
            source = av.open(io.BytesIO(insert(header, extra)), format="mov")
        except (ValueError, LookupError, av.FFmpegError):
            continue
        return DescribedStream(source.streams.video[0], source)
    return None


def _header(template: av.VideoStream, muxer: str) -> bytes:
    memory = io.BytesIO()
    with av.open(memory, "w", format=muxer, options={"movflags": "empty_moov"}) as scratch:
        scratch.add_stream_from_template(template, opaque=True)
        scratch.start_encoding()
        return memory.getvalue()
