"""Rows, their limits, and what is counted."""

from __future__ import annotations

import threading

import av
import numpy as np
import pytest
from bench_clips import STAGES

from gpupipe.bench.alone import encoder_alone, keep
from gpupipe.bench.cases import cases
from gpupipe.bench.check import compare
from gpupipe.bench.host_pipe import _Stages, host_pipe
from gpupipe.bench.measure import once
from gpupipe.codecs.libav import LibavEncoder
from gpupipe.config import VideoOutput
from gpupipe.errors import MediaError, PlanError, StoppedError
from gpupipe.journal import Journal
from gpupipe.render import render


def test_a_row_a_step(subject):
    rows = cases(subject(), [], 1, threading.Event())
    assert [row.name for row in rows] == [
        "decode", "convert", "warp", "crop", "convert-2", "encode", "whole", "encoder-alone",
        "cpu", "host-pipe", "host-pipe-threads",
    ]  # fmt: skip
    assert [row.name for row in rows if row.reason] == ["cpu", "host-pipe", "host-pipe-threads"]


def test_rows_of_other_numbers_of_sessions(subject):
    one = subject(90, segments={"seconds": 1}, sessions=3)
    rows = {row.name: row for row in cases(one, [1, 3], 3, threading.Event())}
    assert [name for name in rows if name.endswith("-1")] == ["decode-1", "steps-1"]
    assert (rows["steps-1"].sessions, rows["whole"].sessions) == (1, 3)
    for name in ("decode-1", "steps-1", "decode", "convert-2", "encode", "whole"):
        assert once(rows[name], 90).frames == 90


def test_lost_frames_are_an_error_not_a_figure(subject):
    rows = {row.name: row for row in cases(subject(), [], 1, threading.Event())}
    assert once(rows["warp"], 40).frames == 40
    with pytest.raises(MediaError, match="warp: 40 frames came out, not 41"):
        once(rows["warp"], 41)


def test_ranges_are_counted_from_their_start(subject):
    one = subject(None, range={"start": "1.0"})
    assert one.frames == 60
    assert list(one.pts)[:2] == [one.times.pts[30], one.times.pts[31]]
    assert once(cases(one, [], 1, threading.Event())[0], 20).frames == 20


def test_what_cannot_be_counted_is_refused(subject):
    with pytest.raises(PlanError, match="fps stage"):
        subject(stages=[{"fps": {"rate": "24"}}])
    with pytest.raises(MediaError, match="no picture lies in the range"):
        subject(range={"start": "2.98", "end": "2.99"})


@pytest.mark.parametrize(
    "video", [{"codec": "h264", "preset": "ultrafast"}, {"codec": "mjpeg"}, {"codec": "prores"}, {"codec": "ffv1"}]
)
@pytest.mark.parametrize("stages", [STAGES, []])
def test_an_encoder_alone_gets_the_pictures_of_the_plan(subject, monkeypatch, video, stages):
    one = subject(8, stages=stages, output={"video": video})
    plan, seen = one.plan(), []
    kept = keep(plan, threading.Event())
    assert [pts for batch in kept for pts in batch.pts] == list(one.pts)
    encode = LibavEncoder.encode
    monkeypatch.setattr(LibavEncoder, "encode", lambda self, batch: seen.append(batch) or encode(self, batch))
    run = encoder_alone(plan, kept, 20)
    order = [0, 1, 2, 3, 4, 5, 6, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5]
    assert [next(n for n, batch in enumerate(kept) if batch.native is s.native) for s in seen] == order
    times = [s.pts[0] for s in seen]
    assert times == sorted(set(times))
    assert run.frames == 20
    assert run.rate > 0


@pytest.mark.parametrize("threads", [False, True])
def test_through_numpy_gives_the_same_pictures(subject, threads):
    one = subject()
    reference = one.plan(device="cpu", video=VideoOutput(codec="ffv1"), name="reference")
    render(reference, overwrite=False, journal=Journal(), stop=threading.Event())
    run = host_pipe(one, 40, "cpu", threading.Event(), threads=threads)
    out = one.on_cpu(40).output
    assert run.frames == 40
    assert compare(out, reference.output, one.pts, one.source.video.time_base).worst > 32
    with av.open(str(out)) as container:
        assert container.streams.video[0].codec_context.name == "mjpeg"


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("broken", ["_decoded", "_frame", "_Stages.__call__"])
def test_what_fails_on_the_way_through_numpy_is_told(subject, monkeypatch, threads, broken):
    def boom(*_: object) -> object:
        raise MediaError("boom")

    before = threading.active_count()
    monkeypatch.setattr(f"gpupipe.bench.host_pipe.{broken}", boom)
    with pytest.raises(MediaError, match="boom"):
        host_pipe(subject(), 40, "cpu", threading.Event(), threads=threads)
    assert threading.active_count() == before


def test_a_stop_ends_it(subject):
    stop = threading.Event()
    stop.set()
    one = subject()
    with pytest.raises(StoppedError):
        host_pipe(one, 40, "cpu", stop, threads=True)
    with pytest.raises(StoppedError):
        once(cases(one, [], 1, stop)[0], 40)


def test_pictures_through_numpy_are_the_stages_own(subject):
    """No stage: 8-bit R'G'B' goes through unchanged."""
    one = subject(stages=[])
    rgb = np.random.default_rng(1).integers(0, 256, (108, 192, 3), dtype=np.uint8)
    assert np.array_equal(_Stages(one.on_cpu(4), one, "cpu")((7, rgb))[1], rgb)
