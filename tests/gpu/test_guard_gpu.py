"""A GPU whose memory gets short after the plan was made: the run goes on with less and gives the same pictures."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import av
import pytest
import torch

from gpupipe.bench.clip import RECIPES, make_clip
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import Watch, render

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

ROOM = 600 << 20
"""Bytes that torch may have beside what it has: enough for a session or two of 1080p, not for eight."""
CONFIG = {
    "segments": {"seconds": 1}, "sessions": 8, "stages": [{"warp": {"rotate": 2.0}}],
    "output": {"video": {"codec": "mjpeg", "encoder": "nvjpeg"}},
}  # fmt: skip
PRESSED = """
import json, sys, threading
from pathlib import Path
import torch
from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import Watch, guard, render
config, clip, output, room, guarded = sys.argv[1:]
plan = make_plan(parse_config(json.loads(config)), probe(Path(clip)), Path(output), device="cuda:0")
torch.zeros(1, device="cuda:0")
free, total = torch.cuda.mem_get_info(0)
torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(0) + int(room)) / total, 0)
if guarded == "none":
    guard.smaller = lambda _: None
watch = Watch()
render(plan, overwrite=False, journal=Journal(), stop=threading.Event(), watch=watch)
print(json.dumps({"counts": watch.counts, "steps": [h.detail for h in watch.happenings], "sessions": plan.sessions}))
"""


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    make_clip(path, replace(RECIPES["h264"], bitrate=4_000_000), 300)
    return path


def pressed(clip: Path, output: Path, guarded: str) -> subprocess.CompletedProcess[str]:
    words = [json.dumps(CONFIG), str(clip), str(output), str(ROOM), guarded]
    return subprocess.run(
        [sys.executable, "-c", PRESSED, *words], capture_output=True, text=True, timeout=240, check=False
    )


def packets(path: Path) -> list[tuple[int | None, bytes]]:
    with av.open(str(path)) as container:
        return [(p.pts, bytes(p)) for p in container.demux(video=0) if p.size]


def test_a_cap_that_would_fail_the_run_makes_it_smaller(clip: Path, tmp_path: Path) -> None:
    without = pressed(clip, tmp_path / "none.mov", "none")
    assert without.returncode != 0
    assert "ShortMemoryError" in without.stderr
    done = pressed(clip, tmp_path / "guard.mov", "guard")
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert sum(told["counts"].values()) >= 1
    assert told["steps"][0].startswith(f"{(told['sessions'] + 1) // 2} of {told['sessions']} sessions")
    plan = make_plan(parse_config(CONFIG), probe(clip), tmp_path / "free.mov", device="cuda:0")
    render(plan, overwrite=False, journal=Journal(), stop=threading.Event(), watch=Watch())
    assert packets(tmp_path / "guard.mov") == packets(tmp_path / "free.mov")


def test_memory_that_another_program_takes_in_the_run_is_told_or_survived(clip: Path, tmp_path: Path) -> None:
    """Ballast fills the GPU once frames flow: what was planned is held already, so the run ends well."""
    plan = make_plan(parse_config(CONFIG), probe(clip), tmp_path / "o.mov", device="cuda:0")
    ballast: list[torch.Tensor] = []

    def fill(_: object) -> None:
        if not ballast:
            free, _ = torch.cuda.mem_get_info(0)
            ballast.append(torch.empty(max(1, free - (256 << 20)), dtype=torch.uint8, device="cuda:0"))

    render(plan, overwrite=False, journal=Journal(), stop=threading.Event(), watch=Watch(), progress=fill)
    assert ballast
    assert len(packets(tmp_path / "o.mov")) == 300
