"""Video packets of a cut file, read many at once straight from where the index says they lie.

A demuxer gives one packet a call, each call hands the interpreter's lock round, and a bitstream filter copies every
byte: with several decoders side by side that costs a quarter of their frames. An MP4 or MOV stores H.264 and HEVC as
NAL units behind four-byte lengths; Annex-B has four-byte start codes instead, so one takes the place of the other.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import add, gt
from typing import TYPE_CHECKING, NamedTuple

from gpupipe.codecs.base import AccessUnit
from gpupipe.codecs.parameter_sets import START_CODE, described
from gpupipe.codecs.sequence import signature

if TYPE_CHECKING:
    from pathlib import Path

    import av

    from gpupipe.codecs.base import Packet

_START = struct.Struct(">IBB")
"""Of a NAL unit: its length and two bytes of its header."""
MOST = 64 << 20
"""Bytes that are read at once, for each decoder; a segment with more is demuxed packet by packet."""


@dataclass(slots=True)
class PacketIndex:
    """Every video packet of a file in decoding order."""

    position: array[int] = field(default_factory=lambda: array("q"))
    """Where its bytes begin in the file; -1 where the container does not say."""
    size: array[int] = field(default_factory=lambda: array("q"))
    pts: array[int] = field(default_factory=lambda: array("q"))
    dts: array[int] = field(default_factory=lambda: array("q"))
    duration: array[int] = field(default_factory=lambda: array("q"))
    discards: set[int] = field(default_factory=set)
    """Rows whose pictures are decoded and not shown."""
    keys: array[int] = field(default_factory=lambda: array("q"))
    """Rows of key frames."""

    def add(self, packet: Packet, *, key: bool) -> bool:
        """Takes the next packet, with whether decoding may begin there; says whether it could be placed in time."""
        if packet.pts is None or packet.dts is None or (self.dts and packet.dts < self.dts[-1]):
            return False
        row = len(self.pts)
        if key:
            self.keys.append(row)
        if packet.is_discard:
            self.discards.add(row)
        self.position.append(-1 if packet.pos is None else packet.pos)
        self.size.append(packet.size)
        self.pts.append(packet.pts)
        self.dts.append(packet.dts)
        self.duration.append(packet.duration or 0)
        return True

    def key_at(self, pts: int) -> int:
        """The row of the last key frame shown no later than that; the first row where there is none."""
        before = bisect_right(self.keys, pts, key=self.pts.__getitem__)
        return self.keys[before - 1] if before else 0

    def key_from(self, pts: int) -> int:
        """The row of the first key frame shown then or later; behind the last row where there is none."""
        before = bisect_left(self.keys, pts, key=self.pts.__getitem__)
        return self.keys[before] if before < len(self.keys) else len(self.pts)

    def keys_between(self, first: int, last: int) -> array[int]:
        """Rows `[first, last)` that are key frames."""
        return self.keys[bisect_left(self.keys, first) : bisect_left(self.keys, last)]


class Span(NamedTuple):
    """Packets `[first, last)` of an index: those that a segment needs."""

    packets: PacketIndex
    first: int
    last: int


class Packed(NamedTuple):
    """All packets of a span, the first with the parameter sets before it; valid until the next span is read."""

    units: tuple[AccessUnit, ...]
    sequence: bytes
    """The sequence parameter sets, as `codecs.sequence.signature` gives them."""


class PackedReader:
    """Reads spans of one file.

    Args:
        path: the file.
        stream: its video, from any demuxer.
    """

    def __init__(self, path: Path, stream: av.VideoStream) -> None:
        self._codec = codec = stream.codec_context.codec.canonical_name
        extradata = stream.codec_context.extradata or b""
        self._sets = described(codec, extradata)
        self._hevc = codec == "hevc"
        self._file = path.open("rb", buffering=0)
        self._buffer, self._address = bytearray(), 0

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        self._file.close()

    def read(self, span: Span) -> Packed | None:
        """All packets of a span; None where they must be demuxed one by one.

        That is where the index does not say where they are, other streams lie thickly between them, or they hold what
        a bitstream filter has to look at: other parameter sets, layers, damage.
        """
        if self._sets is None or self._sets.length_size != len(START_CODE) or not _dense(span):
            return None
        index, first, last = span
        begin, end = index.position[first], index.position[last - 1] + index.size[last - 1]
        header = self._sets.annexb()
        self._reserve(len(header) + end - begin)
        self._buffer[: len(header)] = header
        with memoryview(self._buffer) as whole:
            self._file.seek(begin)
            if self._file.readinto(whole[len(header) : len(header) + end - begin]) != end - begin:
                return None
        shift = len(header) - begin
        places = [position + shift for position in index.position[first:last]]
        if not all(map(self._convert, places, index.size[first:last])):
            self._sets = None  # what is unusual once is unusual again, and a decoder must not be led to and fro
            return None
        units = self._units(span, places, len(header))
        return Packed(units, signature(self._codec, bytes(self._buffer[: units[0].size])))

    def _reserve(self, size: int) -> None:
        if len(self._buffer) < size:
            self._buffer = bytearray(size * 5 // 4)
            self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))

    def _convert(self, at: int, size: int) -> bool:
        """Puts start codes in the place of a packet's lengths; says whether these add up and nothing is unusual."""
        buffer, end, sets, hevc = self._buffer, at + size, self._sets, self._hevc
        assert sets is not None
        while at + 6 <= end:
            length, head, more = _START.unpack_from(buffer, at)
            after = at + 4 + length
            if after > end or length == 0:
                return False
            kind = head >> 1 & 0x3F if hevc else head & 0x1F
            if hevc and (head & 1 or more >> 3):
                return False  # a layer above the first
            if kind in sets.kinds and bytes(buffer[at + 4 : after]) not in sets.units:
                return False
            buffer[at : at + 4] = START_CODE
            at = after
        return at == end

    def _units(self, span: Span, places: list[int], header: int) -> tuple[AccessUnit, ...]:
        index, first, last = span
        rows, base, keys = range(first, last), self._address, set(index.keys_between(first, last))
        addresses, sizes = [base + place for place in places], index.size[first:last]
        addresses[0], sizes[0] = base, sizes[0] + header
        return tuple(map(
            AccessUnit, addresses, sizes, index.pts[first:last], index.duration[first:last],
            map(keys.__contains__, rows), map(index.discards.__contains__, rows),
        ))  # fmt: skip


def _dense(span: Span) -> bool:
    """Whether packets lie in order with little between them, and are few enough to be read at once."""
    index, first, last = span
    positions, sizes = index.position[first:last], index.size[first:last]
    if not positions or min(positions) < 0 or any(map(gt, map(add, positions, sizes), positions[1:])):
        return False
    return positions[-1] + sizes[-1] - positions[0] <= min(MOST, 2 * sum(sizes) + (1 << 16))
