"""Containers that count pictures instead of timing them say so where a source's times are lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("codec", ["mpeg2video", "prores"])
@pytest.mark.parametrize("times", ["even", "gap", "fps"])
def test_mxf_tells_of_times_that_it_cannot_hold(
    codec: str, times: str, ffmpeg: Callable[..., str], tmp_path: Path
) -> None:
    """Milliseconds of Matroska are even at 29.97 frames a second; a gap is none, unless an fps stage has filled it."""
    source, gap = tmp_path / "in.mkv", "0" if times == "even" else r"gt(N\,20)*0.37/TB"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x64:r=30000/1001:d=2", "-vf", f"setpts=PTS+{gap}",
           "-fps_mode", "vfr", "-c:v", "ffv1", source)  # fmt: skip
    stages = [{"fps": {"rate": "30000/1001"}}] if times == "fps" else []
    config = parse_config({"stages": stages, "output": {"video": {"codec": codec}}})
    journal = Journal()
    plan = make_plan(config, probe(source), tmp_path / "out.mxf", device="cpu")
    render(plan, overwrite=False, journal=journal, stop=threading.Event())
    told = journal.entries.get("times-lost")
    assert (told is not None) == (times == "gap")
    assert told is None or told.count == 1
