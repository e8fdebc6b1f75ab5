"""Lanes stand still while the audit reads out what it counted: nothing is copied that it does not see."""

from __future__ import annotations

import threading
import time

import pytest

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import Watch, audit, progress, render
from gpupipe.render.lanes import Channel, Crew, HaltedError
from gpupipe.render.watch import enter


def test_lanes_come_to_a_stand_and_go_on() -> None:
    """A lane that computes and one that encodes, as on the GPU; the queue between them is empty when they stand."""
    watch, done, coded = Watch(), [0], [0]
    watch.lane("writer", "write")
    try:
        with Crew() as crew:
            jobs: Channel[int] = Channel(crew, 3)
            over = threading.Event()

            def compute() -> None:
                while not over.is_set():
                    crew.stand()
                    time.sleep(0.002)
                    done[0] += 1
                    jobs.put(done[0])
                jobs.close()

            def encode() -> None:
                while (job := jobs.get()) is not None:
                    time.sleep(0.003)
                    coded[0] = job

            crew.start("runner-0", compute)
            crew.start("encode-0", encode)
            for _ in range(3):
                with audit.still() as stood:
                    assert stood
                    before = done[0]
                    assert coded[0] == before
                    time.sleep(0.1)
                    assert done[0] == coded[0] == before
                deadline = time.monotonic() + 20
                while coded[0] < before + 5:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            over.set()
    finally:
        watch.leave()


def test_a_lane_that_goes_on_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PATIENCE", 0.2)
    watch, over = Watch(), threading.Event()
    watch.lane("writer", "write")
    try:
        with Crew() as crew:
            crew.start("runner-0", lambda: over.wait(20))
            with audit.still() as stood:
                assert not stood
            over.set()
            crew.start("runner-1", lambda: enter("done"))
    finally:
        watch.leave()


def test_a_run_that_ends_meanwhile_ends_its_lanes() -> None:
    watch = Watch(held=True)
    watch.lane("writer", "write")
    try:
        with Crew() as crew:
            crew.halt()
            with pytest.raises(HaltedError):
                crew.stand()
    finally:
        watch.leave()


@pytest.mark.parametrize("resume", ["off", "keep"])
def test_a_whole_run_may_be_held_again_and_again(resume: str, tmp_path, sample_clip, monkeypatch) -> None:
    """Written as it goes, and kept in a ledger: in both the thread that counts is the one that writes."""
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    config = parse_config({
        "segments": {"seconds": 1}, "sessions": 2, "resume": resume,
        "output": {"video": {"codec": "h264", "preset": "ultrafast"}},
    })  # fmt: skip
    plan = make_plan(config, probe(sample_clip(4)), tmp_path / "o.mp4", device="cpu")
    assert plan.sessions == 2
    stands: list[bool] = []
    watch = Watch()

    def hold(_: object) -> None:
        if len(stands) < 4:
            with audit.still() as stood:
                before = watch.read().computed
                time.sleep(0.05)
                stands.append(stood and watch.read().computed == before)

    done = render(plan, overwrite=False, journal=Journal(), stop=threading.Event(), progress=hold, watch=watch)
    assert done.frames == sum(segment.frames for segment in plan.segments)
    assert stands
    assert all(stands)
