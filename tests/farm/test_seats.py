"""Segments that nodes send: looked at, named when whole. Ray is a double that answers at once."""

from __future__ import annotations

import threading
from concurrent.futures import wait
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from patience import LIMIT

from gpupipe.errors import MediaError
from gpupipe.farm import seats
from gpupipe.farm.seats import RaySeat
from gpupipe.render.board import Part
from gpupipe.render.pieces import PieceWriter, verify
from gpupipe.render.seat import SeatLostError

if TYPE_CHECKING:
    from pathlib import Path

RAY = SimpleNamespace(get=lambda answer, timeout: answer, exceptions=SimpleNamespace(GetTimeoutError=TimeoutError))


@pytest.mark.parametrize("wrong", ["", "changed", "another plan"])
def test_a_segment_comes_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setattr(seats, "CHUNK", 64)
    writer = PieceWriter(tmp_path / "theirs.seg", "digest")
    for pts in range(20):
        writer.add(Part([], (pts,), None))
    piece = writer.seal()
    sent, dropped = bytearray((tmp_path / "theirs.seg").read_bytes()), []
    sent[70] ^= wrong == "changed"
    actor = SimpleNamespace(
        render=SimpleNamespace(remote=lambda _: piece),
        chunk=SimpleNamespace(remote=lambda _, start, size: bytes(sent[start : start + size])),
        drop=SimpleNamespace(remote=dropped.append),
    )
    there = tmp_path / "there"
    there.mkdir()
    digest = "another" if wrong == "another plan" else "digest"
    ledger = SimpleNamespace(path=lambda _: there / "000003.seg", writing=nullcontext, digest=digest, pieces={})
    future = RaySeat(RAY, actor, "a node", places=1, ledger=ledger).render(3)  # type: ignore[arg-type]  # all that it asks of a ledger
    if wrong:
        with pytest.raises(MediaError, match="a node: a segment did not arrive whole: "):
            future.result(LIMIT)
        assert (list(there.iterdir()), dropped) == ([], [])
    else:
        assert future.result(LIMIT) == piece == verify(there / "000003.seg")
        assert (list(there.iterdir()), dropped) == ([there / "000003.seg"], [3])


def test_a_seat_that_hangs_in_a_segment_holds_up_no_other(tmp_path: Path) -> None:
    """Both were given it."""
    writer = PieceWriter(tmp_path / "theirs.seg", "digest")
    writer.add(Part([], (0,), None))
    piece, hangs = writer.seal(), threading.Event()
    there = tmp_path / "there"
    there.mkdir()
    ledger = SimpleNamespace(path=lambda _: there / "000003.seg", writing=nullcontext, digest="digest", pieces={})

    def seat(chunk: object) -> RaySeat:
        remote = {"render": lambda _: piece, "chunk": chunk, "drop": lambda _: None, "close": lambda: None}
        actor = SimpleNamespace(**{name: SimpleNamespace(remote=call) for name, call in remote.items()})
        return RaySeat(RAY, actor, "a node", places=1, ledger=ledger)  # type: ignore[arg-type]  # see above

    slow, quick = seat(lambda *_: hangs.wait(LIMIT) and b""), seat(lambda *_: (tmp_path / "theirs.seg").read_bytes())
    late = slow.render(3)
    try:
        assert quick.render(3).result(LIMIT) == piece
    finally:
        hangs.set()
    with pytest.raises(MediaError):
        late.result(LIMIT)
    assert list(there.iterdir()) == [there / "000003.seg"]


def test_all_that_a_closed_seat_had_ends_as_lost() -> None:
    """Also what waited for a thread: cancelled, `concurrent.futures.wait` would never name it."""
    asked = threading.Event()

    def get(answer: object, timeout: float) -> object:
        asked.set()
        raise TimeoutError

    ray = SimpleNamespace(get=get, exceptions=RAY.exceptions)
    remote = SimpleNamespace(remote=lambda *_: None)
    actor = SimpleNamespace(render=remote, close=remote)
    seat = RaySeat(ray, actor, "a node", places=1, ledger=SimpleNamespace())  # type: ignore[arg-type]
    first, second = seat.render(0), seat.render(1)
    assert asked.wait(LIMIT)
    seat.close()
    assert wait([first, second], LIMIT).not_done == set()
    for future in (first, second):
        with pytest.raises(SeatLostError):
            future.result()
