"""Static HDR metadata inside an H.264 or HEVC bitstream, which no bitstream filter of libav writes.

Payloads 137 (mastering display colour volume) and 144 (content light level) of ITU-T H.264 annex D and H.265 annex D.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from gpupipe.codecs.mastering import MasteringDisplay

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAL_HEADER = {"h264": b"\x06", "hevc": b"\x4e\x01"}  # SEI; HEVC: prefix SEI, layer 0, temporal id 1
VCL = {"h264": range(1, 6), "hevc": range(32)}
"""NAL unit types of coded slices."""
START = re.compile(b"\x00\x00\x01")
"""Start code of Annex B."""
_MASTERING, _LIGHT = 137, 144


def nal_type(codec: str, data: bytes, at: int) -> int:
    """The type of the NAL unit whose header begins at `at`."""
    return data[at] & 0x1F if codec == "h264" else data[at] >> 1 & 0x3F


def nal_spans(data: bytes) -> Iterator[tuple[int, int]]:
    """From where to where each NAL unit of an Annex-B access unit lies, without its start code.

    Empty ones are left out; a damaged packet may have none, nor a start code at all.
    """
    begin = len(data)
    for match in START.finditer(data):
        if begin < match.start():
            yield begin, match.start()
        begin = match.end()
    if begin < len(data):
        yield begin, len(data)


def _escaped(payload: bytes) -> bytes:
    """Emulation prevention: 00 00 followed by 00..03 gets a 03 between."""
    return re.sub(rb"\x00\x00(?=[\x00-\x03])", b"\x00\x00\x03", payload)


def hdr_sei(codec: str, mastering: str | None, light: tuple[int, int] | None) -> bytes:
    """An SEI NAL unit with its start code, empty where there is nothing to say.

    Args:
        codec: h264 or hevc.
        mastering: see `MasteringDisplay`.
        light: MaxCLL and MaxFALL, cd/m2.
    """
    body = b""
    if mastering:
        payload = MasteringDisplay.parse(mastering).payload()
        body += bytes((_MASTERING, len(payload))) + payload
    if light:
        payload = struct.pack(">2H", *light)
        body += bytes((_LIGHT, len(payload))) + payload
    return b"\x00\x00\x00\x01" + _NAL_HEADER[codec] + _escaped(body + b"\x80") if body else b""


def before_picture(codec: str, data: bytes, sei: bytes) -> bytes:
    """Puts an SEI NAL unit in front of the first coded slice of an Annex-B access unit."""
    for begin, _ in nal_spans(data):
        if nal_type(codec, data, begin) in VCL[codec]:
            at = begin - 3  # its start code, of which one more zero may be a part
            at -= at > 0 and data[at - 1] == 0
            return data[:at] + sei + data[at:]
    return data
