"""What a `WriterProcess` tells its process of packets whose pictures stand alone, and how far that one is."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Any

import av

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from gpupipe.codecs.base import Packet

_COUNT = struct.Struct("<q")
_ROW = struct.Struct("<qqqqq")
"""A packet: where its bytes lie in the slabs (-1: they follow the rows), how many, pts, dts, duration."""


def told(packets: Sequence[Packet]) -> bytes:
    """A message of them, which is never empty."""
    rows, loose = [], []
    for packet in packets:
        at = getattr(packet, "at", -1)  # of `codecs.intra.Placed`
        if at < 0:
            loose.append(bytes(packet))
        rows.append(_ROW.pack(at, packet.size, packet.pts, packet.dts, packet.duration))
    return _COUNT.pack(len(rows)) + b"".join(rows + loose)


def heard(message: bytes, slabs: memoryview, time_base: Fraction, *, alone: bool) -> list[Packet]:
    """What a message tells of; its bytes where they are, or behind the rows.

    Unless the video is the `alone` stream of its file, libav holds packets back to write streams in step, by reference
    and longer than the slabs stay as they are: then bytes are copied.
    """
    (count,), packets = _COUNT.unpack_from(message), []
    loose = _COUNT.size + count * _ROW.size
    for at, size, pts, dts, duration in _ROW.iter_unpack(message[_COUNT.size : loose]):
        data: Any = slabs[at : at + size] if at >= 0 else message[loose : loose + size]
        if not alone:
            data = bytes(data)
        packet: Packet = av.Packet(data)
        loose += size if at < 0 else 0
        packet.pts, packet.dts, packet.duration = pts, dts, duration
        packet.time_base, packet.is_keyframe = time_base, True
        packets.append(packet)
    return packets


def counts(file: int) -> memoryview:
    """A page of memory of both processes, to be read without asking: first, how many messages are written.

    A number of it is read and written as a whole.
    """
    return memoryview(mmap.mmap(file, mmap.PAGESIZE)).cast("q")
