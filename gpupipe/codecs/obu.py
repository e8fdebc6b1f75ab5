"""Static HDR metadata inside an AV1 bitstream: metadata OBUs of the AV1 specification, sections 5.3, 5.8 and 6.7."""

from __future__ import annotations

import struct

from gpupipe.codecs.mastering import COORDINATE, LUMINANCE, MasteringDisplay

_SEQUENCE_HEADER, _TEMPORAL_DELIMITER, _METADATA = 1, 2, 5
_LIGHT, _MASTERING = 1, 2


def _leb128(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _unit(kind: int, payload: bytes) -> bytes:
    """A metadata OBU with its size; a one and zeros end its payload."""
    body = _leb128(kind) + payload + b"\x80"
    return bytes((_METADATA << 3 | 2,)) + _leb128(len(body)) + body


def hdr_obus(mastering: str | None, light: tuple[int, int] | None) -> bytes:
    """Metadata OBUs, empty where there is nothing to say.

    Args:
        mastering: see `MasteringDisplay`. AV1 wants red first, 0.16 fixed point for coordinates, 24.8 for the highest
            luminance and 18.14 for the lowest.
        light: MaxCLL and MaxFALL, cd/m2.
    """
    out = _unit(_LIGHT, struct.pack(">2H", *light)) if light else b""
    if mastering:
        told = MasteringDisplay.parse(mastering)
        points = (*told.red, *told.green, *told.blue, *told.white)
        fixed = (min(0xFFFF, round(p * (1 << 16) / COORDINATE)) for p in points)
        levels = (round(told.most * (1 << 8) / LUMINANCE), round(told.least * (1 << 14) / LUMINANCE))
        out += _unit(_MASTERING, struct.pack(">8H2I", *fixed, *levels))
    return out


def _size(data: bytes, at: int) -> tuple[int, int]:
    """A leb128 number and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def before_frame(data: bytes, obus: bytes) -> bytes:
    """Puts OBUs in front of the first frame of a temporal unit: after its delimiter and its sequence header."""
    at = 0
    while at < len(data):
        header = data[at]
        if (header >> 3 & 0xF) not in (_SEQUENCE_HEADER, _TEMPORAL_DELIMITER) or not header & 2:
            break
        size, start = _size(data, at + (2 if header & 4 else 1))
        at = start + size
    return data[:at] + obus + data[at:]
