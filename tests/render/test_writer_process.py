"""The output written by a process of its own is the one written here, and what goes wrong there is told here."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import subprocess
import threading
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.codecs.described import described
from gpupipe.config import parse_config
from gpupipe.errors import MediaError, StoppedError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render, writer_process
from gpupipe.render.slabs import SLAB, Slabs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpupipe.plan import Plan

PRORES = {"codec": "prores", "encoder": "prores_torch"}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory, ffmpeg: Callable[..., None]) -> Path:
    """A second with B-frames and sound."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x90:r=24:d=1", "-f", "lavfi", "-i", "sine=d=1", "-c:v", "libx264",
           "-x264-params", "keyint=6:scenecut=0:bframes=2", "-c:a", "aac", path)  # fmt: skip
    return path


@pytest.fixture(autouse=True)
def _few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_process, "SESSIONS", 2)


def planned(clip: Path, output: Path, waiting: int = 8 * SLAB) -> Plan:
    config = {"output": {"video": PRORES, "audio": "copy"}, "segments": {"seconds": 0.25}, "sessions": 2}
    plan = make_plan(parse_config(config), probe(clip), output, device="cpu")
    assert len(plan.segments) == 4
    assert plan.sessions == 2
    return dataclasses.replace(plan, waiting_bytes=waiting)


def carried_out(plan: Plan, stop: threading.Event | None = None, progress=lambda _: None) -> Journal:
    journal = Journal()
    render(plan, overwrite=False, journal=journal, stop=stop or threading.Event(), progress=progress)
    return journal


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen]:
    """Every process that was started to write."""
    found: list[subprocess.Popen] = []
    begin = subprocess.Popen

    def noted(*args, **more):
        found.append(begin(*args, **more))
        return found[-1]

    monkeypatch.setattr(writer_process.subprocess, "Popen", noted)
    return found


@pytest.mark.parametrize("waiting", [8 * SLAB, SLAB])
@pytest.mark.parametrize("share", [1 / 8, 1e-6])
def test_the_file_is_the_one_that_a_thread_writes(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list, waiting: int, share: float
) -> None:
    """With room for all that waits and with too little, which is then sent; and where the writer is waited for."""
    monkeypatch.setattr(writer_process, "ON_THE_WAY", share)
    apart, here = tmp_path / "apart.mov", tmp_path / "here.mov"
    assert len(carried_out(planned(clip, apart, waiting))) == 0
    assert [one.wait(5) for one in started] == [0]
    monkeypatch.setattr(writer_process, "suits", lambda *_: False)
    carried_out(planned(clip, here))
    assert len(started) == 1
    assert apart.read_bytes() == here.read_bytes()
    with av.open(str(apart)) as file:
        assert [s.type for s in file.streams] == ["video", "audio"]
        assert sum(1 for _ in file.decode(video=0)) == 24


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_process_that_is_killed_is_an_error_and_leaves_nothing(
    clip: Path, tmp_path: Path, started: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_process, "ON_THE_WAY", 1e-6)

    def kill(_: object) -> None:
        os.kill(started[0].pid, signal.SIGKILL)

    with pytest.raises(MediaError, match=r"out\.mov: the process that writes it ended with code -9 \(run it again\)"):
        carried_out(planned(clip, tmp_path / "out.mov"), progress=kill)
    assert left(tmp_path) == []


def test_what_the_system_says_there_is_said_here(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = subprocess.Popen

    def limited(*args, **more):
        return begin(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000,) * 2), **more)

    monkeypatch.setattr(writer_process.subprocess, "Popen", limited)
    with pytest.raises(MediaError, match=r"out\.mov: the file grew beyond what the system allows"):
        carried_out(planned(clip, tmp_path / "out.mov"))
    assert left(tmp_path) == []


def test_a_run_that_is_stopped_ends_it(clip: Path, tmp_path: Path, started: list) -> None:
    stop = threading.Event()
    with pytest.raises(StoppedError):
        carried_out(planned(clip, tmp_path / "out.mov"), stop, progress=lambda _: stop.set())
    assert started[0].wait(5) != 0
    assert left(tmp_path) == []


def test_whoever_started_it_is_gone(clip: Path, tmp_path: Path, started: list) -> None:
    path = tmp_path / "out.mov"
    path.touch()
    writer = writer_process.WriterProcess(planned(clip, path), path, Slabs(SLAB), Journal(), threading.Event())
    writer._here.close()
    assert started[0].wait(20) == 1
    assert left(tmp_path) == []


def test_one_that_cannot_be_started_is_done_without(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(writer_process.subprocess, "Popen", refused)
    carried_out(planned(clip, tmp_path / "out.mov"))
    assert left(tmp_path) == ["out.mov"]


def test_what_it_notices_is_in_the_runs_journal(clip: Path, tmp_path: Path) -> None:
    """Times that do not rise, say: they are moved, and that is told with its place."""
    plan, journal = planned(clip, tmp_path / "out.mov"), Journal()
    carried_out(plan)
    with av.open(str(plan.output)) as file:
        packets = [packet for packet in file.demux(video=0) if packet.size]
    for packet in packets:
        packet.pts = packet.dts = round(packet.pts * packet.time_base / plan.encoder.time_base)
    packets[2].pts = packets[2].dts = packets[1].dts
    writer = writer_process.WriterProcess(plan, tmp_path / "again.mov", Slabs(SLAB), journal, threading.Event())
    writer.begin(lambda _: None, packets)
    writer.write(packets)
    writer.close()
    writer.abort()
    (entry,) = journal.entries.values()
    assert (entry.code, entry.count, len(entry.places)) == ("dts-repaired", 1, 1)
    assert left(tmp_path) == ["again.mov", "out.mov"]


@pytest.mark.parametrize("pixels", ["yuvj420p", "yuvj422p", "yuvj444p"])
def test_a_jpeg_says_what_it_is(clip: Path, tmp_path: Path, pixels: str) -> None:
    made = av.CodecContext.create("mjpeg", "w")
    made.width, made.height, made.pix_fmt, made.time_base = 322, 182, pixels, Fraction(1, 24)
    frame = av.VideoFrame(322, 182, pixels)
    for plane in frame.planes:
        plane.update(bytes(plane.buffer_size))
    first = bytes(made.encode(frame)[0])
    settings = dataclasses.replace(planned(clip, tmp_path / "out.mov").encoder, codec="mjpeg", encoder="nvjpeg")
    stream, _scratch = described(settings, first)
    context = stream.codec_context
    assert (context.name, context.width, context.height, context.pix_fmt) == ("mjpeg", 322, 182, pixels)
    assert (int(context.color_range), int(context.colorspace)) == (2, 5)
