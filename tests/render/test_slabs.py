"""Memory for what waits: taken once, given back by the slab, and the same bytes in it."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import av
import pytest
from patience import until

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.host import WAITING
from gpupipe.plan.memory import ENCODE_LANES, SLOTS
from gpupipe.render import render
from gpupipe.render import slabs as slabs_module
from gpupipe.render.board import WAITING_BYTES, Board, Part
from gpupipe.render.lanes import Channel, Crew
from gpupipe.render.slabs import SLAB, Slabs

if TYPE_CHECKING:
    from pathlib import Path


def packet(size: int, pts: int) -> av.Packet:
    made = av.Packet(random.Random(pts).randbytes(size))
    made.pts = made.dts = pts
    made.duration, made.time_base, made.is_keyframe = 3, Fraction(1, 90), True
    return made


def facts(one: av.Packet) -> tuple:
    return bytes(one), one.pts, one.dts, one.duration, one.time_base, one.is_keyframe


def test_packets_are_what_they_were_and_their_slabs_come_back() -> None:
    slabs = Slabs(4 * SLAB + 5)
    assert slabs.size == slabs.free == 4 * SLAB
    given = [packet(350_000, pts) for pts in range(10)]
    kept = slabs.keep(0, given)
    assert [facts(one) for one in kept] == [facts(one) for one in given]
    assert not any(a is b for a, b in zip(kept, given, strict=True))
    assert slabs.free == 2 * SLAB  # five of them each
    del kept[5:]
    assert slabs.free == 2 * SLAB  # more of that segment may come
    slabs.close(0)
    assert slabs.free == 3 * SLAB
    last = kept.pop()
    del kept
    assert slabs.free == 3 * SLAB
    assert bytes(last) == bytes(given[4])
    del last
    assert slabs.free == 4 * SLAB


def test_a_batch_in_one_piece_of_memory_is_copied_in_one_piece() -> None:
    slabs, whole = Slabs(4 * SLAB), random.Random(1).randbytes(4_500_000)
    view, given = memoryview(whole), []
    for pts, (begin, end) in enumerate(pairwise(range(0, len(whole) + 1, 450_000))):
        one = av.Packet(view[begin:end])
        one.pts = one.dts = pts
        one.time_base = Fraction(1, 25)
        given.append(one)
    apart = packet(50, 99)
    kept = slabs.keep(3, [*given[:7], apart, *given[7:]])
    assert [facts(one) for one in kept] == [facts(one) for one in [*given[:7], apart, *given[7:]]]
    steps = [b.buffer_ptr - a.buffer_ptr for a, b in pairwise(kept)]
    assert steps.count(450_000) == 6  # four to a slab, three and the one apart and one more, the last two
    assert slabs.free == SLAB


def test_what_has_no_room_stays_where_it_is() -> None:
    slabs = Slabs(SLAB)
    large, empty, one, other = packet(SLAB, 0), av.Packet(b""), packet(SLAB // 2, 1), packet(SLAB // 2, 2)
    kept = slabs.keep(7, [large, empty, one, other])
    assert [a is b for a, b in zip(kept, [large, empty, one, other], strict=True)] == [True, True, False, True]


def test_segments_do_not_hold_each_others_slabs() -> None:
    slabs = Slabs(2 * SLAB)
    first, second = slabs.keep(0, [packet(1000, 0)]), slabs.keep(1, [packet(1000, 1)])
    assert slabs.free == 0
    slabs.close(0)
    slabs.close(1)
    del first
    assert slabs.free == SLAB
    del second
    assert slabs.free == 2 * SLAB


@pytest.mark.parametrize("room", [40 * SLAB, 3 * SLAB])
def test_a_board_gives_what_it_got_and_holds_nothing_afterwards(room: int) -> None:
    """Several lanes, parts out of order; with room for all that may wait, and with too little."""
    segments, parts, sessions, size = 12, 10, 4, 300_000
    slabs = Slabs(room)
    least = [slabs.free]
    with Crew() as crew:
        board = Board(crew, tuple(range(segments)), 2 * sessions, limit=20 * SLAB, runners=sessions, slabs=slabs)

        def run() -> None:
            while (index := board.take()) is not None:
                for number in reversed(range(parts)):
                    board.wait_for_room(index)
                    pts = index * parts + number
                    board.deliver(index, number, Part([packet(size, pts)], (pts,), None))
                    least.append(slabs.free)
                board.complete(index, parts)

        for n in range(sessions):
            crew.start(f"runner-{n}", run)
        got = []
        for _, part in board.in_order(threading.Event()):
            assert [facts(one) for one in part.packets] == [facts(packet(size, pts)) for pts in part.pts]
            got += part.pts
        del part
    assert got == list(range(segments * parts))
    assert min(least) < slabs.size
    gc.collect()
    assert slabs.free == slabs.size


def test_the_process_holds_as_much_from_the_start_as_when_all_is_in_use() -> None:
    """In a process of its own: others' memory comes and goes."""
    code = f"""
import av
from gpupipe.device.host import resident_bytes
from gpupipe.render.slabs import SLAB, Slabs
av.Packet(b"x")
before = resident_bytes()
slabs = Slabs(32 * SLAB)
taken = resident_bytes()
assert taken - before >= 32 * SLAB
data = bytes(150_000)
kept = []
while slabs.free:
    kept += slabs.keep(0, [av.Packet(data) for _ in range(13)])
assert resident_bytes() - taken < {SLAB // 2}, resident_bytes() - taken
del kept
slabs.close(0)
assert slabs.free == slabs.size
del slabs
assert resident_bytes() - before < {SLAB}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


class Chip:
    """Stands for a GPU's lanes: runners whose batches go by one channel to lanes that encode them."""

    def __init__(self, board: Board, crew: Crew, sessions: int, parts: int, data: bytes) -> None:
        self.board, self.parts, self.data, self.most, self._left = board, parts, data, 0, sessions
        self._jobs: Channel[tuple[int, int]] = Channel(crew, SLOTS * sessions)
        self._counting = threading.Lock()
        for n in range(sessions):
            crew.start(f"runner-{n}", self._run)
        for n in range(ENCODE_LANES):
            crew.start(f"encode-{n}", self._encode)

    def _run(self) -> None:
        while (index := self.board.take()) is not None:
            for number in range(self.parts):
                self.board.wait_for_room(index)
                self._jobs.put((index, number))
            self.board.complete(index, self.parts)
        with self._counting:
            self._left -= 1
            if not self._left:
                self._jobs.close()

    def _encode(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.board.deliver(*job, Part([av.Packet(self.data) for _ in range(16)], (0,) * 16, None))
            self.most = max(self.most, self.board._waiting)


def test_whatever_may_wait_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """14 sessions, 304 pictures a segment and a writer that stalls; a sixteenth of a GPU's run in all sizes."""
    scale, sessions = 16, 14
    monkeypatch.setattr(slabs_module, "SLAB", SLAB // scale)
    slabs = Slabs(WAITING // scale)
    keep, strays = slabs.keep, []

    def kept(segment: int, packets: list[av.Packet]) -> list[av.Packet]:
        found = keep(segment, packets)
        strays.extend(one for one, before in zip(found, packets, strict=True) if one is before)
        return found

    monkeypatch.setattr(slabs, "keep", kept)
    limit = WAITING_BYTES // scale
    with Crew() as crew:
        board = Board(crew, tuple(range(3 * sessions)), 2 * sessions, limit=limit, runners=sessions, slabs=slabs)
        chip = Chip(board, crew, sessions, 19, bytes(150_000 // scale))
        for at, _ in enumerate(board.in_order(threading.Event())):
            if at in (0, 200):
                assert until(lambda: board._waiting >= limit)
                time.sleep(0.2)  # it goes on as far as it may
    assert limit <= chip.most <= WAITING // scale
    assert strays == []


def test_a_run_writes_the_same_file_from_slabs(tmp_path: Path, sample_clip, monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse_config({
        "segments": {"seconds": 1}, "sessions": 2, "resume": "off", "output": {"video": {"encoder": "prores_torch"}},
        "stages": [{"resize": {"width": 64, "height": 36}}],
    })  # fmt: skip
    plan = make_plan(config, probe(sample_clip(3)), tmp_path / "slabs.mov", device="cpu")
    assert plan.sessions == 2
    frames = sum(segment.frames for segment in plan.segments)
    assert plan.waiting_bytes == frames * plan.encoder.input_format.frame_bytes // 16
    alone = make_plan(config.model_copy(update={"sessions": 1}), plan.source, plan.output, device="cpu")
    assert alone.waiting_bytes == 0
    kept = []
    keep = Slabs.keep
    monkeypatch.setattr(Slabs, "keep", lambda self, *a: kept.append(keep(self, *a)) or kept[-1])
    render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    assert sum(len(packets) for packets in kept) == frames
    plain = replace(plan, output=tmp_path / "plain.mov", waiting_bytes=0)
    render(plain, overwrite=False, journal=Journal(), stop=threading.Event())
    assert plan.output.read_bytes() == plain.output.read_bytes()
