"""H.264 and HEVC parameter sets that a container keeps beside its packets (avcC, hvcC), and where a decoder lacks them.

NVDEC's parser forgets every set at an end of stream (`EndOfStream` in NVIDIA's vk_video_samples), and drops slices
without a word as long as it has none. libav's `h264_mp4toannexb` gives sets before IDR pictures alone: a part that
begins at another key frame, that of an open GOP, came to NVDEC without, and not one picture of it was shown.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from gpupipe.codecs.sei import VCL, nal_spans, nal_type

START_CODE = b"\x00\x00\x00\x01"
_NEEDED = {"h264": {7, 8}, "hevc": {32, 33, 34}}
"""NAL unit types without which no slice can be decoded: (VPS,) SPS, PPS."""


@dataclass(frozen=True, slots=True)
class ParameterSets:
    """What a sample description (avcC, hvcC) holds."""

    units: tuple[bytes, ...]
    length_size: int
    """Bytes of the length before each NAL unit of a packet."""
    kinds: frozenset[int]
    """NAL unit types of parameter sets."""

    def annexb(self) -> bytes:
        """All of them, each behind a start code."""
        return b"".join(START_CODE + unit for unit in self.units)


def _unit(data: bytes, at: int) -> tuple[bytes, int]:
    """The NAL unit behind a two-byte length, and where the next one begins. Raises IndexError where it is cut short."""
    end = at + 2 + (data[at] << 8 | data[at + 1])
    if end > len(data):
        raise IndexError
    return data[at + 2 : end], end


def _avcc(data: bytes) -> ParameterSets:
    """ISO/IEC 14496-15, 5.3.3.1."""
    at, units = 5, []
    for mask in (0x1F, 0xFF):  # SPS, then PPS
        count, at = data[at] & mask, at + 1
        for _ in range(count):
            unit, at = _unit(data, at)
            units.append(unit)
    return ParameterSets(tuple(units), (data[4] & 3) + 1, frozenset({7, 8, 13, 15}))


def _hvcc(data: bytes) -> ParameterSets:
    """ISO/IEC 14496-15, 8.3.3.1."""
    at, units = 23, []
    for _ in range(data[22]):
        count, at = data[at + 1] << 8 | data[at + 2], at + 3
        for _ in range(count):
            unit, at = _unit(data, at)
            units.append(unit)
    return ParameterSets(tuple(units), (data[21] & 3) + 1, frozenset({32, 33, 34}))


_DESCRIPTIONS = {"h264": _avcc, "hevc": _hvcc}


def described(codec: str, extradata: bytes) -> ParameterSets | None:
    """The sets of a sample description; None where it is none, or cut short: libav knows what to make of that."""
    if extradata[:1] == b"\x01" and codec in _DESCRIPTIONS:
        with suppress(IndexError):
            return _DESCRIPTIONS[codec](extradata)
    return None


def beside(codec: str, extradata: bytes) -> bytes:
    """The sets that a container gives once for all packets, as Annex B; empty where it gives none."""
    if codec in _NEEDED and extradata.startswith((b"\x00\x00\x01", START_CODE)):
        return extradata
    sets = described(codec, extradata)
    return b"" if sets is None else sets.annexb()


def complete(codec: str, data: bytes) -> bool:
    """Whether an access unit in Annex B has every kind of set before its first slice; True for other codecs."""
    missing = set(_NEEDED.get(codec, ()))
    for begin, _ in nal_spans(data):
        if not missing:
            break
        kind = nal_type(codec, data, begin)
        if kind in VCL[codec]:
            break
        missing.discard(kind)
    return not missing
