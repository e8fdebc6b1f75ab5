"""A segment's file gives back what was put in, and is trusted only when every byte is as it was written."""

from __future__ import annotations

import os
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.render.board import Part
from gpupipe.render.pieces import BadPieceError, PieceWriter, read, verify

if TYPE_CHECKING:
    from pathlib import Path

ENCODER = SimpleNamespace(settings=SimpleNamespace(time_base=Fraction(1, 25)))


def packet(pts: int, dts: int | None, data: bytes) -> av.Packet:
    made = av.Packet(data)
    made.pts, made.dts, made.duration, made.is_keyframe = pts, dts, 1, pts == 7
    return made


def rows(parts: list[Part]) -> list:
    return [(p.pts, [(k.pts, k.dts, k.duration, k.is_keyframe, bytes(k)) for k in p.packets]) for p in parts]


@pytest.fixture
def parts() -> list[Part]:
    early = Part([], (7, 8), None)  # an encoder holds its first pictures back
    late = Part([packet(7, None, b"a" * 3000), packet(9, 8, b"bc"), packet(8, 9, b"\0" * 5)], (9,), None)
    return [early, late]


def write(path: Path, parts: list[Part]) -> PieceWriter:
    writer = PieceWriter(path, "digest")
    for part in parts:
        writer.add(part)
    return writer


def test_round_trip(tmp_path: Path, parts: list[Part]) -> None:
    path = tmp_path / "000000.seg"
    writer = write(path, parts)
    assert not path.exists()  # the name comes last
    sealed = writer.seal()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert verify(path) == sealed
    assert (sealed.digest, sealed.frames, sealed.first, sealed.last) == ("digest", 3, 7, 9)
    assert sealed.bytes == path.stat().st_size
    assert rows(list(read(path, ENCODER))) == rows(parts)


def test_no_cut_or_flipped_byte_is_trusted(tmp_path: Path, parts: list[Part]) -> None:
    path = tmp_path / "000000.seg"
    write(path, parts).seal()
    whole = path.read_bytes()
    for at in {0, 20, len(whole) // 2, len(whole) - 33, len(whole) - 1}:
        path.write_bytes(whole[:at])
        with pytest.raises(BadPieceError):
            verify(path)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BadPieceError):
            verify(path)


def test_discarded_leaves_nothing(tmp_path: Path, parts: list[Part]) -> None:
    write(tmp_path / "000000.seg", parts).discard()
    assert not list(tmp_path.iterdir())


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "000000.seg")
    with pytest.raises(BadPieceError, match="no file"):
        verify(tmp_path / "000000.seg", thorough=False)
