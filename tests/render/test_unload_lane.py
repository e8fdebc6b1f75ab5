"""Encoders on the CPU behind a GPU: their lane copies nothing and waits for nothing that could have been done before."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
import torch
from patience import LIMIT, until

from gpupipe.codecs import native
from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.libav import LibavEncoder
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.config import parse_config
from gpupipe.device.cuda import PinnedRing
from gpupipe.errors import MediaError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch
from gpupipe.journal import Journal
from gpupipe.media.mux import Muxer
from gpupipe.media.output import OutputFile
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.model import Step
from gpupipe.render import device_runner, render, unload_lane
from gpupipe.render.board import Board, Part
from gpupipe.render.encode_lane import EncodeLane, Job
from gpupipe.render.lanes import Channel, Crew
from gpupipe.render.sessions import EncoderSessions
from gpupipe.render.unload_lane import AHEAD, UnloadLane
from gpupipe.render.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpupipe.plan import Plan

ROWS, SLOTS = 4, 3
LAST = 3
"""Pictures of the last batch."""
FULL = ColorSpec(Matrix.BT470BG, 1, 1, Range.FULL)
ENCODERS = {
    "x264": ("h264", "libx264", FrameFormat(PIXEL_FORMATS["nv12"], 130, 66)),
    "x265 in 10 bits": ("hevc", "libx265", FrameFormat(PIXEL_FORMATS["yuv420p10le"], 130, 66)),
    "FFV1 with alpha": ("ffv1", "ffv1", FrameFormat(PIXEL_FORMATS["yuv444p"], 66, 34, alpha=8)),
    "ProRes": ("prores", "prores_ks", FrameFormat(PIXEL_FORMATS["yuv422p10le"], 130, 66)),
    "JPEG": ("mjpeg", "mjpeg", FrameFormat(PIXEL_FORMATS["yuv422p"], 130, 66, FULL)),
}


class BoomError(Exception):
    pass


def settings_of(name: str) -> EncoderSettings:
    codec, encoder, source = ENCODERS[name]
    preset = "veryfast" if encoder.startswith("libx26") else None
    return EncoderSettings(codec, encoder, source, Fraction(1, 25), Fraction(25), None, None, preset)


def batches(source: FrameFormat, count: int) -> list[FrameBatch]:
    """`count` batches of pictures that move, the last of them short; fewer pictures than rows, as slots have it."""
    random, made = np.random.default_rng(1), []
    for n in range(count):
        planes = []
        for shape in source.plane_shapes:
            wide = source.pixels.depth > 8
            coarse = random.integers(
                0, 1 << source.pixels.depth, (ROWS, 6, 6, 1), dtype=np.uint16 if wide else np.uint8
            )
            smooth = np.repeat(np.repeat(coarse, 32, 1), 32, 2)[:, : shape[0], : shape[1]]
            plane = np.repeat(smooth, shape[2], 3) if len(shape) == 3 else smooth[..., 0]
            planes.append(torch.from_numpy(np.ascontiguousarray(plane)))
        valid = LAST if n == count - 1 else ROWS
        pts = tuple(range(n * ROWS, n * ROWS + valid))
        made.append(FrameBatch(source, pts, Fraction(1, 25), tuple(planes), durations=(1,) * valid))
    return made


class Run:
    """A runner's place is taken by the test, which puts jobs; all behind it is real, but on the CPU."""

    def __init__(self, settings: EncoderSettings, stack: ExitStack, make: Callable | None = None) -> None:
        self.crew = Crew()
        segment = SimpleNamespace(frames=0)
        self.board = Board(self.crew, (segment,), 2)
        self.encoders = EncoderSessions(make or (lambda _: LibavEncoder(settings)), self.board, self.crew, None)
        step = SimpleNamespace(kind="download", source=settings.input_format)
        self.plan = SimpleNamespace(device="cpu", steps=(step,), batch=ROWS, encoder=settings)
        self.jobs: Channel[Job] = Channel(self.crew, SLOTS + 1)
        self.pictures: Channel[Job] = Channel(self.crew, AHEAD, "pictures on the host")
        self.freed: list[int] = []
        unload = UnloadLane(self.plan, self.board, self.jobs, self.pictures)
        encode = EncodeLane(self.plan, self.board, self.pictures, self.encoders)
        stack.enter_context(self.crew)
        self.crew.start("unload-0", unload.work)
        self.crew.start("encode-0", encode.work)

    def feed(self, made: list[FrameBatch]) -> None:
        """From a lane of its own, as a runner does; every batch has a slot of its own here."""

        def run() -> None:
            index = self.board.take()
            assert index == 0
            for n, batch in enumerate(made):
                self.jobs.put(Job(index, n, batch, lambda n=n: self.freed.append(n)))
            self.jobs.put(Job(index, len(made)))
            self.jobs.close()

        self.crew.start("runner-0", run)

    def parts(self) -> list[Part]:
        return [part for _, part in self.board.in_order(threading.Event())]


