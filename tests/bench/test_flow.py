"""What a run is timed by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from gpupipe.bench import flow

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_clock_stops_when_the_file_has_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a run tidies up after that is no part of its rate: an encoder by itself is closed after its clock too."""
    now = [100.0]
    monkeypatch.setattr(flow, "time", SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: now[0] / 2))

    def render(plan: SimpleNamespace, *, progress, **_: object) -> SimpleNamespace:
        assert not plan.output.exists()  # that of the run before
        for seconds in (3, 4, 5):
            now[0] += seconds
            progress(None)
        now[0] += 50
        return SimpleNamespace(frames=90, startup=2.0)

    monkeypatch.setattr(flow, "render", render)
    before = tmp_path / "out.mov"
    before.touch()
    run = flow.written(SimpleNamespace(output=before), None)
    assert (run.frames, run.startup, run.began, run.ended) == (90, 2.0, 102.0, 112.0)
    assert (run.rate, run.cores, run.closing) == (9.0, 0.5, 50.0)
    assert run.whole_rate == 90 / 62  # of the user's time nothing is left out


def test_without_a_lap_it_stops_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(flow, "time", SimpleNamespace(monotonic=lambda: now[0], process_time=lambda: 3 * now[0]))
    watch = flow.Stopwatch()
    now[0] = 1.0
    watch.open()
    now[0] = 5.0
    run = watch.run(40)
    assert (run.rate, run.startup, run.cores) == (10.0, 1.0, 3.0)
