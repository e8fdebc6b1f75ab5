"""The process does not grow with the length of a run; on a GPU see tests/gpu/test_memory_gpu.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpupipe.bench.clip import RECIPES, make_clip

ROOT = Path(__file__).resolve().parents[2]
FRAMES, WARM = 3000, 900
SPARE = {"one session": 4 << 20, "segments": 24 << 20}
"""Bytes by which the allocator's own bookkeeping of several threads comes and goes in so small a process. An encoder of
10 MB may end after the next one has begun, at any time of the run; one that stays with each of 34 segments shows."""
SMALLER = [{"resize": {"width": 160, "height": 90}}]
CONFIGS = {
    "one session": {"output": {"video": {"codec": "mjpeg", "quality": 5}}, "segments": "off", "stages": SMALLER},
    # Each segment has an encoder of its own, which must go when the segment is done.
    "segments": {"output": {"video": {"codec": "h264", "preset": "fast"}}, "segments": {"seconds": 3}, "sessions": 2},
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clip") / "long.mp4"
    make_clip(path, replace(RECIPES["h264"], width=192, height=108, bitrate=100_000), FRAMES)
    return path


@pytest.mark.parametrize("name", CONFIGS)
def test_a_long_run_takes_no_more_than_a_short_one(clip: Path, tmp_path: Path, name: str) -> None:
    script = str(Path(__file__).with_name("grow.py"))
    command = [sys.executable, script, str(clip), str(tmp_path / "o.mkv"), json.dumps(CONFIGS[name])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["frames"] == FRAMES
    assert (told["segments"] > 10) is (name == "segments")
    early = max(size for frames, size in told["marks"] if frames <= WARM)
    later = max(size for frames, size in told["marks"] if frames > WARM)
    assert later <= 1.01 * early + SPARE[name]
