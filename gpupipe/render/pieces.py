"""Finished segments as files: encoded packets with their times, hashed, under their name only when whole.

A file is a magic line, records and a hash. A record is the length of its JSON (4 bytes, little endian), the JSON and
the packets' bytes; the last one sums the segment up, and the SHA-256 of all before it follows.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import av

from gpupipe.render.board import Part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpupipe.codecs.base import Encoder

MAGIC = b"gpupipe segment 1\n"
_CHUNK, _HASH, _LENGTH = 1 << 20, 32, struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Piece:
    """What a finished segment holds."""

    digest: str
    """Of the plan that made it."""
    frames: int
    first: int | None
    last: int | None
    """pts of the first and the last picture, in the encoder's time base; None where it has none."""
    bytes: int
    """Of the file."""
    hash: str
    """SHA-256 of all that the file holds before it."""


class BadPieceError(Exception):
    """A segment's file is not what was written; the message says what is wrong. Never seen outside."""


class PieceWriter:
    """Writes one segment's file; raises OSError. It has another name until `seal`."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path, self._digest = path, digest
        self._part = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.part")
        self._file = self._part.open("wb")
        self._hash = hashlib.sha256()
        self._bytes = self.frames = self.packets = 0
        self._first: int | None = None
        self._last: int | None = None
        self._write(MAGIC)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)

    def _record(self, facts: dict[str, object]) -> None:
        text = json.dumps(facts, separators=(",", ":")).encode()
        self._write(_LENGTH.pack(len(text)) + text)

    def add(self, part: Part) -> None:
        """The next part of the segment."""
        rows = [(p.pts, p.dts, p.duration, int(p.is_keyframe), p.size) for p in part.packets]
        self._record({"pts": part.pts, "packets": rows})
        for packet in part.packets:
            self._write(bytes(packet))
        self.frames += part.frames
        self.packets += len(rows)
        if part.pts:
            self._first = part.pts[0] if self._first is None else self._first
            self._last = part.pts[-1]

    def seal(self) -> Piece:
        """Ends the file and gives it its name, atomically and for good."""
        self._record({"end": [self._digest, self.frames, self._first, self._last]})
        digest = self._hash.digest()
        self._file.write(digest)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)
        return Piece(self._digest, self.frames, self._first, self._last, self._bytes + _HASH, digest.hex())

    def discard(self) -> None:
        """Gives up; safe after `seal`."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()


def verify(path: Path) -> Piece:
    """What a file holds, after all of it was read and hashed.

    Raises BadPieceError where it is cut short or changed, OSError where it cannot be read.
    """
    size = path.stat().st_size
    seen, left = hashlib.sha256(), size - _HASH
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(_CHUNK, left))):
            seen.update(chunk)
            left -= len(chunk)
        if left or file.read() != seen.digest():
            raise BadPieceError("it is cut short or damaged: its hash is another")
        file.seek(0)
        *_, (last, _) = _records(file, size)
    end = last.get("end")
    if not isinstance(end, list):
        raise BadPieceError("it has no end")
    digest, frames, first, last = end
    return Piece(digest, frames, first, last, bytes=size, hash=seen.hexdigest())


def read(path: Path, encoder: Encoder) -> Iterator[Part]:
    """The parts of a file that `verify` has accepted; memory for one of them."""
    with path.open("rb") as file:
        for facts, at in _records(file, path.stat().st_size):
            if "pts" not in facts:
                return
            file.seek(at)
            packets = []
            for pts, dts, duration, key, size in facts["packets"]:
                data = file.read(size)
                if len(data) != size:
                    raise BadPieceError("it became shorter while it was read")
                packet = av.Packet(data)
                packet.pts, packet.dts, packet.duration = pts, dts, duration
                packet.is_keyframe, packet.time_base = bool(key), encoder.settings.time_base
                packets.append(packet)
            yield Part(packets, tuple(facts["pts"]), encoder)


def _records(file: BinaryIO, size: int) -> Iterator[tuple[dict[str, list], int]]:  # type: ignore[type-arg]  # rows of JSON
    """(JSON, where its packets begin) of each record."""
    if file.read(len(MAGIC)) != MAGIC:
        raise BadPieceError("it is no segment of this version")
    at = len(MAGIC)
    while at < size - _HASH:
        file.seek(at)
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        facts = json.loads(file.read(length))
        at += _LENGTH.size + length
        yield facts, at
        at += sum(row[4] for row in facts.get("packets", ()))
