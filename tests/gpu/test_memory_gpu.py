"""Memory of a long run: planned before it begins, and then the same from the first seconds to the last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpupipe.bench.clip import RECIPES, make_clip

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
FRAMES = 30_000


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1080p at 2 Mb/s or so: 30,000 frames of 300 different ones."""
    path = tmp_path_factory.mktemp("clip") / "long.mp4"
    make_clip(path, replace(RECIPES["h264"], bitrate=2_000_000), FRAMES)
    return path


def measured(clip: Path, mode: str, folder: Path) -> dict:
    command = [sys.executable, str(Path(__file__).with_name("grow.py")), str(clip), mode, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["discard", "nvjpeg"])
def test_neither_the_process_nor_the_gpu_grows(clip: Path, tmp_path: Path, mode: str) -> None:
    told = measured(clip, mode, tmp_path)
    assert told["frames"] == FRAMES
    early = [mark for mark in told["marks"] if mark[0] <= 2_000]
    later = [mark for mark in told["marks"] if mark[0] > 2_000]
    assert early
    assert len(later) > 20
    before, after = ([max(mark[n] for mark in marks) for n in (1, 2, 3)] for marks in (early, later))
    figures = {what: [a >> 20, b >> 20] for what, a, b in zip(("process", "torch", "GPU"), before, after, strict=True)}
    print(mode, told["sessions"], "sessions, planned", told["planned"] >> 20, figures, "MiB", told["alone"])  # noqa: T201
    assert after[0] <= 1.01 * before[0]
    assert after[1] <= 1.01 * before[1]
    if told["alone"]:  # the GPU's memory is everybody's
        assert after[2] <= 1.01 * before[2]
        assert after[2] <= told["planned"] <= 3 * after[2]
