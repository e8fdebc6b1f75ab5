"""A stream that changes its size in mid-course: it is scaled into the batch, so a captured graph never sees it."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import MediaError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu
NAME = "reschange_848x464_to_424x232.h264"
STAGES = {
    "none": [],
    "planes": [{"crop": {"width": 401, "height": 301, "x": 3, "y": 5}}, {"pad": {"width": 420, "height": 320}}],
    "rgb": [{"warp": {"rotate": 2}}, {"overlay": {"image": "configs/assets/logo.png", "opacity": 0.5}}],
}


def frames(clips: Path, output: Path, stages: list[dict], journal: Journal, **more: object) -> list[np.ndarray]:
    device = str(more.pop("device", "cuda"))
    config = {"stages": stages, "output": {"video": {"codec": "ffv1", "options": {"level": 3}}}, **more}
    plan = make_plan(parse_config(config), probe(clips / NAME), output, device=device)
    assert plan.graphs == ("off" if more.get("graphs") == "off" else "whole")
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    with av.open(str(output)) as container:
        return [
            np.concatenate([np.asarray(memoryview(p)).ravel() for p in f.planes]) for f in container.decode(video=0)
        ]


@pytest.mark.parametrize("stages", STAGES)
def test_the_same_frames_with_and_without_graphs(clips: Path, tmp_path: Path, stages: str) -> None:
    journal = Journal()
    graphed = frames(clips, tmp_path / "graphed.mkv", STAGES[stages], journal)
    eager = frames(clips, tmp_path / "eager.mkv", STAGES[stages], Journal(), graphs="off")
    assert len(graphed) == 96
    assert [hashlib.sha256(f.tobytes()).digest() for f in graphed] == [
        hashlib.sha256(f.tobytes()).digest() for f in eager
    ]
    told = journal.entries["size-changed"]
    assert "848x464" in told.message
    assert "424x232" in told.message
    assert told.count == 47
    assert int(told.places[0].removeprefix("pts ")) >= 0


def test_the_same_pictures_as_on_the_cpu(clips: Path, tmp_path: Path) -> None:
    ours = frames(clips, tmp_path / "gpu.mkv", STAGES["planes"], Journal())
    theirs = frames(clips, tmp_path / "cpu.mkv", STAGES["planes"], Journal(), device="cpu")
    assert len(ours) == len(theirs) == 96
    worst = max(float(np.mean((a.astype(float) - b) ** 2)) for a, b in zip(ours, theirs, strict=True))
    assert worst <= 255**2 / 10**5  # 50 dB


def test_the_policy_error_ends_the_run(clips: Path, tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="picture changes from"):
        frames(clips, tmp_path / "x.mkv", [], Journal(), size_change="error")
    assert not list(tmp_path.iterdir())
