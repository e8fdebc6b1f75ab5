"""A run whose memory gets short goes on with less, gives the same output, and says each step."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import pytest
from patience import until

from gpupipe.codecs.libav import LibavDecoder, LibavEncoder
from gpupipe.config import parse_config
from gpupipe.device.host import Room, short_of_memory
from gpupipe.errors import MediaError, ShortMemoryError
from gpupipe.journal import Journal
from gpupipe.media.mux import Muxer
from gpupipe.media.probe import probe
from gpupipe.plan import Plan, make_plan
from gpupipe.render import Watch, guard, reading, render
from gpupipe.render.board import Board, Part
from gpupipe.render.guard import Guard
from gpupipe.render.lanes import Crew
from gpupipe.render.repeat import Given
from gpupipe.stages.warp import STAGE as WARP

if TYPE_CHECKING:
    from collections.abc import Callable

PRESSED = Path(__file__).with_name("pressed.py")
NO_STOP = SimpleNamespace(is_set=lambda: False)
CONFIG = {"segments": {"seconds": 1}, "sessions": 4, "resume": "off", "stages": [{"warp": {"rotate": 5}}],
          "output": {"video": {"encoder": "libx264", "preset": "fast"}}}  # fmt: skip


PRESSED_CONFIG = {**CONFIG, "sessions": 6, "output": {"video": {"encoder": "libx264", "preset": "ultrafast"}}}


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory, ffmpeg: Callable[..., str]) -> dict[str, Path]:
    """Six segments of eight small pictures or four in 720p, with B-frames and sound."""
    folder = tmp_path_factory.mktemp("clips")
    for name, size, rate in (("small", "160x90", 8), ("large", "1280x720", 4)):
        ffmpeg("-f", "lavfi", "-i", f"testsrc2=s={size}:r={rate}:d=6", "-f", "lavfi", "-i", "sine=d=6", "-c:v",
               "libx264", "-preset", "fast", "-x264-params", f"keyint={rate}:min-keyint={rate}:scenecut=0",
               "-c:a", "flac", folder / f"{name}.mkv")  # fmt: skip
    return {name: folder / f"{name}.mkv" for name in ("small", "large")}


def packets(path: Path) -> list[tuple]:
    """Every packet of every stream, with its times and bytes."""
    with av.open(str(path)) as container:
        return [
            (p.stream_index, p.pts, p.dts, p.duration, p.is_keyframe, hashlib.sha256(bytes(p)).hexdigest())
            for p in container.demux() if p.size
        ]  # fmt: skip


def plan_of(clip: Path, output: Path, **changes: object) -> Plan:
    return make_plan(parse_config({**CONFIG, **changes}), probe(clip), output, device="cpu")


def run(plan: Plan) -> Watch:
    watch = Watch()
    render(plan, overwrite=True, journal=Journal(), stop=NO_STOP, watch=watch)
    return watch


@pytest.fixture(scope="module")
def undisturbed(clips: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[tuple]:
    output = tmp_path_factory.mktemp("undisturbed") / "o.mkv"
    run(plan_of(clips["small"], output))
    return packets(output)


def pressed(clip: Path, folder: Path, mib: int, guarded: str) -> subprocess.CompletedProcess[str]:
    (folder / "c.yaml").write_text(json.dumps(PRESSED_CONFIG))
    words = [mib, guarded, folder / "c.yaml", clip, folder / f"{guarded}.mkv", folder / f"{guarded}.json"]
    return subprocess.run(
        [sys.executable, str(PRESSED), *map(str, words)], capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )  # fmt: skip


def test_a_cap_that_would_fail_the_run_makes_it_smaller(clips, tmp_path):
    """Must-show 7 on the CPU: with a limit on the process's memory, without the guard and with it."""
    mib = 650  # one session takes some 250, six take more than 800; what failed once leaves holes behind
    without = pressed(clips["large"], tmp_path, mib, "none")
    assert without.returncode == 7, without.stderr
    assert not (tmp_path / "none.mkv").exists()
    assert json.loads((tmp_path / "none.json").read_text())["verdict"] == "failed"
    done = pressed(clips["large"], tmp_path, mib, "guard")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "guard.json").read_text())
    steps = [h for h in report["happenings"] if h["kind"] == "fewer-sessions"]
    assert steps
    assert report["counts"]["fewer-sessions"] == len(steps)
    for step in steps:
        assert f"memory is short, it goes on with less: {step['detail']}" in done.stderr
    assert f"{len(steps)} step" in report["message"]
    free = tmp_path / "free.mkv"
    run(make_plan(parse_config(PRESSED_CONFIG), probe(clips["large"]), free, device="cpu"))
    assert packets(tmp_path / "guard.mkv") == packets(free)


