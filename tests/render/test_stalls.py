"""Lanes of a real run that stall, die or are stopped: nothing hangs, nothing grows, nothing is left behind."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import weakref
from pathlib import Path

import av
import patience
import pytest

from gpupipe.codecs.libav import LibavDecoder, LibavEncoder
from gpupipe.collector import no_collection
from gpupipe.config import parse_config
from gpupipe.errors import StoppedError
from gpupipe.journal import Journal
from gpupipe.media.mux import Muxer
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import reading, render, runner, segmented
from gpupipe.render.board import Board

SESSIONS, LIMIT = 3, 600_000
PATIENCE = patience.LIMIT
CONFIG = {
    "output": {"video": {"codec": "ffv1", "options": {"level": 3}}}, "segments": {"seconds": 1}, "sessions": SESSIONS
}  # fmt: skip
MOST = LIMIT * 9 // 8 + SESSIONS * 16 * 25_000
"""Room, and what each session was computing when it was used up; the whole output has some 5 MB."""


class BoomError(Exception):
    pass


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory, ffmpeg) -> Path:
    """10 s in GOPs of a second with B-frames, with sound; FFV1 makes some 20 kB of each picture."""
    path = tmp_path_factory.mktemp("clip") / "clip.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=10", "-f", "lavfi", "-i", "sine=d=10", "-c:v", "libx264",
           "-preset", "fast", "-x264-params", "keyint=24:min-keyint=24:scenecut=0", "-c:a", "flac", path)  # fmt: skip
    return path


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> list[Board]:
    """The boards of all runs, with little room."""
    made: list[Board] = []

    def make(*args: object, **more: object) -> Board:
        made.append(Board(*args, limit=LIMIT, **more))
        return made[-1]

    monkeypatch.setattr(segmented, "Board", make)
    return made


def pictures(path: Path) -> list[tuple[int, str]]:
    with av.open(str(path)) as container:
        return [(f.pts, hashlib.sha256(b"".join(bytes(p) for p in f.planes)).hexdigest())
                for f in container.decode(video=0)]  # fmt: skip


def open_files() -> set[str]:
    return {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}


class Run:
    """A run in a thread of its own, so that a hang shows as a failure."""

    def __init__(self, source: Path, output: Path, config: dict = CONFIG) -> None:
        self.output, self.stop, self.error = output, threading.Event(), None
        self._plan = make_plan(parse_config(config), probe(source), output, device="cpu")
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            render(self._plan, overwrite=False, journal=Journal(), stop=self.stop)
        except BaseException as error:  # noqa: BLE001  whatever it is, the test looks at it
            self.error = error

    def finish(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the run hangs"
        return self.error

    def left_nothing(self) -> None:
        assert not list(self.output.parent.iterdir())
        assert str(self._plan.source.path.resolve()) not in open_files()
        assert not [t.name for t in threading.enumerate() if t.name.startswith(("runner", "encode"))]


class Gate:
    """Holds up a method of a class: calls after the first few wait until it is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, after: int = 0) -> None:
        self.open, self.reached, self.calls = threading.Event(), threading.Event(), 0
        method, gate = getattr(owner, name), self

        def call(*args: object) -> object:
            gate.calls += 1
            if gate.calls > after:
                gate.reached.set()
                gate.open.wait(PATIENCE)
            return method(*args)

        monkeypatch.setattr(owner, name, call)


@pytest.fixture(scope="module")
def expected(clip: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    output = tmp_path_factory.mktemp("expected") / "one.mkv"
    assert Run(clip, output, {**CONFIG, "segments": "off"}).finish() is None
    assert len(pictures(output)) == 240
    return pictures(output)


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        (Muxer, "write_video", 0),
        (Muxer, "write_video", 40),
        (LibavEncoder, "encode", 5),
        (LibavEncoder, "finish", 1),
        (LibavDecoder, "decode", 30),
        (Muxer, "write_copied", 3),
    ],
)
def test_a_stall_holds_up_and_loses_nothing(
    clip: Path, tmp_path: Path, boards: list[Board], expected, monkeypatch, owner: type, name: str, after: int
) -> None:
    gate = Gate(monkeypatch, owner, name, after)
    run = Run(clip, tmp_path / "x.mkv")
    assert gate.reached.wait(PATIENCE)
    patience.settled(lambda: boards[0]._waiting)
    assert boards[0]._waiting < MOST
    assert boards[0]._taken <= boards[0]._written + 2 * SESSIONS
    assert not (tmp_path / "x.mkv").exists()
    gate.open.set()
    assert run.finish() is None
    assert pictures(tmp_path / "x.mkv") == expected


