"""Finished segments as files: encoded packets with their times, hashed, under their name only when whole.

A file is a magic line, records and a hash. A record is the length of its JSON (4 bytes, little endian), the JSON and
the packets' bytes; the last one sums the segment up, and the SHA-256 of all before it follows.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import struct
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import av

from gpupipe.journal import Entry
from gpupipe.plain import parsed
from gpupipe.render.board import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gpupipe.codecs.base import Encoder

MAGIC = b"gpupipe segment 1\n"
_CHUNK, _HASH, _LENGTH = 1 << 20, 32, struct.Struct("<I")
_LONGEST = 1 << 28
"""Bytes of a record's JSON beyond which its length is damage."""
_WRONG = (ValueError, KeyError, TypeError, IndexError, OverflowError, struct.error)
"""What reading changed bytes may raise."""


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
    warnings: tuple[Entry, ...] = ()
    """What was noticed while it was rendered."""


def _part_of(path: Path) -> Path:
    """Its name until it is whole: no other thread or process of any machine has the same."""
    return path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}-{threading.get_ident()}.part")


class BadPieceError(Exception):
    """A segment's file is not what was written; the message says what is wrong. Never seen outside."""


class PieceWriter:
    """Writes one segment's file; raises OSError. It has another name until `seal`."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path, self._digest = path, digest
        self._part = _part_of(path)
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

    def seal(self, warnings: Sequence[Entry] = ()) -> Piece:
        """Ends the file and gives it its name, atomically and for good."""
        end = [self._digest, self.frames, self._first, self._last]
        self._record({"end": end, "warnings": [asdict(entry) for entry in warnings]})
        digest = self._hash.digest()
        self._file.write(digest)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)
        facts = (self._digest, self.frames, self._first, self._last)
        return Piece(*facts, self._bytes + _HASH, digest.hex(), tuple(warnings))

    def discard(self) -> None:
        """Gives up; safe after `seal`."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._part.unlink()


class _Hashed:
    """Reads a file once, from front to back, hashing all but the hash at its end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self.left, self.seen = file, size - _HASH, hashlib.sha256()

    def take(self, size: int) -> bytes:
        data = self._file.read(size) if 0 <= size <= self.left else b""
        if len(data) != size:
            raise BadPieceError("it is cut short or damaged")
        self.left -= size
        self.seen.update(data)
        return data

    def skip(self, size: int) -> None:
        """Bytes that are not looked at; after them `check` has nothing to say."""
        self._file.seek(size, os.SEEK_CUR)
        self.left -= size

    def check(self) -> str:
        """After the last byte: its hash, where that is the one at the end."""
        if self.left or self._file.read() != self.seen.digest():
            raise BadPieceError("it is cut short or damaged: its hash is another")
        return self.seen.hexdigest()


def verify(path: Path, *, thorough: bool = True) -> Piece:
    """What a file holds, after all of it was read and hashed, if `thorough`.

    Raises BadPieceError where it is cut short or changed, OSError where it cannot be read.
    """
    state = path.stat()
    if not stat.S_ISREG(state.st_mode):  # a pipe would be waited for
        raise BadPieceError("it is no file")
    size = state.st_size
    with path.open("rb") as file:
        hashed = _Hashed(file, size)
        seen = ""
        if thorough:
            while hashed.left > 0:
                hashed.take(min(_CHUNK, hashed.left))
            seen = hashed.check()
            file.seek(0)
        facts: dict[str, Any] = {}
        try:
            for facts, sizes in _records(hashed := _Hashed(file, size)):  # noqa: B007  the last one counts
                hashed.skip(sum(sizes))
            digest, frames, first, last = facts["end"]
            warnings = tuple(Entry(**entry) for entry in facts["warnings"])
        except _WRONG as error:
            raise BadPieceError(f"it is no segment of this version: {error}") from None
    return Piece(digest, frames, first, last, size, seen, warnings)


def take_in(path: Path, data: Iterable[bytes], digest: str) -> Piece:
    """Writes a file that was made elsewhere, in chunks; it gets its name when it verifies and is of that digest.

    Raises BadPieceError where it does not, OSError where it cannot be written.
    """
    part = _part_of(path)
    try:
        with part.open("wb") as file:
            file.writelines(data)
            file.flush()
            os.fsync(file.fileno())
        piece = verify(part)
        if piece.digest != digest:
            raise BadPieceError("it is of another plan, source or version")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return piece


def read(path: Path, encoder: Encoder) -> Iterator[Part]:
    """The parts of a file, with memory for one of them.

    Raises BadPieceError as soon as it is seen, at the end at the latest, that the file is not what was written.
    """
    with path.open("rb") as file:
        hashed = _Hashed(file, path.stat().st_size)
        try:
            for facts, sizes in _records(hashed):
                if "pts" in facts:
                    yield _part(facts, [hashed.take(size) for size in sizes], encoder)
        except _WRONG as error:
            raise BadPieceError(f"it is damaged: {error}") from None
        hashed.check()


def times(path: Path) -> list[tuple[int, int]]:
    """(pts, duration) of every picture of a file that was trusted, in display order; packets are not read."""
    with path.open("rb") as file:
        hashed = _Hashed(file, path.stat().st_size)
        found: list[tuple[int, int]] = []
        for facts, sizes in _records(hashed):
            found += [(pts, duration or 0) for pts, _, duration, *_ in facts.get("packets", ())]
            hashed.skip(sum(sizes))
    return sorted(found)


def _part(facts: dict[str, Any], packets: list[bytes], encoder: Encoder) -> Part:
    made = []
    for data, (pts, dts, duration, key, _) in zip(packets, facts["packets"], strict=True):
        packet = av.Packet(data)
        packet.pts, packet.dts, packet.duration = pts, dts, duration
        packet.is_keyframe, packet.time_base = bool(key), encoder.settings.time_base
        made.append(packet)
    return Part(made, tuple(facts["pts"]), encoder)


def _records(hashed: _Hashed) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """(JSON, sizes of the packets that follow) of each record; whoever gets it takes those bytes."""
    if hashed.take(len(MAGIC)) != MAGIC:
        raise BadPieceError("it is no segment of this version")
    while hashed.left > 0:
        (length,) = _LENGTH.unpack(hashed.take(_LENGTH.size))
        if length > _LONGEST:
            raise BadPieceError("it is damaged: a record has no such length")
        facts = parsed(hashed.take(length))
        yield facts, [row[4] for row in facts.get("packets", ())]
