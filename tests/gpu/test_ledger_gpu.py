"""On the GPU too a run that keeps its segments writes the packets of one that muxes as it goes, and goes on."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import MediaError, StoppedError
from gpupipe.journal import Journal
from gpupipe.media.mux import Muxer
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.plan import Plan

pytestmark = pytest.mark.gpu

CLIP = "vfr_63_frames_59_distinct_durations.mp4"
VIDEO = [{"encoder": "nvjpeg"}, {"encoder": "prores_torch"}, {"encoder": "libx264", "preset": "veryfast"}]


def plan_of(source: Path, output: Path, video: dict[str, str], resume: str) -> Plan:
    stages = [{"warp": {"rotate": 3}}]
    config = {"segments": {"seconds": 0.3}, "resume": resume, "stages": stages, "output": {"video": video}}
    return make_plan(parse_config(config), probe(source), output, device="cuda")


def go(plan: Plan, stop: threading.Event | None = None) -> list[tuple[int | None, str]]:
    """pts and hash of every packet of the output."""
    render(plan, overwrite=False, journal=Journal(), stop=stop or threading.Event())
    with av.open(str(plan.output)) as container:
        return [(p.pts, hashlib.sha256(bytes(p)).hexdigest()) for p in container.demux(video=0) if p.size]


@pytest.mark.parametrize("video", VIDEO, ids=lambda video: video["encoder"])
def test_kept_equals_muxed_as_it_goes(clips: Path, tmp_path: Path, video: dict[str, str]) -> None:
    plain = go(plan_of(clips / CLIP, tmp_path / "plain.mov", video, "off"))
    kept = go(plan_of(clips / CLIP, tmp_path / "kept.mov", video, "keep"))
    assert len(kept) == 63
    assert kept == plain


def test_goes_on_after_the_join_failed(clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(clips / CLIP, tmp_path / "o.mov", VIDEO[0], "keep")

    def fails(*_: object) -> None:
        raise MediaError("it was not to be")

    with monkeypatch.context() as patch:
        patch.setattr(Muxer, "write_video", fails)
        with pytest.raises(MediaError, match="it was not to be"):
            go(plan)
    with Ledger(plan) as ledger:
        ledger.begin()
        assert not ledger.missing()
        ledger.path(1).write_bytes(ledger.path(1).read_bytes()[:-7])
    assert len(go(plan)) == 63


def test_a_stop_keeps_what_is_done(clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, stop = plan_of(clips / CLIP, tmp_path / "o.mov", VIDEO[0], "keep"), threading.Event()
    finished = Ledger.finished

    def noted(self: Ledger, index: int, piece: object) -> None:
        finished(self, index, piece)  # type: ignore[arg-type]
        stop.set()

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "finished", noted)
        with pytest.raises(StoppedError, match="stopped on request"):
            go(plan, stop)
    assert len(go(plan)) == 63
