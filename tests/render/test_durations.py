"""How long each picture is shown, where the container's packets say otherwise."""

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
    from pathlib import Path


@pytest.mark.parametrize("suffix", ["mkv", "mp4", "mov"])
def test_a_picture_stored_as_two_fields_lasts_both(corpus: Path, tmp_path: Path, ffprobe, suffix: str) -> None:
    source, output = corpus / "files" / "avchd_1080i50_field_coded_ac3_pgs.mts", tmp_path / f"x.{suffix}"
    config = parse_config({"output": {"video": {"codec": "h264", "preset": "ultrafast"}}})
    render(
        make_plan(config, probe(source), output, device="cpu"),
        overwrite=False,
        journal=Journal(),
        stop=threading.Event(),
    )
    packets = ffprobe(output, "-select_streams", "v:0", "-show_entries", "packet=duration_time")["packets"]
    assert [float(p["duration_time"]) for p in packets] == [pytest.approx(0.04, abs=0.001)] * 13