def test_a_stalled_writer_stops_the_decoders(clip: Path, tmp_path: Path, boards: list[Board], monkeypatch) -> None:
    gate = Gate(monkeypatch, Muxer, "write_video", 10)
    count = Gate(monkeypatch, LibavEncoder, "encode", 10**9)
    run = Run(clip, tmp_path / "x.mkv")
    assert gate.reached.wait(PATIENCE)
    patience.until(lambda: boards[0]._waiting >= LIMIT)
    encoded = patience.settled(lambda: count.calls)
    assert encoded < 120  # of 240: the rest waits for room
    assert boards[0]._waiting >= LIMIT
    gate.open.set()
    assert run.finish() is None
    assert count.calls == 240


def test_a_stop_while_everything_is_full(clip: Path, tmp_path: Path, boards: list[Board], monkeypatch) -> None:
    gate = Gate(monkeypatch, Muxer, "write_video", 10)
    run = Run(clip, tmp_path / "x.mkv")
    assert gate.reached.wait(PATIENCE)
    patience.until(lambda: boards[0]._waiting >= LIMIT)
    patience.settled(lambda: boards[0]._waiting)
    run.stop.set()
    gate.open.set()
    assert isinstance(run.finish(), StoppedError)
    run.left_nothing()


def test_a_stop_while_an_encoder_stalls_waits_for_its_lane_only(
    clip: Path, tmp_path: Path, boards: list[Board], monkeypatch
) -> None:
    """A library cannot be interrupted; the run ends with its call, and starts nothing more."""
    gate = Gate(monkeypatch, LibavEncoder, "encode", 30)
    run = Run(clip, tmp_path / "x.mkv")
    assert gate.reached.wait(PATIENCE)
    run.stop.set()
    patience.until(lambda: boards[0]._crew.halted)
    held = gate.calls
    gate.open.set()
    assert isinstance(run.finish(), StoppedError)
    assert gate.calls <= held + SESSIONS
    run.left_nothing()


def test_a_stop_before_anything(clip: Path, tmp_path: Path, monkeypatch) -> None:
    made = threading.Event()
    start = segmented.start_lanes

    def stopped(*args: object, **more: object) -> object:
        run_stop = args[-1]
        run_stop.set()
        made.set()
        return start(*args, **more)

    monkeypatch.setattr(segmented, "start_lanes", stopped)
    run = Run(clip, tmp_path / "x.mkv")
    assert isinstance(run.finish(), StoppedError)
    assert made.is_set()
    run.left_nothing()


DEATHS = {
    "opening": (runner, "make_decoder", 1),
    "reading": (reading.Pieces, "read", 2),
    "decode": (LibavDecoder, "decode", 30),
    "decoder-restart": (LibavDecoder, "restart", 1),
    "encode": (LibavEncoder, "encode", 30),
    "finish": (LibavEncoder, "finish", 1),
    "template": (LibavEncoder, "template", 0),
    "header": (Muxer, "add_video", 0),
    "writer": (Muxer, "write_video", 20),
    "copied": (Muxer, "write_copied", 5),
    "trailer": (Muxer, "close", 0),
    "first-picture": (LibavDecoder, "decode", 0),
}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("lane", DEATHS)
def test_a_death_anywhere_is_the_runs_own_error(
    clip: Path, tmp_path: Path, boards: list[Board], monkeypatch, lane: str, full: bool
) -> None:
    """`full`: the writer is slow, so that runners wait for room when it happens."""
    owner, name, after = DEATHS[lane]
    method, calls = getattr(owner, name), []

    def die(*args: object) -> object:
        calls.append(name)
        if len(calls) > after:
            raise BoomError(lane)
        return method(*args)

    monkeypatch.setattr(owner, name, die)
    if full:
        write = Muxer.write_video
        monkeypatch.setattr(Muxer, "write_video", lambda *args: (time.sleep(0.005), write(*args))[1])
    run = Run(clip, tmp_path / "x.mkv")
    error = run.finish()
    assert isinstance(error, BoomError)
    assert str(error) == lane
    run.left_nothing()


def test_what_a_dead_run_held_is_free_before_its_error_is_gone(clip: Path, tmp_path: Path, monkeypatch) -> None:
    """A collection may be many jobs away."""
    made: list[weakref.ref[object]] = []
    lane, work, calls = segmented.Runner, LibavDecoder.decode, []

    def runner_of(*args: object) -> object:
        one = lane(*args)
        made.append(weakref.ref(one))
        return one

    def die(*args: object) -> object:
        calls.append(1)
        if len(calls) > 30:
            raise BoomError
        return work(*args)

    monkeypatch.setattr(segmented, "Runner", runner_of)
    monkeypatch.setattr(LibavDecoder, "decode", die)
    with no_collection():
        error = Run(clip, tmp_path / "x.mkv").finish()
        assert isinstance(error, BoomError)
        assert [one() for one in made] == [None] * SESSIONS
