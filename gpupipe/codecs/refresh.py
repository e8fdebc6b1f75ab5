"""Packets that a container calls key frames though the picture is not whole there: it is refreshed bit by bit.

x264 with `intra-refresh` and many live encoders send no key frames but the first: columns of every picture are coded
anew, and a recovery point SEI (ITU-T H.264 D.2.8, H.265 D.3.8) says after how many pictures all of it is. libav calls
these packets key frames. Decoding that begins there lacks pictures (libav) or shows damaged ones (NVDEC).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpupipe.codecs.parameter_sets import described
from gpupipe.codecs.sei import VCL, nal_spans, nal_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    import av

    from gpupipe.codecs.base import Packet

_SEI = {"h264": (6, 1), "hevc": (39, 2)}
"""NAL unit type of a prefix SEI, and bytes of its header."""
_WHOLE = {"h264": (5,), "hevc": range(16, 24)}
"""Types of slices at which decoding begins with whole pictures, whatever an SEI says."""
_RECOVERY_POINT = 6
_HEAD = 8192
"""Bytes of a packet that are looked at: what comes before its first slice, if that is not longer."""


class Refresh:
    """Tells the key frames of a stream that are not whole.

    Args:
        stream: from any demuxer.
    """

    def __init__(self, stream: av.VideoStream) -> None:
        self._codec = stream.codec_context.codec.canonical_name
        sets = described(self._codec, stream.codec_context.extradata or b"")
        self._length = 0 if sets is None else sets.length_size
        """Bytes of the length before each NAL unit; 0 in Annex B."""

    def gradual(self, packet: Packet) -> bool:
        """Whether pictures are whole only some time after this packet; False for what is no key frame."""
        if self._codec not in _SEI or not packet.is_keyframe or not packet.size:
            return False
        kind, header = _SEI[self._codec]
        later = False
        for unit in self._units(bytes(memoryview(packet)[:_HEAD])):
            found = nal_type(self._codec, unit, 0)
            if found in VCL[self._codec]:
                return later and found not in _WHOLE[self._codec]
            later |= found == kind and _recovers_later(unit[header:])
        return later and packet.size > _HEAD  # its slice was not seen: to begin earlier is right in any case

    def _units(self, data: bytes) -> Iterator[bytes]:
        if not self._length:
            yield from (data[begin:end] for begin, end in nal_spans(data))
            return
        at = 0
        while at + self._length < len(data):
            begin = at + self._length
            at = begin + int.from_bytes(data[at:begin], "big")
            if at > begin:
                yield data[begin:at]


def _recovers_later(payloads: bytes) -> bool:
    """Whether the messages of an SEI hold a recovery point that is not this picture.

    It begins with how far it is (`recovery_frame_cnt`, `recovery_poc_cnt`) as an Exp-Golomb code: a one is zero.
    """
    data, at = payloads.replace(b"\x00\x00\x03", b"\x00\x00"), 0
    while at + 2 < len(data):  # the last byte is the trailing bit
        numbers = []
        for _ in range(2):  # payloadType, payloadSize
            number = 0
            while at < len(data) and data[at] == 0xFF:
                number, at = number + 0xFF, at + 1
            if at >= len(data):
                return False
            numbers.append(number + data[at])
            at += 1
        kind, size = numbers
        if kind == _RECOVERY_POINT and size and at < len(data):
            return not data[at] & 0x80
        at += size
    return False
