"""What a run says of itself while it runs, against what its output holds."""

from __future__ import annotations

import threading
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import pytest

from gpupipe.config import parse_config
from gpupipe.events import happened
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import Watch, render
from gpupipe.render.lanes import Channel, Crew
from gpupipe.render.watch import WAIT, clocked, current, enter
from gpupipe.sample import make_sample

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("watch") / "clip.mov"
    make_sample(path, seconds=6, size=(320, 180), rate=Fraction(25))
    return path


def watched(clip: Path, out: Path, **config: object):
    config = {"stages": [{"warp": {"rotate": 2}}], "output": {"video": {"codec": "ffv1"}}, **config}
    plan = make_plan(parse_config(config), probe(clip), out, device="cpu")
    watch, readings = Watch(), []
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


def test_time_of_one_lane_adds_up(clip, tmp_path):
    _, last, _ = watched(clip, tmp_path / "out.mkv")
    (lane,) = last.lanes
    assert lane.name == "run"
    assert sum(lane.seconds.values()) == pytest.approx(last.elapsed, rel=0.05)
    assert {"open", "decode", "stages", "encode", "write"} <= set(lane.seconds)
    assert lane.occupancy == 1.0


def test_segments_and_their_lanes(clip, tmp_path):
    _, last, readings = watched(clip, tmp_path / "out.mkv", segments={"seconds": 1}, sessions=2)
    assert {lane.name for lane in last.lanes} == {"writer", "runner-0", "runner-1"}
    assert last.segments > 2
    assert (last.finished, last.running) == (last.segments, ())
    assert any(len(r.running) == 2 and r.running[0].shown for r in readings)
    (writer,) = [lane for lane in last.lanes if lane.name == "writer"]
    flowing = last.elapsed - writer.seconds.get("open", 0)  # a loaded machine takes seconds to import torch
    assert writer.seconds[WAIT + "encoded parts"] > 0.3 * flowing  # two runners do all the work


def test_a_lane_that_waits_is_not_busy():
    watch = Watch()
    watch.lane("writer", "open")
    with Crew() as crew:
        jobs: Channel[int] = Channel(crew, 1)
        crew.start("encode-0", lambda: jobs.get() and None)
        began = time.perf_counter()
        time.sleep(0.2)
        assert watch.read().lanes[1].state == WAIT + "pictures"
        jobs.put(1)
        waited = time.perf_counter() - began
        jobs.close()
        time.sleep(0.05)
    watch.leave()
    lane = watch.read().lanes[1]
    assert 0.15 < lane.seconds[WAIT + "pictures"] < waited + 1  # a busy machine wakes it late
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
    for seconds in (0.05, 0.1):
        clock = watch.lane("runner-0", "decode")
        time.sleep(seconds)
        clock.enter(WAIT + "the writer")
        watch.leave()
    (lane,) = watch.read().lanes
    assert (lane.name, lane.state) == ("runner-0", "done")
    assert lane.seconds["decode"] >= 0.14
