"""The output written by a process of its own is the one written here, and what goes wrong there is told here."""

from __future__ import annotations

import dataclasses
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.codecs.described import described
from gpupipe.codecs.intra import Placed
from gpupipe.config import parse_config
from gpupipe.errors import MediaError, StoppedError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import another_python, render, runner, segmented, writer_process
from gpupipe.render.slabs import SLAB, Slabs
from gpupipe.render.writer import DirectWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpupipe.plan import Plan

PRORES = {"codec": "prores", "encoder": "prores_torch"}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory, ffmpeg: Callable[..., None]) -> Path:
    """A second with B-frames and sound."""
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x64:r=24:d=1", "-f", "lavfi", "-i", "sine=d=1", "-c:v", "libx264",
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


@pytest.fixture(scope="module")
def written_here(clip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same by a thread of this process."""
    path = tmp_path_factory.mktemp("here") / "here.mov"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_process, "SESSIONS", 1 << 30)
        carried_out(planned(clip, path))
    return path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen]:
    """Every process that was started to write."""
    found: list[subprocess.Popen] = []
    begin = subprocess.Popen

    def noted(*args, **more):
        found.append(begin(*args, **more))
        return found[-1]

    monkeypatch.setattr(another_python.subprocess, "Popen", noted)
    return found


def opened(
    plan: Plan, path: Path, journal: Journal, stop: threading.Event | None = None
) -> writer_process.WriterProcess:
    return writer_process.WriterProcess(
        plan, path, Slabs(SLAB), journal=journal, stop=stop or threading.Event(), here=lambda: pytest.fail("it began")
    )


@pytest.mark.parametrize(("waiting", "share"), [(8 * SLAB, 1 / 8), (SLAB, 1e-6)])
def test_the_file_is_the_one_that_a_thread_writes(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list, waiting: int, share: float,
    written_here: Path,
) -> None:  # fmt: skip
    """With room for all that waits and with too little, which is then sent; and where the writer is waited for."""
    monkeypatch.setattr(writer_process, "ON_THE_WAY", share)
    apart = tmp_path / "apart.mov"
    assert len(carried_out(planned(clip, apart, waiting))) == 0
    assert [one.wait(5) for one in started] == [0]
    assert apart.read_bytes() == written_here.read_bytes()
    with av.open(str(apart)) as file:
        assert [s.type for s in file.streams] == ["video", "audio"]
        assert sum(1 for _ in file.decode(video=0)) == 24


def packets_of(plan: Plan, path: Path) -> list:
    """Of a file that was written, as its encoder gave them."""
    base = plan.encoder.time_base
    with av.open(str(path)) as file:
        packets = [packet for packet in file.demux(video=0) if packet.size]
    for packet in packets:
        packet.pts = packet.dts = round(packet.pts * packet.time_base / base)
        packet.duration, packet.time_base = round(packet.duration * packet.time_base / base), base
    return packets


def placed(packet: av.Packet) -> Placed:
    made = Placed(-1, memoryview(bytes(packet)))
    for name in ("pts", "dts", "duration", "time_base", "is_keyframe"):
        setattr(made, name, getattr(packet, name))
    return made


def test_pictures_that_libav_holds_back_stay_as_they_were(corpus: Path, tmp_path: Path, started: list) -> None:
    """A track that has few packets makes it wait with those of the video, while lanes fill the slabs anew."""
    source, files = corpus / "files" / "gopro_tmcd_timecode_gpmf_data.mp4", []
    for waiting in (2 * SLAB, 0):
        config = {
            "stages": [{"resize": {"width": 96, "height": 54}}], "output": {"video": PRORES}, "resume": "off",
            "segments": {"seconds": 0.1}, "sessions": 2,
        }  # fmt: skip
        files.append(tmp_path / f"{waiting}.mov")
        plan = make_plan(parse_config(config), probe(source), files[-1], device="cpu")
        carried_out(dataclasses.replace(plan, waiting_bytes=waiting))
    assert len(started) == 1
    assert files[0].read_bytes() == files[1].read_bytes()


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_process_that_is_killed_is_an_error_and_leaves_nothing(
    clip: Path, tmp_path: Path, started: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_process, "ON_THE_WAY", 1e-6)

    def kill(_: object) -> None:
        os.kill(started[0].pid, signal.SIGKILL)

    with pytest.raises(MediaError, match=r"out\.mov: the process that writes it ended with code -9 \(run it again; "):
        carried_out(planned(clip, tmp_path / "out.mov"), progress=kill)
    assert left(tmp_path) == []


def test_what_the_system_says_there_is_said_here(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = subprocess.Popen

    def limited(*args, **more):
        return begin(*args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000,) * 2), **more)

    monkeypatch.setattr(another_python.subprocess, "Popen", limited)
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
    writer = opened(planned(clip, path), path, Journal())
    writer._pipe.close()
    assert started[0].wait(20) == 1
    assert left(tmp_path) == []


def refused(*_: object, **__: object) -> None:
    raise BlockingIOError("no more processes")


@contextmanager
def small_files() -> Iterator[None]:
    """As `ulimit -f` says it: memory that is a file counts too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SLAB // 2, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


HINDRANCES: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "no more processes": lambda patch: patch.setattr(another_python.subprocess, "Popen", refused),
    "no memory of two": lambda patch: patch.setattr(os, "memfd_create", refused),
    "small files": lambda _: small_files(),
    "no interpreter": lambda patch: patch.setattr(sys, "executable", None),
    "standard streams closed": lambda patch: patch.setattr(another_python, "_FIRST", 1 << 20),
    "another program": lambda patch: patch.setattr(sys, "executable", "/bin/false"),
    "a program that waits": lambda patch: (
        patch.setattr(writer_process, "_CODE", "import time; time.sleep(99)"),
        patch.setattr(writer_process, "START", 0.1),
    ),
    "a plan it cannot read": lambda patch: patch.setattr(writer_process, "dump", lambda _: {}),
}


