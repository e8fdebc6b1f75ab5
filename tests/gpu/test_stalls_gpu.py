"""Lanes on the GPU that stall, die or are stopped: nothing hangs, nothing grows, the first error is the run's."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch
from patience import settled

from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.codecs.libav import LibavEncoder
from gpupipe.codecs.nvdec import NvdecDecoder
from gpupipe.config import parse_config
from gpupipe.device.cuda import PinnedRing
from gpupipe.device.slots import Slot
from gpupipe.errors import StoppedError
from gpupipe.journal import Journal
from gpupipe.media.mux import Muxer
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.memory import SLOTS
from gpupipe.render import render, segmented, unload_lane
from gpupipe.render.board import Board
from gpupipe.render.lanes import HaltedError

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan

pytestmark = pytest.mark.gpu

FRAMES, SESSIONS, SOON = 360, 2, 30
MJPEG = {"codec": "mjpeg", "encoder": "nvjpeg"}
FFV1 = {"codec": "ffv1", "options": {"level": 3}}
PACKET = 1000
"""Bytes that an encoder stands in with for each picture."""


class BoomError(Exception):
    pass


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 s in GOPs of a second."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    make_clip(path, replace(RECIPES["h264"], width=640, height=360, bitrate=1_000_000), FRAMES)
    return path


def plan_of(clip: Path, output: Path, video: dict) -> Plan:
    config = {"stages": [{"warp": {"rotate": 1}}], "segments": {"seconds": 1}, "sessions": SESSIONS,
              "output": {"video": video, "audio": "none"}}  # fmt: skip
    plan = make_plan(parse_config(config), probe(clip), output, device="cuda")
    assert (plan.decoder, plan.sessions, len(plan.segments)) == ("nvdec", SESSIONS, 12)
    return plan


class Standing:
    """Stands in for an encoder: waits where it is told to."""

    settings = None

    def __init__(self, gate: threading.Event, counted: list[int]) -> None:
        self._gate, self._counted = gate, counted

    def encode(self, batch: FrameBatch) -> list[SimpleNamespace]:
        self._gate.wait(SOON)
        batch.ready.synchronize()
        self._counted.append(batch.valid)
        return [SimpleNamespace(size=PACKET)] * batch.valid

    def finish(self) -> list[SimpleNamespace]:
        return []

    def close(self) -> None:
        pass


def lanes_left() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(("runner", "unload", "encode"))]


def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every surface that is taken from a decoder."""
    taken, method = [], Slot.copy

    def copy(*args: object) -> None:
        taken.append(1)
        method(*args)

    monkeypatch.setattr(Slot, "copy", copy)
    return taken


def test_a_stalled_encoder_stops_the_decoders_and_loses_nothing(clip: Path, tmp_path: Path, monkeypatch) -> None:
    plan, gate, encoded, taken = plan_of(clip, tmp_path / "x.mov", MJPEG), threading.Event(), [], copied(monkeypatch)
    with ExitStack() as stack:
        stop = threading.Event()
        board = segmented.start_lanes(plan, stack, Journal(), lambda _: Standing(gate, encoded), stop)
        assert settled(lambda: len(taken)) <= SESSIONS * SLOTS * plan.batch
        free = torch.cuda.mem_get_info()[0]
        assert not encoded
        time.sleep(0.3)
        assert torch.cuda.mem_get_info()[0] == free
        gate.set()
        assert sum(part.frames for _, part in board.in_order(stop)) == FRAMES == sum(encoded) == len(taken)
    assert not lanes_left()


def test_a_stalled_writer_stops_the_decoders_and_loses_nothing(clip: Path, tmp_path: Path, monkeypatch) -> None:
    plan, gate, encoded, taken = plan_of(clip, tmp_path / "x.mov", MJPEG), threading.Event(), [], copied(monkeypatch)
    gate.set()
    limit = 8 * PACKET
    monkeypatch.setattr(segmented, "Board", lambda *args, **more: Board(*args, limit=limit, **more))
    with ExitStack() as stack:
        stop = threading.Event()
        board = segmented.start_lanes(plan, stack, Journal(), lambda _: Standing(gate, encoded), stop)
        assert settled(lambda: len(taken)) < FRAMES
        assert limit <= board._waiting <= limit + SESSIONS * (SLOTS + 1) * plan.batch * PACKET
        assert sum(part.frames for _, part in board.in_order(stop)) == FRAMES
        assert board._waiting == 0
    assert not lanes_left()