@pytest.mark.parametrize("name", ENCODERS)
def test_what_comes_out_is_what_the_encoder_makes_of_the_batches(name: str) -> None:
    settings = settings_of(name)
    made, encoder = batches(settings.input_format, 6), LibavEncoder(settings)
    wanted = [packet for batch in made for packet in encoder.encode(batch)] + encoder.finish()
    with ExitStack() as stack:
        run = Run(settings, stack)
        run.feed(made)
        parts = run.parts()
    assert [part.pts for part in parts] == [*(batch.pts for batch in made), ()]
    got = [packet for part in parts for packet in part.packets]
    assert [(p.pts, p.dts, p.duration, bytes(p)) for p in got] == [(p.pts, p.dts, p.duration, bytes(p)) for p in wanted]
    assert len(got) == 5 * ROWS + LAST
    assert run.freed == list(range(6))


@pytest.mark.parametrize("name", ENCODERS)
def test_the_encoders_lane_copies_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, copying, encoding = settings_of(name), set(), []
    new_frame, planes_of, encode = native.new_frame, native.planes_of, LibavEncoder.encode

    def noted(function: Callable) -> Callable:
        def call(*args: object) -> object:
            copying.add(threading.current_thread().name)
            return function(*args)

        return call

    def encoded(self: LibavEncoder, batch: FrameBatch) -> list:
        encoding.append((threading.current_thread().name, batch.valid, batch.native.format.name, batch.planes))
        return encode(self, batch)

    for module in (native, unload_lane):
        monkeypatch.setattr(module, "new_frame", noted(new_frame))
    monkeypatch.setattr(native, "planes_of", noted(planes_of))
    monkeypatch.setattr(LibavEncoder, "encode", encoded)
    encoder = LibavEncoder(settings)
    with ExitStack() as stack:
        run = Run(settings, stack)
        run.feed(batches(settings.input_format, 3))
        run.parts()
    assert copying == {"unload-0"}
    assert encoding == [("encode-0", 1, encoder._context.pix_fmt, ())] * (2 * ROWS + LAST)


