"""`devices:` with two GPUs: the bytes of one; a device that fails is dropped and the other finishes.

Skipped where there is one GPU only.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpupipe.config import parse_config
from gpupipe.device.driver import driver
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.placed import placed
from gpupipe.render import render
from gpupipe.render.children import Child

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.plan import Plan

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(len(driver().gpus) < 2, reason="needs two GPUs"),
    pytest.mark.timeout(400),
]
CLIP = "start_at_10s_2b_sar1137_800.mp4"
STAGES = [{"warp": {"rotate": 3}}, {"resize": {"width": 640, "height": -2}}]
LOSSLESS = {"codec": "ffv1", "options": {"level": "3"}}


def planned(source: Path, output: Path, video: dict, **config: object) -> Plan:
    settings = {"segments": {"seconds": 0.3}, "resume": "keep", "stages": STAGES, "output": {"video": video}, **config}
    return make_plan(parse_config(settings), probe(source), output)


def carry_out(plan: Plan) -> tuple[bytes, Journal]:
    journal = Journal()
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    return plan.output.read_bytes(), journal


@pytest.mark.parametrize(("video", "suffix"), [(LOSSLESS, ".mov"), ({"codec": "mjpeg"}, ".mov")])
def test_two_make_the_bytes_of_one(clips: Path, tmp_path: Path, video: dict, suffix: str) -> None:
    source = clips / CLIP
    one, _ = carry_out(planned(source, tmp_path / f"one{suffix}", video, device="cuda:0"))
    for number, devices in enumerate(("all", ["cuda:1", "cuda:0"])):
        plan = planned(source, tmp_path / f"two{number}{suffix}", video, devices=devices)
        assert len(plan.devices) >= 2
        assert len(plan.segments) > 2
        two, journal = carry_out(plan)
        assert two == one
        assert not journal.entries


def test_the_second_gpu_alone(clips: Path, tmp_path: Path) -> None:
    """In this process: nothing of it may happen on cuda:0, where a kernel would not find its pictures."""
    plan = planned(clips / CLIP, tmp_path / "one.mov", LOSSLESS, device="cuda:0")
    one, _ = carry_out(plan)
    second = replace(placed(plan, "cuda:1"), output=tmp_path / "second.mov")
    assert second.digest() == plan.digest()
    assert carry_out(second)[0] == one


def test_one_that_is_killed_is_dropped(clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, _ = carry_out(planned(clips / CLIP, tmp_path / "one.mov", LOSSLESS, device="cuda:0"))
    killed: list[str] = []
    done = Child.render

    def killing(self: Child, index: int) -> object:
        future = done(self, index)
        if not killed and self.name == "cuda:1":
            killed.append(self.name)
            os.kill(self._process.pid, signal.SIGKILL)
        return future

    monkeypatch.setattr(Child, "render", killing)
    two, journal = carry_out(planned(clips / CLIP, tmp_path / "two.mov", LOSSLESS, devices=["cuda:0", "cuda:1"]))
    assert two == one
    assert "cuda:1 is lost" in journal.entries["device-lost"].message
