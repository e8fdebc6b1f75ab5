"""The one thing PyAV cannot have libav's Matroska muxer write: the size at which non-square pixels are shown.

The muxer takes it from `AVStream.sample_aspect_ratio`, which PyAV cannot set. So the video track is given a display
matrix that stands for nothing, whose Projection element is 14 bytes long, and these bytes are then overwritten in place
with DisplayWidth and DisplayHeight. Nothing moves, so every offset in the file stays right.
"""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from fractions import Fraction
    from pathlib import Path

PLACEHOLDER_DEGREES = 90
"""Rotation of the display matrix that makes room."""

_SEGMENT, _TRACKS, _CRC, _ENTRY, _VIDEO, _PROJECTION = 0x18538067, 0x1654AE6B, 0xBF, 0xAE, 0xE0, 0x7670
_WIDTH, _HEIGHT, _UNIT = b"\x54\xb0", b"\x54\xba", 0x54B2
_PIXELS, _RATIO = 0, 3
"""Values of DisplayUnit."""


@dataclass(frozen=True, slots=True)
class DisplaySize:
    """What Matroska says of the size at which the pictures are shown."""

    width: int
    height: int
    ratio: bool
    """The two numbers are an aspect ratio, not pixels."""


def display_size(width: int, height: int, aspect: Fraction, *, webm: bool) -> DisplaySize:
    """As libav itself would say it: pixels where they are whole, else the ratio, which WebM does not know."""
    shown = width * aspect
    if shown.denominator == 1 or webm:
        return DisplaySize(round(shown), height, ratio=False)
    return DisplaySize((shown / height).numerator, (shown / height).denominator, ratio=True)


def _number(identifier: bytes, value: int) -> bytes:
    payload = value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
    return identifier + bytes([0x80 | len(payload)]) + payload


def _header(data: bytes, at: int) -> tuple[int, int, int]:
    """Identifier, start of the payload and its length (RFC 8794); an unknown length reaches to the end."""
    width = 9 - data[at].bit_length()
    identifier = int.from_bytes(data[at : at + width], "big")
    at += width
    width = 9 - data[at].bit_length()
    size = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    unknown = size == (1 << 7 * width) - 1
    return identifier, at + width, len(data) - at - width if unknown else size


def _find(data: bytes, start: int, end: int, wanted: int, nth: int = 0) -> tuple[int, int, int]:
    """Start of the nth child of that kind, and where its payload begins and ends. Raises LookupError."""
    at = start
    while at < end - 1:
        identifier, payload, size = _header(data, at)
        if identifier == wanted:
            if nth == 0:
                return at, payload, payload + size
            nth -= 1
        at = payload + size
    raise LookupError(f"EBML element {wanted:x}")


def write_display_size(path: Path, track: int, size: DisplaySize) -> None:
    """Puts the size in the place of the Projection of the track at that position. Raises LookupError, OSError."""
    elements = _number(_WIDTH, size.width) + _number(_HEIGHT, size.height)
    with path.open("r+b") as file:
        data = _head(file)
        start, end = _tracks(data)
        _, at, stop = _find(data, start, end, _ENTRY, track)
        _, at, stop = _find(data, at, stop, _VIDEO)
        patched = bytearray(data)
        with suppress(LookupError):  # libav says "unknown unit" where it knows no aspect; WebM has pixels only
            _, unit, _ = _find(data, at, stop, _UNIT)
            patched[unit] = _RATIO if size.ratio else _PIXELS
        at, _, stop = _find(data, at, stop, _PROJECTION)
        room = stop - at - len(elements)
        if room < 0 or room == 1:
            raise LookupError("no room for the display size")
        patched[at:stop] = elements + (b"\xec" + bytes([0x80 | room - 2]) + bytes(room - 2) if room else b"")
        identifier, payload, length = _header(data, start)
        if identifier == _CRC:
            struct.pack_into("<I", patched, payload, zlib.crc32(patched[payload + length : end]))
        file.seek(start)
        file.write(patched[start:end])


def _tracks(data: bytes) -> tuple[int, int]:
    _, at, end = _find(data, 0, len(data), _SEGMENT)
    _, start, stop = _find(data, at, end, _TRACKS)
    return start, stop


def _head(file: BinaryIO) -> bytes:
    """As much of the file as reaches to the end of the track list."""
    for size in (1 << 16, 1 << 20, 1 << 26):
        file.seek(0)
        data = file.read(size)
        try:
            _, end = _tracks(data)
        except (LookupError, IndexError):
            continue
        if end <= len(data):
            return data
    raise LookupError("the track list")
