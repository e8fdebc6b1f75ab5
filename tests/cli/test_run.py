"""`gpupipe run` and `gpupipe plan`, as a person or a farm meets them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import LIMIT, hold, until

from gpupipe.cli.progress import every, line
from gpupipe.render import Progress

ARGUMENTS = ["--device", "cpu"]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_run_says_what_it_did_on_stderr_only(cli, clip, config, tmp_path, ffprobe):
    out = tmp_path / "out.mp4"
    shown = cli("run", config, clip, out, *ARGUMENTS)
    assert (shown.code, shown.out) == (0, "")
    assert f"done: {out}: 50 frames in " in shown.err
    assert "libx264" in shown.err
    assert "\x1b" not in shown.err
    streams = ffprobe(out, "-count_frames", "-show_streams")["streams"]
    assert (streams[0]["codec_name"], streams[0]["nb_read_frames"]) == ("h264", "50")
    assert names(tmp_path) == {"config.yaml", "out.mp4"}


def test_the_command_line_overrides_the_config(cli, clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(clip, "a.mov")
    Path("c.yaml").write_text(
        "input: a.mov\ndevice: cuda:7\noutput: {path: b.mp4, video: {encoder: libx264, preset: ultrafast}}"
    )
    assert cli("run", "c.yaml", "--device", "cpu", "--quiet").code == 0
    assert Path("b.mp4").is_file()
    assert cli("run", "c.yaml", "a.mov", "c.mp4", "--device", "cpu", "--quiet").code == 0
    assert Path("c.mp4").is_file()
    plan = json.loads(cli("plan", "c.yaml", "--json", "--device", "cpu").out)
    assert (plan["source"]["path"], plan["output"], plan["device"]) == ("a.mov", "b.mp4", "cpu")


def test_input_and_output_must_be_said_somewhere(cli, clip, config):
    shown = cli("run", config)
    assert (shown.code, shown.err) == (
        1,
        f"error: {config}: no input (give INPUT on the command line or `input:` in the config)\n",
    )
    shown = cli("run", config, clip)
    assert shown.code == 1
    assert "no output (give OUTPUT on the command line or `output.path:` in the config)" in shown.err


def test_plan_does_nothing(cli, clip, config, tmp_path):
    shown = cli("plan", config, clip, tmp_path / "out.mkv", *ARGUMENTS)
    assert (shown.code, shown.err) == (0, "")
    for fact in (str(clip), "320x180", "libx264", "out.mkv", "01:00:00:00"):
        assert fact in shown.out
    data = json.loads(cli("plan", "--json", config, clip, tmp_path / "out.mkv", *ARGUMENTS).out)
    assert data["encoder"]["encoder"] == "libx264"
    assert names(tmp_path) == {"config.yaml"}


def test_quiet_leaves_nothing_but_errors(cli, clip, config, tmp_path):
    out = tmp_path / "out.mp4"
    shown = cli("run", "--quiet", config, clip, out, *ARGUMENTS)
    assert (shown.code, shown.out, shown.err) == (0, "", "")
    shown = cli("run", "--quiet", config, clip, out, *ARGUMENTS)
    assert shown.code == 1
    assert shown.err.startswith(f"error: {out}: the output exists")
    assert cli("run", "--quiet", "--overwrite", config, clip, out, *ARGUMENTS).code == 0


def test_the_json_log_is_one_object_a_line(cli, clip, config, tmp_path):
    out = tmp_path / "out.mp4"
    shown = cli("run", "--log", "json", config, clip, out, *ARGUMENTS)
    events = [json.loads(line) for line in shown.err.splitlines()]
    assert [e["event"] for e in events if e["event"] not in ("progress", "warning")] == ["start", "done"]
    assert all(e["time"].endswith("Z") for e in events)
    start, done = events[0], events[-1]
    assert start["plan"]["output"] == str(out)
    assert (done["result"]["frames"], done["result"]["output"]) == (50, str(out))
    assert done["warnings"] == []
    shown = cli("run", "--log", "json", config, clip, out, *ARGUMENTS)
    (start, error) = map(json.loads, shown.err.splitlines())
    assert (error["event"], error["exit_code"], shown.code) == ("error", 1, 1)
    assert "exists" in error["message"]
    shown = cli("run", "--log", "json", "--quiet", config, clip, out, *ARGUMENTS)
    assert [json.loads(line)["event"] for line in shown.err.splitlines()] == ["error"]


def test_damage_is_a_warning_and_4_under_strict(cli, corpus, config, tmp_path):
    source = corpus / "files" / "corrupt_bad_nal_sizes.mp4"
    shown = cli("run", config, source, tmp_path / "a.mkv", *ARGUMENTS)
    assert shown.code == 0
    assert re.search(r"^warning: damaged .*\(pts \d+\)$", shown.err, re.MULTILINE)
    assert re.search(r"^done: .* kinds of warnings$", shown.err, re.MULTILINE)
    shown = cli("run", "--strict", "--log", "json", config, source, tmp_path / "b.mkv", *ARGUMENTS)
    assert shown.code == 4
    events = [json.loads(line) for line in shown.err.splitlines()]
    counted = {entry["code"]: entry["count"] for entry in events[-1]["warnings"]}
    assert counted
    assert {e["code"] for e in events if e["event"] == "warning"} >= set(counted)
    assert (tmp_path / "b.mkv").is_file()


def test_what_the_plan_knows_is_an_error_under_strict(cli, corpus, config, tmp_path):
    source = corpus / "files" / "mkv_pgs_ac3.mkv"
    shown = cli("run", config, source, tmp_path / "a.mp4", *ARGUMENTS)
    assert shown.code == 0
    assert "\nwarning: " in shown.err
    shown = cli("run", "--strict", config, source, tmp_path / "b.mp4", *ARGUMENTS)
    assert shown.code == 1
    assert shown.err.startswith("error: ")
    assert names(tmp_path) == {"config.yaml", "a.mp4"}


@pytest.mark.parametrize("name", ["-in.mov", "line\nbreak 'q' \"d\".mov", "Größe 映画.mov", "a:b%d.mov"])
def test_any_file_name_works(cli, clip, config, tmp_path, monkeypatch, name, ffprobe):
    monkeypatch.chdir(tmp_path)
    shutil.copy(clip, tmp_path / name)
    out = name.replace(".mov", " out.mp4")
    shown = cli("run", *ARGUMENTS, "--", config, name, out)
    assert shown.code == 0
    assert ffprobe(tmp_path / out)["streams"][0]["codec_name"] == "h264"
    assert all(line.isprintable() for line in shown.err.splitlines())


@pytest.fixture
def slow(config: Path) -> Path:
    """A config that gives a signal time to come."""
    config.write_text("output: {video: {codec: h264, encoder: libx264, preset: veryslow}}\n")
    return config


def started(config: Path, corpus: Path, folder: Path) -> subprocess.Popen[str]:
    """A run that has begun to write."""
    source = corpus / "files" / "long_6min_1080p30_aac.mp4"
    command = [sys.executable, "-m", "gpupipe", "run", config, source, folder / "out.mp4", *ARGUMENTS]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: any(path.suffix == ".part" for path in folder.iterdir()), process)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_and_leaves_nothing(slow, corpus, tmp_path, number):
    process = started(slow, corpus, tmp_path)
    process.send_signal(number)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert f"stopping ({number.name}); once more to stop at once\n" in err
    assert err.splitlines()[-1].startswith("error: stopped")
    assert "again" in err.splitlines()[-1]
    assert names(tmp_path) == {"config.yaml"}


def test_a_second_signal_stops_at_once(slow, corpus, tmp_path):
    process = started(slow, corpus, tmp_path)
    hold(process)  # so that both signals lie there before the run can look at the first
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
        process.send_signal(number)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "stopped at once" in err
    assert not (tmp_path / "out.mp4").exists()


def test_a_terminal_gets_a_bar_that_leaves_no_trace(clip, config, tmp_path):
    config.write_text("output: {video: {codec: h264, encoder: libx264, preset: veryslow}}\n")
    main, side = pty.openpty()
    command = [sys.executable, "-m", "gpupipe", "run", config, clip, tmp_path / "out.mp4", *ARGUMENTS]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(command, stderr=side, stdout=subprocess.DEVNULL, env=environment)
    os.close(side)
    seen = b""
    while select.select([main], [], [], LIMIT)[0]:
        try:
            seen += os.read(main, 65536)
        except OSError:  # the other end is closed
            break
    os.close(main)
    assert process.wait(timeout=240) == 0
    text = seen.decode()
    assert "/50 frames" in text
    assert "\x1b[2K" in text  # the bar's line was erased
    assert "done: " in text.splitlines()[-1]


def test_progress_lines_elsewhere():
    lines = []
    report = every(10.0, lambda now: lines.append(line(now)))
    for second in range(36):
        report(Progress(frames=second * 24, total=2400, pts_seconds=float(second), elapsed=float(second)))
    assert lines == [
        "240/2400 frames (10 %), 24 a second, 1:30 left",
        "480/2400 frames (20 %), 24 a second, 1:20 left",
        "720/2400 frames (30 %), 24 a second, 1:10 left",
    ]
    assert line(Progress(100, None, 4.0, 2.0)) == "100 frames, 50 a second"
    assert line(Progress(100, 1_000_000, 4.0, 2.0)).endswith(", 5:33:18 left")
