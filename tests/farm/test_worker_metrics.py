"""A farm's worker exports what it does; here without Ray, as the plain object that Ray makes an actor of."""

from __future__ import annotations

import urllib.error
import urllib.request
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from gpupipe.config import parse_config
from gpupipe.farm.job import job_of
from gpupipe.farm.worker import Worker
from gpupipe.media.probe import probe
from gpupipe.metrics import Exporter
from gpupipe.plan import make_plan
from gpupipe.render.ledger import Ledger
from gpupipe.sample import make_sample

if TYPE_CHECKING:
    from pathlib import Path

ANY = "127.0.0.1"


def told(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url, timeout=240) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_a_worker_tells_what_it_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Exporter] = []
    near = Exporter.near
    monkeypatch.setattr(Exporter, "near", lambda *where: (made.append(near(*where)), made[-1])[1])
    make_sample(tmp_path / "clip.mov", seconds=4, size=(160, 90), rate=Fraction(25))
    config = {"segments": {"seconds": 1}, "resume": "keep", "output": {"video": {"preset": "ultrafast"}}}
    plan = make_plan(parse_config(config), probe(tmp_path / "clip.mov"), tmp_path / "o.mp4", device="cpu")
    with Exporter(0, ANY) as taken, Ledger(plan) as ledger:
        ledger.begin(restart=False)
        port = int(taken.url.split(":")[2].split("/")[0])
        worker = Worker(job_of(ledger, url=None, cache=None, token="none", metrics=(port, ANY)), "cpu")
        assert worker.prepare() is False, "it sees no ledger, and is well"
        assert made[0].url != taken.url, "that port has somebody else"
        before = told(made[0].url)
        piece = worker.render(0)
        after = told(made[0].url)
        worker.close()
    assert piece.frames > 0
    assert (before["gpupipe_computed_frames_total"], after["gpupipe_computed_frames_total"]) == (0, piece.frames)
    assert after['gpupipe_run_info{decoder="libav",device="cpu",encoder="libx264"}'] == 1
    assert after['gpupipe_segments{state="finished"}'] == 1
    assert after['gpupipe_lane_seconds_total{kind="runner",lane="runner-0",state="encode"}'] > 0
    with pytest.raises(urllib.error.URLError):
        told(made[0].url)
