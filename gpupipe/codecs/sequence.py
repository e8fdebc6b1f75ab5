"""What a bitstream says of its pictures' size, as far as NVDEC's library does not: changes, offset crops, layers."""

from __future__ import annotations

import re

import av
import av.bitstream
import av.error
import av.logging

from gpupipe.codecs.libav_log import captured_log
from gpupipe.codecs.sei import VCL, nal_spans, nal_type

_SPS = {"h264": 7, "hevc": 33}
_OFFSET = re.compile(r"(?:conf_win|frame_crop)_(?:left|top)_offset\s.*=\s*(\d+)")
_MONOCHROME = re.compile(r"chroma_format_idc\s.*=\s*0\s*$")


def _parameter_sets(codec: str, data: bytes) -> bytes:
    """All SPS NAL units before the first slice."""
    found = b""
    for begin, end in nal_spans(data):
        if nal_type(codec, data, begin) in VCL[codec]:
            break
        if nal_type(codec, data, begin) == _SPS[codec]:
            found += data[begin:end].rstrip(b"\x00")
    return found


def _vp9_size(data: bytes) -> bytes:
    """Profile, colour and size of a VP9 key frame's uncompressed header (bitstream specification 6.2)."""
    bits = int.from_bytes(data[:12].ljust(12, b"\x00"), "big")

    def take(at: int, count: int) -> int:
        return bits >> (96 - at - count) & ((1 << count) - 1)

    profile = take(3, 1) << 1 | take(2, 1)
    flags = 5 if profile == 3 else 4
    if take(flags, 2) != 0:  # show_existing_frame, or not a key frame
        return b""
    colour = flags + 4 + 24  # after show_frame, error_resilient_mode and the sync code
    length = (profile >= 2) + 4 + (3 if profile in (1, 3) else 0) + 32
    return bytes((profile,)) + take(colour, length).to_bytes(8, "big")


def signature(codec: str, data: bytes) -> bytes:
    """Bytes that change where the size or format of the pictures does; empty where a packet says nothing of it."""
    if codec in _SPS:
        return _parameter_sets(codec, data)
    if codec == "vp8":
        return data[6:10] if data and not data[0] & 1 else b""
    return _vp9_size(data) if codec == "vp9" else b""


def unusual_headers(stream: av.VideoStream) -> str | None:
    """What an H.264 or HEVC stream's headers say that NVDEC's library gets wrong, None where there is nothing.

    libav's own parser tells it in its log when a `trace_headers` filter is opened; PyAV has no other way to it.
    """
    if stream.codec_context.codec.canonical_name not in _SPS or not stream.codec_context.extradata:
        return None
    try:
        with captured_log(av.logging.INFO) as log:
            av.bitstream.BitStreamFilterContext("trace_headers", stream)
    except av.error.FFmpegError:
        return None  # headers that cannot be read: decoding will tell
    lines = [line for _, _, line in log]
    if any(int(m.group(1)) for line in lines if (m := _OFFSET.search(line))):
        return "the picture is cropped at its left or top, which NVDEC's library ignores"
    if any(_MONOCHROME.search(line) for line in lines):
        return "the stream is monochrome"
    return None


def _units(data: bytes) -> list[bytes]:
    """NAL units of an Annex-B access unit, each with its three-byte start code."""
    return [data[begin - 3 : end] for begin, end in nal_spans(data)]


def _layer(unit: bytes) -> int:
    """nuh_layer_id of an HEVC NAL unit."""
    return (unit[3] & 1) << 5 | unit[4] >> 3 if len(unit) > 4 else 0


def layered(codec: str, data: bytes) -> bool:
    """Whether an access unit holds more than the base layer (MV-HEVC)."""
    return codec == "hevc" and any(map(_layer, _units(data)))


def base_layer(data: bytes) -> bytes:
    """An HEVC access unit without higher layers: NVDEC would decode the second view of MV-HEVC as more pictures."""
    return b"".join(unit for unit in _units(data) if _layer(unit) == 0)
