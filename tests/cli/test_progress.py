"""What a run shows while it runs: on a terminal, in a log file, in the JSON log, and when it is to be quiet."""

from __future__ import annotations

import json
import re
from collections import Counter
from fractions import Fraction
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console as Terminal

from gpupipe.cli.dashboard import Dashboard
from gpupipe.cli.progress import pace
from gpupipe.render.watch import WAIT, LaneReading, Reading, SegmentReading
from gpupipe.sample import make_sample

SEGMENTS = "segments: {seconds: 1}\nsessions: 2\noutput: {video: {encoder: libx264, preset: ultrafast}}\n"


def reading(at: float, frames: int, segments: int = 2) -> Reading:
    lanes = [LaneReading("writer", "write", {"write": 0.1 * at, WAIT + "encoded parts": 0.9 * at})]
    lanes += [LaneReading(f"runner-{n}", "decode", {"decode": at}) for n in range(14)]
    running = tuple(SegmentReading(index, 240, 60) for index in range(segments))
    return Reading(at, frames, frames, 3000, frames / 25, 0, tuple(lanes), running, 3, 20, {}, {})


def drawn(width: int, height: int, segments: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    shown = iter([reading(0.0, 0, segments), reading(2.0, 500, segments)])
    dashboard = Dashboard(SimpleNamespace(read=lambda: next(shown)), "cpu")
    figures = {
        "gpu": 97.0,
        "nvdec": 88.0,
        "memory_mib": 12800.0,
        "memory_total_mib": 143771.0,
        "power_w": 412.0,
        "temperature_c": 63.0,
    }
    monkeypatch.setattr(dashboard, "_gauge", SimpleNamespace(read=lambda: figures))
    terminal = Terminal(file=StringIO(), width=width, height=height, color_system=None)
    terminal.print(dashboard)
    terminal.file.truncate(0)
    terminal.file.seek(0)
    terminal.print(dashboard)
    return terminal.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height", "segments", "rows"), [(80, 24, 2, 6), (80, 24, 30, 21), (200, 50, 30, 34)])
def test_fits_the_terminal(width, height, segments, rows, monkeypatch):
    lines = drawn(width, height, segments, monkeypatch)
    assert len(lines) == rows
    assert max(map(len, map(str.rstrip, lines))) <= min(width, 100)
    assert sum(line.startswith("segment ") for line in lines) == min(segments, rows - 5 if rows == 21 else 30)
    assert (lines[-1].strip() == "and 14 more segments") == (rows == 21)


def test_says_how_fast_and_what_is_left(monkeypatch):
    bar, speed, lanes, machine, *_ = drawn(80, 24, 2, monkeypatch)
    assert bar.rstrip().endswith("16 %")
    assert speed.rstrip() == "500/3000 frames   250/s   10.00x real time   0:10 left"
    assert lanes.rstrip() == "lanes    1 writer 10 %   14 runner 100 % at work"
    assert re.fullmatch(
        r"machine  GPU 97 %  NVDEC 88 %  memory [\d.]+ GiB  GPU 12.5/140 GiB  412 W  63 C", machine.rstrip()
    )


def test_events_of_the_json_log(cli, job, tmp_path, monkeypatch):
    clip = tmp_path / "clip.mov"
    make_sample(clip, seconds=6, size=(320, 180), rate=Fraction(25))
    monkeypatch.setattr("gpupipe.cli.progress.EVENT_EVERY", 0.0)
    shown = cli(
        "run",
        job(SEGMENTS),
        clip,
        tmp_path / "o.mp4",
        "--device",
        "cpu",
        "--log",
        "json",
        "--log-file",
        tmp_path / "log",
    )
    assert shown.code == 0
    events = [json.loads(line) for line in shown.err.splitlines()]
    last = [event for event in events if event["event"] == "progress"][-1]
    assert (last["frames"], last["segments"]["finished"]) == (150, last["segments"]["total"])
    assert set(last["lanes"]) == {"writer", "runner-0", "runner-1"}
    assert all(0 <= share <= 1 for share in last["lanes"].values())
    assert (tmp_path / "log").read_text() == shown.err


def test_quiet_says_nothing_and_the_log_file_everything(cli, clip, config, tmp_path):
    log = tmp_path / "run.log"
    log.write_text("before\n")
    shown = cli("run", config, clip, tmp_path / "o.mp4", "--device", "cpu", "--quiet", "--log-file", log)
    assert (shown.code, shown.out, shown.err) == (0, "", "")
    first, *rest = log.read_text().splitlines()
    assert first == "before"
    assert all(re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z ", line) for line in rest)
    assert "done: " in rest[-1]
    refused = cli("run", config, clip, tmp_path / "o.mp4", "--device", "cpu", "--quiet", "--log-file", log)
    assert refused.err.startswith("error: ")
    assert Counter(refused.err)["\n"] == 1
    assert log.read_text().splitlines()[-1].endswith(refused.err.strip())


def test_a_log_file_that_cannot_be_written(cli, clip, config, tmp_path):
    shown = cli("run", config, clip, tmp_path / "o.mp4", "--log-file", tmp_path / "none" / "log")
    assert shown.code == 5
    assert "the folder does not exist" in shown.err


def test_a_pipe_gets_no_control_characters(program, clip, config, tmp_path):
    shown = program("run", config, clip, tmp_path / "o.mp4", "--device", "cpu")
    assert shown.code == 0
    assert all(c.isprintable() or c == "\n" for c in shown.out + shown.err)


@pytest.mark.parametrize(("rate", "shown"), [(0.0, "0"), (0.163, "0.16"), (2.44, "2.4"), (9.96, "10"), (240.4, "240")])
def test_a_slow_run_is_not_said_to_stand(rate, shown):
    assert pace(rate) == shown
