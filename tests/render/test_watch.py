"""What a run says of itself while it runs, against what its output holds."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import pytest
from patience import LIMIT, until

from gpupipe.config import parse_config
from gpupipe.events import happened
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import Watch, progress, render
from gpupipe.render.board import Board
from gpupipe.render.lanes import Channel, Crew
from gpupipe.render.watch import WAIT, clocked, current, enter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def clip(sample_clip) -> Path:
    return sample_clip(6)


@pytest.fixture(autouse=True)
def every_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast the machine is, each picture is told of."""
    monkeypatch.setattr(progress, "INTERVAL", 0.0)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches count how often they are asked instead of seconds."""
    count = itertools.count()
    monkeypatch.setattr("gpupipe.render.watch.time", SimpleNamespace(perf_counter=lambda: float(next(count))))


def watched(clip: Path, out: Path, watch: Watch | None = None, **config: object):
    config = {"stages": [{"warp": {"rotate": 2}}], "output": {"video": {"codec": "ffv1"}}, **config}
    plan = make_plan(parse_config(config), probe(clip), out, device="cpu")
    watch, readings = watch or Watch(), []
    result = render(
        plan, overwrite=True, journal=Journal(), stop=threading.Event(),
        progress=lambda _: readings.append(watch.read()), watch=watch,
    )  # fmt: skip
    return result, watch.read(), readings


def video_bytes(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(packet.size for packet in container.demux(video=0))


@pytest.mark.parametrize("segments", ["off", {"seconds": 1}])
def test_counts_are_those_of_the_output(clip, tmp_path, segments):
    out = tmp_path / "out.mkv"
    result, last, readings = watched(clip, out, segments=segments, sessions=2)
    assert (last.frames, last.total) == (result.frames, 150)
    assert last.written == video_bytes(out)
    assert len(readings) > 2
    assert [r.frames for r in readings] == sorted(r.frames for r in readings)
    assert current() is None


def test_time_of_one_lane_adds_up(clip, tmp_path, ticks):
    _, last, _ = watched(clip, tmp_path / "out.mkv", Watch(_began=0.0))
    (lane,) = last.lanes
    assert lane.name == "run"
    assert last.elapsed > 500
    assert last.elapsed - 5 < sum(lane.seconds.values()) < last.elapsed
    assert {"open", "decode", "stages", "encode", "write"} <= set(lane.seconds)
    assert lane.occupancy == 1.0


def test_segments_and_their_lanes(clip, tmp_path, monkeypatch):
    """Both runners have a segment, and the writer waits, before anything is computed."""
    readings, begun, both = [], itertools.count(), threading.Barrier(2, timeout=LIMIT)
    take, computed = Board.take, Watch.computed

    def taken(self: Board) -> int | None:
        index = take(self)
        if next(begun) < 2:
            both.wait()
            until(lambda: any(lane.state == WAIT + "encoded parts" for lane in current().read().lanes))
        return index

    def noted(self: Watch, *what: int) -> None:
        computed(self, *what)
        readings.append(self.read())

    monkeypatch.setattr(Board, "take", taken)
    monkeypatch.setattr(Watch, "computed", noted)
    _, last, _ = watched(clip, tmp_path / "out.mkv", segments={"seconds": 1}, sessions=2)
    assert {lane.name for lane in last.lanes} == {"writer", "runner-0", "runner-1"}
    assert last.segments > 2
    assert (last.finished, last.running) == (last.segments, ())
    assert len(readings[0].running) == 2
    assert sum(segment.shown for segment in readings[0].running) > 0
    (writer,) = [lane for lane in last.lanes if lane.name == "writer"]
    assert writer.seconds[WAIT + "encoded parts"] > 0


def test_a_lane_that_waits_is_not_busy(ticks):
    watch = Watch()
    watch.lane("writer", "open")
    with Crew() as crew:
        jobs: Channel[int] = Channel(crew, 1)
        crew.start("encode-0", lambda: jobs.get() and None)
        until(lambda: [lane.state for lane in watch.read().lanes[1:]] == [WAIT + "pictures"])
        for _ in range(100):  # each look is a tick of its clock
            watch.read()
        jobs.put(1)
        jobs.close()
        until(lambda: watch.read().lanes[1].state == "done")
    watch.leave()
    lane = watch.read().lanes[1]
    assert lane.seconds[WAIT + "pictures"] > 100
    assert lane.busy < 100
    assert lane.occupancy < 0.5
    assert watch.read().queues == {"computed batches": 0}


def test_unwatched_costs_nothing():
    def call() -> int:
        return 1

    assert clocked("stages", call) is call
    assert enter("decode") == ""


def test_events_are_counted_where_they_happen_and_nowhere_else():
    watch, other = Watch(), Watch()
    watch.lane("writer", "open")
    with Crew() as crew:
        crew.start("runner-0", lambda: happened("engine-build", "span x2 in 3 s"))
    happened("retry", "segment 3")
    watch.leave()
    happened("retry", "nobody listens")
    assert watch.read().counts == {"engine-build": 1, "retry": 1}
    assert [h.detail for h in watch.happenings] == ["span x2 in 3 s", "segment 3"]
    assert other.read().counts == {}


def test_lanes_that_begin_anew_are_one():
    watch = Watch()
    for seconds in (0.01, 0.02):
        clock = watch.lane("runner-0", "decode")
        time.sleep(seconds)
        clock.enter(WAIT + "the writer")
        watch.leave()
    (lane,) = watch.read().lanes
    assert (lane.name, lane.state) == ("runner-0", "done")
    assert lane.seconds["decode"] >= 0.03