def test_the_next_pictures_are_there_while_one_is_encoded() -> None:
    """As many as may wait, though the encoder has not given its first one back: it never waits for a copy or the GPU."""
    settings, freed = settings_of("x264"), []

    class Slow(LibavEncoder):
        def encode(self, batch: FrameBatch) -> list:
            if batch.pts == (0,):
                until(lambda: len(run.pictures._items) == AHEAD and len(run.freed) == 1 + -(-AHEAD // ROWS))
                freed.extend(run.freed)
            return super().encode(batch)

    with ExitStack() as stack:
        run = Run(settings, stack, lambda _: Slow(settings))
        run.feed(batches(settings.input_format, 8))
        assert sum(part.frames for part in run.parts()) == 7 * ROWS + LAST
    assert freed == [0, 1, 2]  # one picture is encoded, eight wait, and what holds the tenth is on the host too


def test_no_more_wait_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, gate, made = settings_of("x264"), threading.Event(), []
    new_frame = unload_lane.new_frame
    monkeypatch.setattr(unload_lane, "new_frame", lambda *args: made.append(1) or new_frame(*args))

    class Stalled(LibavEncoder):
        def encode(self, batch: FrameBatch) -> list:
            assert gate.wait(LIMIT)
            return super().encode(batch)

    with ExitStack() as stack:
        stack.callback(gate.set)
        run = Run(settings, stack, lambda _: Stalled(settings))
        run.feed(batches(settings.input_format, 10))
        until(lambda: len(made) == AHEAD + 2)  # one at the encoder, one that waits for room
        until(lambda: len(run.jobs._items) == SLOTS + 1)
        assert (len(made), len(run.freed)) == (AHEAD + 2, 3)
        gate.set()
        assert sum(part.frames for part in run.parts()) == 9 * ROWS + LAST


@pytest.mark.parametrize("where", ["download", "frame", "encode"])
def test_a_death_is_the_runs_own_error(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of("x264")

    def die(*_: object) -> None:
        raise BoomError(where)

    owner, name = {"download": (PinnedRing, "download"), "frame": (unload_lane, "new_frame"),
                   "encode": (LibavEncoder, "encode")}[where]  # fmt: skip
    monkeypatch.setattr(owner, name, die)
    with ExitStack() as stack:
        run = Run(settings, stack)
        run.feed(batches(settings.input_format, 10))
        with pytest.raises(BoomError, match=where):
            run.parts()
    assert not [thread for thread in run.crew._threads if thread.is_alive()]


class Pretended:
    """Stands in for a `DeviceRunner`: decodes on the CPU into batches, as slots hold them."""

    def __init__(self, plan: Plan, board: Board, jobs: Channel[Job], _: object, **__: object) -> None:
        self._plan, self._board, self._jobs = plan, board, jobs

    def open(self) -> None:
        pass

    def render(self, index: int) -> None:
        source, base = self._plan.encoder.input_format, self._plan.encoder.time_base
        number, waiting = 0, []
        with av.open(str(self._plan.source.path)) as container:
            for picture in container.decode(video=0):
                waiting.append((picture.pts, native.planes_of(FrameBatch(source, (0,), base, native=picture))))
                if len(waiting) == ROWS:
                    self._put(index, number, waiting)
                    number, waiting = number + 1, []
        if waiting:
            self._put(index, number, waiting)
        self._jobs.put(Job(index, number + bool(waiting)))

    def _put(self, index: int, number: int, pictures: list) -> None:
        pts, planes = zip(*pictures, strict=True)
        whole = tuple(torch.cat(same) for same in zip(*planes, strict=True))
        base = self._plan.encoder.time_base
        self._jobs.put(Job(index, number, FrameBatch(self._plan.encoder.input_format, pts, base, whole)))

    def close(self) -> None:
        pass


@pytest.fixture
def pretended(tmp_path: Path, ffmpeg, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan for a pretended GPU: from `clip.mkv` to `out.mkv`."""
    clip, out = tmp_path / "clip.mkv", tmp_path / "out.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=130x66:r=25:d=1", "-c:v", "ffv1", "-pix_fmt", "yuv420p", clip)
    plan = make_plan(parse_config({"output": {"video": {"codec": "ffv1"}}}), probe(clip), out, device="cpu")
    source = plan.encoder.input_format
    compute = SimpleNamespace(chain=SimpleNamespace(choices=()))
    monkeypatch.setattr(device_runner.Compute, "of", lambda *_: compute)
    monkeypatch.setattr(device_runner, "DeviceRunner", Pretended)
    return replace(plan, decoder="nvdec", steps=(Step("download", "download", source, source),), batch=ROWS)


def test_a_run_has_them_between_runner_and_encoder(pretended: Plan, tmp_path: Path, ffmpeg) -> None:
    clip, out = tmp_path / "clip.mkv", tmp_path / "out.mkv"
    watch = Watch()
    result = render(pretended, overwrite=False, journal=Journal(), stop=threading.Event(), watch=watch)
    assert result.frames == 25
    assert {lane.name for lane in watch.read().lanes} == {"writer", "runner-0", "unload-0", "encode-0"}

    def hashes(path: Path) -> list[str]:
        told = path.with_suffix(".md5")
        ffmpeg("-i", path, "-f", "framemd5", told)
        return [line for line in told.read_text().splitlines() if line[0] != "#"]

    assert hashes(out) == hashes(clip)
    assert len(hashes(out)) == 25


class BadlyClosed(Pretended):
    def close(self) -> None:
        raise BoomError("the driver is gone")


def test_a_file_that_has_its_name_is_no_failure(
    pretended: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoders are closed after that, and their errors are told."""
    monkeypatch.setattr(device_runner, "DeviceRunner", BadlyClosed)
    journal, shown = Journal(), []
    result = render(pretended, overwrite=False, journal=journal, stop=threading.Event(), progress=shown.append)
    assert result.frames == 25
    assert "the driver is gone" in str(journal.entries["close-error"])
    assert sorted(one.name for one in tmp_path.iterdir() if not one.name.startswith("clip")) == ["out.mkv"]
    assert [(now.frames, now.total) for now in shown][-1] == (25, 25)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("unload", "encode"))]


@pytest.mark.parametrize("where", ["close", "commit"])
def test_a_file_that_never_got_its_name_is_a_failure(
    pretended: Plan, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the first error is the one that is told, though closing fails as well."""

    def die(*_: object) -> None:
        raise MediaError("no space left")

    owner = {"close": Muxer, "commit": OutputFile}[where]
    monkeypatch.setattr(owner, where, die)
    with pytest.raises(MediaError, match="no space left"):
        render(pretended, overwrite=False, journal=Journal(), stop=threading.Event())
    assert [one.name for one in tmp_path.iterdir()] == ["clip.mkv"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("unload", "encode"))]