FAILURES = {
    "decode": (LibavDecoder, "decode", 9, MemoryError()),
    "reading": (reading.Pieces, "read", 2, av.error.MemoryError(12, "Cannot allocate memory")),
    "stages": (WARP, "__call__", 13, RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")),
    "encode": (LibavEncoder, "encode", 11, MemoryError()),
    "finish": (LibavEncoder, "finish", 1, ShortMemoryError("out of memory in libx264")),
    "opening": (LibavEncoder, "__init__", 2, ShortMemoryError("out of memory while libx264 was opened")),
    "threads": (Crew, "start", 2, RuntimeError("can't start new thread")),
    "late": (LibavEncoder, "encode", 40, MemoryError()),
}  # fmt: skip


@pytest.mark.parametrize("place", FAILURES)
@pytest.mark.parametrize("resume", ["off", "keep"])
def test_wherever_it_fails_the_output_is_the_same(clips, tmp_path, monkeypatch, undisturbed, place, resume):
    owner, name, after, error = FAILURES[place]
    calls, original, lock = iter(range(1000)), getattr(owner, name), threading.Lock()
    plan = plan_of(clips["small"], tmp_path / "o.mkv", resume=resume)

    def fails_once(*args: object, **more: object) -> object:
        with lock:
            number = next(calls)
        if number == after:
            raise error
        return original(*args, **more)

    monkeypatch.setattr(owner, name, fails_once)
    watch = run(plan)
    assert watch.counts == {"fewer-sessions": 1}
    assert watch.happenings[0].detail.startswith("2 of 4 sessions")
    assert packets(tmp_path / "o.mkv") == undisturbed
    assert watch.read().computed >= 48


def test_it_gives_up_one_thing_after_another_and_then_itself(clips, tmp_path, monkeypatch):
    """Sessions, then the stage's own steps; every attempt fails."""
    smaller = iter([WARP.Settings(rotate=5), None, None])
    monkeypatch.setattr(WARP, "smaller", lambda _: next(smaller))
    monkeypatch.setattr(LibavEncoder, "encode", lambda *_: (_ for _ in ()).throw(MemoryError))
    plan = plan_of(clips["small"], tmp_path / "o.mkv")
    watch = Watch()
    with pytest.raises(ShortMemoryError, match="out of memory"):
        render(plan, overwrite=True, journal=Journal(), stop=NO_STOP, watch=watch)
    assert [h.kind for h in watch.happenings] == ["fewer-sessions", "fewer-sessions", "smaller-tiles"]
    assert not list(tmp_path.iterdir())


def test_a_run_that_is_not_cut_begins_anew_with_smaller_tiles(clips, tmp_path, monkeypatch):
    plan = plan_of(clips["small"], tmp_path / "o.mkv", segments="off", sessions="auto")
    run(replace(plan, output=tmp_path / "free.mkv"))
    calls, original = iter(range(1000)), WARP.__call__
    monkeypatch.setattr(WARP, "smaller", lambda self: self.settings)

    def fails_once(*args: object) -> object:
        if next(calls) == 20:
            raise MemoryError
        return original(*args)

    monkeypatch.setattr(WARP, "__call__", fails_once)
    watch = run(plan)
    assert watch.counts == {"smaller-tiles": 1}
    assert packets(tmp_path / "o.mkv") == packets(tmp_path / "free.mkv")


def test_what_was_half_written_is_not_written_twice(clips, tmp_path, monkeypatch):
    """Memory that is short in the writer ends the run: nobody knows how much of a part reached the file."""
    monkeypatch.setattr(Muxer, "write_video", lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(ShortMemoryError):
        run(plan_of(clips["small"], tmp_path / "o.mkv"))


def test_on_a_gpu_batches_come_after_sessions(clips, tmp_path):
    plan = replace(plan_of(clips["small"], tmp_path / "o.mkv"), device="cuda:0", sessions=3, batch=16)
    kinds = []
    while (step := guard.smaller(plan)) is not None:
        plan, kind, words = step
        kinds.append((kind, words))
    assert kinds == [
        ("fewer-sessions", "2 of 3 sessions"), ("fewer-sessions", "1 of 2 sessions"),
        ("smaller-batches", "batches of 8 instead of 16"), ("smaller-batches", "batches of 4 instead of 8"),
        ("smaller-batches", "batches of 2 instead of 4"), ("smaller-batches", "batches of 1 instead of 2"),
    ]  # fmt: skip


def watched(plan: Plan, runners: int) -> tuple[Guard, Watch, Board, Crew]:
    watch = Watch()
    watch.lane("writer", "open")
    crew = Crew()
    guarded, board = Guard(plan), Board(crew, plan.segments, 8, runners=runners)
    guarded.on(board)
    watch.leave()
    return guarded, watch, board, crew


def test_the_alarm_makes_sessions_fewer_before_anything_fails(clips, tmp_path):
    guarded, watch, board, crew = watched(plan_of(clips["small"], tmp_path / "o.mkv"), 4)
    gib = 1 << 30
    guarded.look([Room(10 * gib, 12 * gib), Room(2 * gib, 64 * gib)])
    assert (board.allowed, watch.counts) == (4, {})
    guarded.look([Room(10 * gib, 12 * gib), Room(gib, 64 * gib)])
    assert (board.allowed, guarded.plan.sessions, crew.halted) == (3, 3, False)
    assert watch.happenings[-1].detail == "3 sessions, when a segment is done: 1024 MiB of 65536 MiB are left"
    assert [board.take(), board.take(), board.take()] == [None, 0, 1]  # the first that comes leaves
    guarded.look([Room(300 << 20, 64 * gib)])
    assert (board.allowed, crew.halted) == (2, True)
    assert isinstance(crew.error, guard.GoneBackError)
    board.allowed = 1
    for left, told in ((300 << 20, 1), (200 << 20, 1), (10 * gib, 1), (300 << 20, 2)):  # once for as long as it lasts
        guarded.look([Room(left, 64 * gib)])
        assert (watch.happenings[-1].kind, watch.counts["memory-low"]) == ("memory-low", told)


def test_a_limit_of_the_config_is_watched(clips, tmp_path, monkeypatch, undisturbed):
    """Through the whole run: the process holds more than `memory.host` allows, so that only one session is left."""
    monkeypatch.setattr(guard, "INTERVAL", 0.02)
    monkeypatch.setattr(guard, "SETTLE", 0.02)
    write, watch = Muxer.write_video, Watch()

    def last(*args: object) -> None:
        until(lambda: watch.counts["fewer-sessions"] == 3)  # so long the run lasts, however few its pictures are
        write(*args)

    monkeypatch.setattr(Muxer, "write_video", last)
    plan = replace(plan_of(clips["small"], tmp_path / "o.mkv"), host_limit=100 << 20)
    render(plan, overwrite=True, journal=Journal(), stop=NO_STOP, watch=watch)
    assert watch.counts["fewer-sessions"] == 3
    assert packets(tmp_path / "o.mkv") == undisturbed


def test_the_watch_does_not_outlive_the_run(clips, tmp_path):
    before = threading.active_count()
    run(plan_of(clips["small"], tmp_path / "o.mkv"))
    until(lambda: threading.active_count() <= before)


def packet(pts: int, size: int) -> SimpleNamespace:
    return SimpleNamespace(pts=pts, size=size)


def test_only_what_is_new_of_a_repetition_is_written():
    """Parts may be cut otherwise the second time."""
    given = Given(exact=True)
    first = Part([packet(0, 5), packet(3, 6)], (0, 1, 2, 3), None)
    assert given.new_of(first) is first
    given.rewind()
    rest = given.new_of(Part([packet(0, 5)], (0, 1), None))
    assert (rest.packets, rest.pts) == ([], ())
    rest = given.new_of(Part([packet(3, 6), packet(1, 7)], (2, 3, 4, 5), None))
    assert ([p.pts for p in rest.packets], rest.pts) == ([1], (4, 5))
    given.rewind()
    with pytest.raises(
        MediaError, match="pts 0: memory was short, and this encoder does not give the same bytes again"
    ):
        given.new_of(Part([packet(0, 4)], (0,), None))
    loose = Given(exact=False)
    loose.new_of(Part([packet(0, 5)], (0,), None))
    loose.rewind()
    assert loose.new_of(Part([packet(0, 4), packet(1, 4)], (0, 1), None)).pts == (1,)


@pytest.mark.parametrize(("error", "short"), [
    (MemoryError(), True), (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True), (ValueError("bad"), False),
    (av.error.MemoryError(12, "Cannot allocate memory"), True), (MediaError("no frame could be decoded"), False),
])  # fmt: skip
def test_what_means_that_memory_is_short(error, short):
    assert short_of_memory(error) is short
    wrapped = MediaError("an encoder failed")
    wrapped.__cause__ = error
    assert short_of_memory(wrapped) is short


def test_lanes_that_cannot_be_started_do_not_hang(monkeypatch):
    def refuses(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    with Crew() as crew, pytest.raises(RuntimeError, match="can't start"):
        crew.start("runner-0", lambda: None)
