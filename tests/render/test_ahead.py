"""Pictures computed side by side come in order, and what goes wrong is told in its turn."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from patience import LIMIT

from gpupipe import stages
from gpupipe.config import parse_config
from gpupipe.device import open_lane
from gpupipe.device.host import Room
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import ahead, pictures, render
from gpupipe.render.ahead import abreast, in_order
from gpupipe.render.chain import Chain

ROOT = Path(__file__).resolve().parents[2]

FORMAT = FrameFormat(PIXEL_FORMATS["yuv420p"], 16, 16)


def batches(count: int):
    return [(FrameBatch(FORMAT, (n,), Fraction(1, 25)), n) for n in range(count)]


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_order_and_how_many(at_once: int) -> None:
    lock, running, most, together = threading.Lock(), 0, 0, threading.Barrier(at_once, timeout=LIMIT)

    def slow(batch: FrameBatch) -> FrameBatch:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if batch.pts[0] < at_once:
            together.wait()  # so many there must be at the same time
        time.sleep(0.001 * (batch.pts[0] * 7 % 5))
        with lock:
            running -= 1
        return batch.with_(pts=(batch.pts[0] * 2,))

    assert [(b.pts[0], n) for b, n in in_order(slow, batches(40), at_once)] == [(2 * n, n) for n in range(40)]
    assert most == at_once


def test_no_more_are_read_than_are_computed_and_one() -> None:
    read = []

    def source():
        for pair in batches(20):
            read.append(pair[1])
            yield pair

    given = in_order(lambda batch: batch, source(), 3)
    next(given)
    assert read == [0, 1, 2, 3]
    given.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("stages")]


def test_an_error_comes_in_its_turn() -> None:
    def fail(batch: FrameBatch) -> FrameBatch:
        if batch.pts[0] == 5:
            raise ValueError("five")
        return batch

    seen: list[int] = []
    with pytest.raises(ValueError, match="five"):
        seen.extend(n for _, n in in_order(fail, batches(9), 3))
    assert seen == [0, 1, 2, 3, 4]
    assert not [t for t in threading.enumerate() if t.name.startswith("stages")]


def test_a_run_gives_the_same_bytes(tmp_path: Path, ffmpeg, monkeypatch: pytest.MonkeyPatch) -> None:
    source, seen = tmp_path / "s.mkv", set()
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=256x144:r=25:d=3", "-c:v", "libx264", "-preset", "ultrafast", source)
    config = {"output": {"video": {"codec": "ffv1"}}, "stages": [{"warp": {"rotate": 3}}, {"fps": {"rate": 30}}]}
    for at_once in (1, 2, 5):
        monkeypatch.setattr(pictures, "abreast", lambda _, n=at_once: n)
        plan = make_plan(parse_config(config), probe(source), tmp_path / f"{at_once}.mkv", device="cpu")
        render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
        with av.open(str(plan.output)) as container:
            shown = [(f.pts, hashlib.sha256(f.to_ndarray().tobytes()).digest()) for f in container.decode(video=0)]
        assert len(shown) == 90
        seen.add(tuple(shown))
    assert len(seen) == 1


STAGES = [
    {"resize": {"width": 300, "height": 170, "filter": "bilinear"}},
    {"resize": {"width": 1000, "height": 500, "filter": "lanczos"}},
    {"crop": {"x": 31, "y": 17, "width": 400, "height": 200}},
    {"pad": {"width": 700, "height": 401}},
    {"warp": {"rotate": 3, "filter": "bicubic"}},
    {"lut3d": {"file": str(ROOT / "configs/assets/warm.cube")}},
    {"overlay": {"image": str(ROOT / "configs/assets/logo.png"), "opacity": 0.5}},
]


@pytest.mark.parametrize("name", ["yuv420p", "yuv422p10le"])
@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: next(iter(stage)))
def test_every_stage_gives_the_same_side_by_side(tmp_path: Path, clips, stage: dict, name: str) -> None:
    source, threads = clips[name], 4
    output = {"video": {"codec": "ffv1"}}
    plan = make_plan(
        parse_config({"stages": [stage], "output": output}), probe(source), tmp_path / "o.mkv", device="cpu"
    )
    chain = Chain(plan.steps, open_lane("cpu"))
    assert plan.steps
    assert not any(stages.load(step.name).heavy for step in plan.steps if step.kind == "stage")
    rng = np.random.default_rng(5)
    shapes = plan.source.video.format.pixels.plane_shapes(640, 360)
    dtype, top = (np.uint8, 256) if name == "yuv420p" else (np.uint16, 1024)
    pictures = [tuple(torch.from_numpy(rng.integers(0, top, (1, *shape), dtype=dtype)) for shape in shapes)
                for _ in range(12)]  # fmt: skip
    with torch.inference_mode():
        alone = [chain.transform(planes) for planes in pictures]

    def compute(planes):
        with torch.inference_mode():
            return chain.transform(planes)

    with ThreadPoolExecutor(threads) as pool:
        for one, other in zip(alone, pool.map(compute, pictures), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory, ffmpeg) -> dict[str, Path]:
    made = {}
    for name in ("yuv420p", "yuv422p10le"):
        made[name] = tmp_path_factory.mktemp("clips") / f"{name}.mkv"
        ffmpeg("-f", "lavfi", "-i", "testsrc2=s=640x360:r=25:d=0.2", "-c:v", "ffv1", "-pix_fmt", name, made[name])
    return made


def test_how_many_by_memory_sessions_and_stages(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead.os, "cpu_count", lambda: 16)
    info = probe(corpus / "files/rot_plus90_h264_aac.mp4")

    def planned(stage: dict | None, **more: object):
        config = {"output": {"video": {"codec": "h264"}}, "stages": [stage] if stage else [{"orient": {}}], **more}
        return abreast(make_plan(parse_config(config), info, tmp_path / "o.mp4", device="cpu"))

    assert planned({"warp": {"rotate": 3}}) == 8
    assert planned({"resize": {"width": 3840, "height": 2160}}) == (1 << 30) // (3840 * 2160 * 48)
    assert planned(None) == 8
    scratch = 1280 * 720 * 48
    monkeypatch.setattr(ahead, "rooms", lambda _: [Room(8 * 3 * scratch, 1 << 40)])
    assert planned({"resize": {"width": 1280, "height": 720}}) == 3