@pytest.mark.parametrize("hindrance", HINDRANCES)
def test_where_it_does_not_begin_this_process_writes(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_here: Path, hindrance: str
) -> None:
    what = HINDRANCES[hindrance](monkeypatch)
    path = tmp_path / "out.mov"
    plan = planned(clip, path)
    packets = packets_of(plan, written_here)
    scratch = []

    def template(_: object) -> av.VideoStream:
        scratch.append(described(plan.encoder, bytes(packets[0])))
        return scratch[0][0]

    with ExitStack() as stack:
        if isinstance(what, AbstractContextManager):
            stack.enter_context(what)
        slabs = Slabs(SLAB)
        writer = segmented._writer(plan, path, slabs, stack, journal=Journal(), stop=threading.Event())
        if slabs.apart:
            packets = [placed(packet) for packet in packets]
        writer = writer.begin(template, packets)
        assert isinstance(writer, DirectWriter)
        assert not slabs.apart
        writer.write(packets)
        writer.close()
    assert left(tmp_path) == ["out.mov"]
    assert path.read_bytes() == written_here.read_bytes()


def test_it_finds_modules_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative names mean what they meant when this process began, and what is no text means nothing."""
    monkeypatch.setattr(sys, "path", ["", "lib\udcff", tmp_path, *sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "signal.py").write_text("raise SystemExit(9)")
    found = another_python.modules()
    assert found[:2] == [f"{another_python.ORIGINAL_DIR}/", f"{another_python.ORIGINAL_DIR}/lib\udcff"]
    assert tmp_path not in found
    here, there = os.pipe()
    one = another_python.start("import signal, gpupipe, os; os.write(int(sys.argv[1]), b'begun')", (there,))
    os.close(there)
    try:
        assert os.getsid(one.pid) == one.pid, "Ctrl-C in a terminal would reach it"
        assert one.wait(20) == 0
        assert os.read(here, 9) == b"begun"
    finally:
        os.close(here)


@pytest.fixture
def slow_to_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file of many gigabytes on a slow volume."""
    slow = "import time; from gpupipe.render.writer import DirectWriter as W\nW.close = lambda self: time.sleep(99)\n"
    monkeypatch.setattr(writer_process, "_CODE", slow + writer_process._CODE)


def test_where_memory_is_short_the_same_process_goes_on(
    clip: Path, tmp_path: Path, started: list, written_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the third segment is written, and comes once more; nothing of it is lost or given twice."""
    monkeypatch.setattr(runner, "PART", 2)
    deliver, failed = runner.Runner._deliver, []

    def short(self, index: int, number: int, *more) -> None:
        if (index, number) == (2, 2) and not failed:
            time.sleep(0.5)  # what is before it is written
            failed.append(index)
            raise MemoryError
        deliver(self, index, number, *more)

    monkeypatch.setattr(runner.Runner, "_deliver", short)
    path = tmp_path / "out.mov"
    carried_out(planned(clip, path))
    assert failed
    assert [one.wait(5) for one in started] == [0]
    assert path.read_bytes() == written_here.read_bytes()


@pytest.mark.usefixtures("slow_to_close")
def test_a_run_is_stopped_while_the_file_is_made_whole(
    clip: Path, tmp_path: Path, started: list, written_here: Path
) -> None:
    path, stop = tmp_path / "out.mov", threading.Event()
    writer = opened(planned(clip, path), path, Journal(), stop)
    packets = packets_of(planned(clip, path), written_here)
    writer.begin(lambda _: None, packets).write(packets)
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(StoppedError):
        writer.close()
    assert left(tmp_path) == ["out.mov"]
    writer.abort()
    assert started[0].poll() == -signal.SIGKILL
    assert left(tmp_path) == []


@pytest.mark.usefixtures("slow_to_close")
def test_whoever_started_it_is_gone_while_the_file_is_made_whole(
    clip: Path, tmp_path: Path, started: list, written_here: Path
) -> None:
    path = tmp_path / "out.mov"
    writer = opened(planned(clip, path), path, Journal())
    packets = packets_of(planned(clip, path), written_here)
    writer.begin(lambda _: None, packets).write(packets)
    writer._send(b"")
    writer._pipe.close()
    assert started[0].wait(20) == 1
    assert left(tmp_path) == []


def test_no_file_stays_open(clip: Path, tmp_path: Path, written_here: Path) -> None:
    def once() -> int:
        path = tmp_path / "out.mov"
        writer = opened(planned(clip, path), path, Journal())
        writer.begin(lambda _: None, packets).write(packets)
        writer.close()
        writer.abort()
        del writer
        gc.collect()
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    packets = packets_of(planned(clip, tmp_path / "out.mov"), written_here)
    assert once() == once()


def test_what_it_notices_is_in_the_runs_journal(clip: Path, tmp_path: Path, written_here: Path) -> None:
    """Times that do not rise, say: they are moved, and that is told with its place."""
    plan, journal = planned(clip, tmp_path / "out.mov"), Journal()
    packets = packets_of(plan, written_here)
    packets[2].pts = packets[2].dts = packets[1].dts
    writer = opened(plan, plan.output, journal)
    assert writer.begin(lambda _: None, packets) is writer
    writer.write(packets)
    writer.close()
    writer.abort()
    (entry,) = journal.entries.values()
    assert (entry.code, entry.count, len(entry.places)) == ("dts-repaired", 1, 1)
    assert left(tmp_path) == ["out.mov"]


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
