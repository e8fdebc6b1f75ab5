"""`devices:` with two GPUs: the bytes of one; a device that fails is dropped and the other finishes.

Skipped where there is one GPU only. Where there is none the CPU stands for both of them in one test, so that what is not
the GPUs' fault shows there; `tests/render/test_children.py` has the others for the CPU.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest

from gpupipe.config import parse_config
from gpupipe.device.driver import driver
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.placed import placed
from gpupipe.render import render
from gpupipe.render.children import Child, Children

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.plan import Plan

GPUS = len(driver().gpus)
TWO = ("cuda:0", "cuda:1") if GPUS else ("cpu", "cpu")
pytestmark = [
    pytest.mark.skipif(GPUS == 1, reason="needs two GPUs"),
    pytest.mark.timeout(400),
    *([pytest.mark.gpu] if GPUS else []),
]
on_gpus = pytest.mark.skipif(not GPUS, reason="needs two GPUs")
STAGES = [{"warp": {"rotate": 3}}, {"resize": {"width": 160, "height": -2}}]
LOSSLESS = {"codec": "ffv1", "options": {"level": "3"}}
FRAMES, GOP = 240 if GPUS else 80, 8


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many key frames, each a place to cut."""
    path = tmp_path_factory.mktemp("devices") / "clip.mp4"
    options = {"preset": "ultrafast", "g": str(GOP), "keyint_min": str(GOP), "sc_threshold": "0"}
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", 25, options=options)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        y, x = np.mgrid[:180, :320]
        for n in range(FRAMES):
            codes = np.stack([x + n, 2 * y + 3 * n, x + y - n], -1).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(codes, format="rgb24")
            frame.pts, frame.time_base = n, Fraction(1, 25)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path


@pytest.fixture(autouse=True)
def _both_begin_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first that is ready may do all of it before the other one is."""
    fresh = Children.fresh
    monkeypatch.setattr(
        Children, "fresh", lambda self: fresh(self) if all(one.ready.is_set() for one in self._children) else []
    )


def planned(source: Path, output: Path, video: dict, **config: object) -> Plan:
    settings = {"segments": {"seconds": 0.3}, "resume": "keep", "stages": STAGES, "output": {"video": video}, **config}
    plan = make_plan(parse_config(settings), probe(source), output)
    assert len(plan.segments) == FRAMES // GOP, plan.lines()
    return plan


def two(source: Path, output: Path, video: dict, names: str | tuple[str, ...] = TWO) -> Plan:
    """On two devices; the CPU, which no config names twice, is put into a plan of one."""
    if not GPUS:
        return replace(planned(source, output, video, device="cpu"), devices=TWO)
    return planned(source, output, video, devices=names if names == "all" else list(names))


def carry_out(plan: Plan) -> tuple[bytes, Journal]:
    journal = Journal()
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    return plan.output.read_bytes(), journal


@on_gpus
@pytest.mark.parametrize(("video", "suffix"), [(LOSSLESS, ".mp4"), ({"codec": "mjpeg"}, ".mov")])
def test_two_make_the_bytes_of_one(clip: Path, tmp_path: Path, video: dict, suffix: str) -> None:
    one, _ = carry_out(planned(clip, tmp_path / f"one{suffix}", video, device=TWO[0]))
    for number, names in enumerate(("all", TWO[::-1])):
        plan = two(clip, tmp_path / f"two{number}{suffix}", video, names)
        assert len(plan.devices) >= 2
        made, journal = carry_out(plan)
        assert made == one
        assert not journal.entries


@on_gpus
def test_the_second_gpu_alone(clip: Path, tmp_path: Path) -> None:
    """In this process: nothing of it may happen on cuda:0, where a kernel would not find its pictures."""
    plan = planned(clip, tmp_path / "one.mp4", LOSSLESS, device=TWO[0])
    one, _ = carry_out(plan)
    second = replace(placed(plan, TWO[1]), output=tmp_path / "second.mp4")
    assert second.digest() == plan.digest()
    assert carry_out(second)[0] == one


def test_one_that_is_killed_is_dropped(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = carry_out(planned(clip, tmp_path / "one.mp4", LOSSLESS, device=TWO[0]))
    asked: list[Child] = []
    done = Child.render

    def killing(self: Child, index: int) -> object:
        future = done(self, index)
        if self not in asked:
            asked.append(self)
            if len(asked) == 2:
                os.kill(self._process.pid, signal.SIGKILL)
        return future

    monkeypatch.setattr(Child, "render", killing)
    made, journal = carry_out(two(clip, tmp_path / "two.mp4", LOSSLESS))
    assert made == one
    assert f"{asked[1].name} is lost" in journal.entries["device-lost"].message
