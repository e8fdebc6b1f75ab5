"""Memory for what waits: taken once, given back by the slab, and the same bytes in it."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
from patience import until

from gpupipe.codecs.intra import copied
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

    from numpy.typing import NDArray

    from gpupipe.codecs.base import Spans


def noise(size: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.frombuffer(random.Random(seed).randbytes(size), np.uint8)


def one_behind_another(*sizes: int) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(sizes, initial=0)))


def address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data


def inside(slabs: Slabs, view: memoryview) -> bool:
    return np.shares_memory(np.frombuffer(view, np.uint8), slabs._memory)


def held(view: memoryview) -> NDArray[np.uint8]:
    """The memory that stays as long as a part of it is wanted."""
    assert isinstance(view.obj, np.ndarray)
    return view.obj


def test_bitstreams_are_what_they_were_and_their_slabs_come_back() -> None:
    slabs = Slabs(4 * SLAB + 5)
    assert slabs.size == slabs.free == 4 * SLAB
    given, spans = noise(3_500_000), one_behind_another(*[350_000] * 10)
    kept = slabs.keep(0, given, spans)
    assert [bytes(one) for one in kept] == [given[begin:end].tobytes() for begin, end in spans]
    assert all(inside(slabs, one) for one in kept)
    assert slabs.free == 2 * SLAB  # five of them each
    del kept[5:]
    assert slabs.free == 2 * SLAB  # more of that segment may come
    slabs.close(0)
    assert slabs.free == 3 * SLAB
    last = kept.pop()
    del kept
    assert slabs.free == 3 * SLAB
    packet = av.Packet(last)  # which keeps it
    del last
    assert bytes(packet) == given[4 * 350_000 : 5 * 350_000].tobytes()
    assert slabs.free == 3 * SLAB
    del packet
    assert slabs.free == 4 * SLAB


def test_a_batch_is_copied_in_one_piece_as_far_as_a_slab_goes() -> None:
    slabs, given = Slabs(4 * SLAB), noise(4_600_000)
    spans = [(at, at + 450_000) for at in range(0, 4_500_000, 450_060)]  # ProRes lies a little apart
    kept = slabs.keep(3, given, spans)
    assert [bytes(one) for one in kept] == [given[begin:end].tobytes() for begin, end in spans]
    steps = [address(b) - address(a) for a, b in pairwise(kept)]
    assert steps.count(450_060) == 7  # four to a slab, and the last two
    assert slabs.free == SLAB


def test_what_has_no_room_gets_memory_of_its_own() -> None:
    slabs, sizes = Slabs(SLAB), (SLAB, 0, SLAB // 2, SLAB // 2)
    given, spans = noise(sum(sizes)), one_behind_another(*sizes)
    kept = slabs.keep(7, given, spans)
    assert [inside(slabs, one) for one in kept] == [False, False, True, False]
    assert [bytes(one) for one in kept] == [given[begin:end].tobytes() for begin, end in spans]
    assert not any(np.shares_memory(np.frombuffer(one, np.uint8), given) for one in kept)
    assert [len(held(one)) for one in kept if not inside(slabs, one)] == [SLAB, 0, SLAB // 2], (
        "the batch again for each"
    )


def test_segments_do_not_hold_each_others_slabs() -> None:
    slabs = Slabs(2 * SLAB)
    first, second = slabs.keep(0, noise(1000), [(0, 1000)]), slabs.keep(1, noise(1000), [(0, 1000)])
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
                    packets = [av.Packet(view) for view in board.keep(index)(noise(size, pts), [(0, size)])]
                    board.deliver(index, number, Part(packets, (pts,), None))
                    least.append(slabs.free)
                board.complete(index, parts)

        for n in range(sessions):
            crew.start(f"runner-{n}", run)
        got = []
        for _, part in board.in_order(threading.Event()):
            assert [bytes(one) for one in part.packets] == [noise(size, pts).tobytes() for pts in part.pts]
            got += part.pts
        del part
    assert got == list(range(segments * parts))
    assert min(least) < slabs.size
    gc.collect()
    assert slabs.free == slabs.size


def test_the_process_holds_as_much_from_the_start_as_when_all_is_in_use() -> None:
    """In a process of its own: others' memory comes and goes."""
    code = f"""
import numpy as np
from gpupipe.device.host import resident_bytes
from gpupipe.render.slabs import SLAB, Slabs
data, spans = np.ones(13 * 150_000, np.uint8), [(n * 150_000, (n + 1) * 150_000) for n in range(13)]
before = resident_bytes()
slabs = Slabs(100 * SLAB)
slabs.taken()
taken = resident_bytes()
assert taken - before >= 100 * SLAB
kept = []
while slabs.free:
    kept += slabs.keep(0, data, spans)
assert resident_bytes() - taken < {SLAB // 2}, resident_bytes() - taken
del kept
slabs.close(0)
assert slabs.free == slabs.size
del slabs
assert resident_bytes() - before < {SLAB}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_kept_at_once_is_not_touched_by_whoever_takes_the_pages(monkeypatch) -> None:
    """Which happens beside the rest of a start."""
    begun, may_go_on = threading.Event(), threading.Event()
    take = slabs_module._take

    def slowly(*arguments: object) -> None:
        begun.set()
        assert may_go_on.wait(10)
        take(*arguments)

    monkeypatch.setattr(slabs_module, "_take", slowly)
    slabs, given, spans = Slabs(4 * SLAB), noise(1_000_000), one_behind_another(*[100_000] * 10)
    assert begun.wait(10)
    threading.Timer(0.05, may_go_on.set).start()
    assert [bytes(one) for one in slabs.keep(0, given, spans)] == [given[a:b].tobytes() for a, b in spans]
    assert may_go_on.is_set()


def test_nobody_takes_pages_of_slabs_that_are_gone(monkeypatch) -> None:
    memory, slabs = np.ones(3 * SLAB, np.uint8), Slabs(SLAB)
    slabs.taken()
    monkeypatch.setattr(slabs_module, "_PIECE", 1)
    slabs_module._take(memory, lambda: slabs if memory[0] else None)
    assert not memory[0]
    assert memory[SLAB:].all()


class Chip:
    """Stands for a GPU's lanes: runners whose batches go by one channel to lanes that encode them."""

    def __init__(self, board: Board, crew: Crew, sessions: int, parts: int, size: int) -> None:
        self.board, self.parts, self.most, self._left = board, parts, 0, sessions
        self.data, self.spans = noise(16 * size), one_behind_another(*[size] * 16)
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
            packets = [av.Packet(view) for view in self.board.keep(job[0])(self.data, self.spans)]
            self.board.deliver(*job, Part(packets, (0,) * 16, None))
            self.most = max(self.most, self.board._waiting)


def test_whatever_may_wait_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """14 sessions, 304 pictures a segment and a writer that stalls; a sixteenth of a GPU's run in all sizes."""
    scale, sessions = 16, 14
    monkeypatch.setattr(slabs_module, "SLAB", SLAB // scale)
    slabs = Slabs(WAITING // scale)
    strays: list[Spans] = []

    monkeypatch.setattr(slabs_module, "copied", lambda data, spans: strays.append(spans) or copied(data, spans))
    limit = WAITING_BYTES // scale
    with Crew() as crew:
        board = Board(crew, tuple(range(3 * sessions)), 2 * sessions, limit=limit, runners=sessions, slabs=slabs)
        chip = Chip(board, crew, sessions, 19, 150_000 // scale)
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