@pytest.mark.parametrize("full", ["encoder", "writer"])
def test_a_stop_while_everything_is_full(clip: Path, tmp_path: Path, monkeypatch, full: str) -> None:
    plan, gate, taken = plan_of(clip, tmp_path / "x.mov", MJPEG), threading.Event(), copied(monkeypatch)
    if full == "writer":
        gate.set()
        monkeypatch.setattr(segmented, "Board", lambda *args, **more: Board(*args, limit=8 * PACKET, **more))
    with ExitStack() as stack:
        stop = threading.Event()
        board = segmented.start_lanes(plan, stack, Journal(), lambda _: Standing(gate, []), stop)
        parts = board.in_order(stop)
        settled(lambda: len(taken))
        stop.set()
        with pytest.raises(StoppedError):
            next(parts)
        gate.set()  # a library's call cannot be interrupted: the lane ends with it
    assert not lanes_left()
    assert len(taken) < FRAMES


DEATHS = {
    "decode": (NvdecDecoder, "_decoded", 12, FFV1),
    "restart": (NvdecDecoder, "restart", 1, FFV1),
    "copy": (Slot, "copy", 40, FFV1),
    "compute": (Slot, "run", 3, FFV1),
    "download": (PinnedRing, "download", 2, FFV1),
    "frame": (unload_lane, "new_frame", 40, FFV1),
    "encode": (LibavEncoder, "encode", 3, FFV1),
    "finish": (LibavEncoder, "finish", 1, FFV1),
    "header": (Muxer, "add_video", 0, FFV1),
    "writer": (Muxer, "write_video", 10, FFV1),
    "trailer": (Muxer, "close", 0, FFV1),
    "nvjpeg": ("gpupipe.codecs.nvjpeg.NvjpegEncoder", "encode_into", 3, MJPEG),
}


@pytest.mark.parametrize("lane", DEATHS)
def test_a_death_anywhere_is_the_runs_own_error(clip: Path, tmp_path: Path, monkeypatch, lane: str) -> None:
    owner, name, after, video = DEATHS[lane]
    if isinstance(owner, str):
        from gpupipe.codecs.nvjpeg import NvjpegEncoder as owner  # noqa: N813, PLC0415  needs the GPU packages
    plan = plan_of(clip, tmp_path / "x.mov" if video is MJPEG else tmp_path / "x.mkv", video)
    method, calls = getattr(owner, name), []

    def die(*args: object, **more: object) -> object:
        calls.append(name)
        if len(calls) > after:
            raise BoomError(lane)
        return method(*args, **more)

    monkeypatch.setattr(owner, name, die)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
        except BaseException as error:  # noqa: BLE001  the test looks at it
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive(), "the run hangs"
    assert [type(error) for error in caught] == [BoomError], caught
    assert not isinstance(caught[0], HaltedError)
    assert str(caught[0]) == lane
    assert not list(tmp_path.iterdir())
    assert not lanes_left()


def test_a_slow_consumer_gets_the_same_frames(clip: Path, tmp_path: Path, monkeypatch) -> None:
    """Graph outputs are static: they must stay until the last copy of them is done, however late it comes."""
    render(plan_of(clip, tmp_path / "fast.mkv", FFV1), overwrite=False, journal=Journal(), stop=threading.Event())
    method = PinnedRing.download

    def late(ring: PinnedRing, batch: FrameBatch) -> FrameBatch:
        time.sleep(0.02)
        with ring._lane.active():
            torch.cuda._sleep(20_000_000)  # and the copy itself waits some milliseconds more
        return method(ring, batch)

    monkeypatch.setattr(PinnedRing, "download", late)
    render(plan_of(clip, tmp_path / "slow.mkv", FFV1), overwrite=False, journal=Journal(), stop=threading.Event())
    assert (tmp_path / "slow.mkv").stat().st_size == (tmp_path / "fast.mkv").stat().st_size
    import av  # noqa: PLC0415

    pictures = []
    for name in ("fast.mkv", "slow.mkv"):
        with av.open(str(tmp_path / name)) as container:
            pictures.append([(p.pts, bytes(p)) for p in container.demux(video=0) if p.size])
    assert pictures[0] == pictures[1]
    assert len(pictures[0]) == FRAMES
