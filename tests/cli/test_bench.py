"""`gpupipe bench` as people call it."""

from __future__ import annotations

import json
import os
import signal

import av
import pytest

from gpupipe.bench import RECIPES
from gpupipe.bench.clip import Recipe
from gpupipe.render.feed import check_stop

FAST = ("--device", "cpu", "--frames", "30", "--runs", "1")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Generated clips are small."""
    recipe = Recipe("libx264", 192, 108, 400_000, options={"preset": "ultrafast", "sc_threshold": "0"})
    monkeypatch.setitem(RECIPES, "h264", recipe)


def test_a_table_and_three_files(cli, tmp_path):
    files = {name: tmp_path / f"b.{name}" for name in ("json", "md", "png")}
    shown = cli("bench", *FAST, "--json", files["json"], "--markdown", files["md"], "--chart", files["png"])
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert max(map(len, lines)) < 80
    assert [line for line in lines if line.startswith("whole, to mov")]
    assert "Not measured: how busy GPU and NVDEC are (this run has no GPU)" in " ".join(lines)
    report = json.loads(files["json"].read_text())
    assert report["command"] == "gpupipe bench --frames 30 --runs 1 --device cpu"
    assert [r["name"] for r in report["rows"]][:4] == ["decode", "convert", "warp", "overlay"]
    assert f"`{report['command']}`" in files["md"].read_text()
    with av.open(str(files["png"])) as picture:
        assert picture.streams.video[0].width == 1280
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.json", "b.md", "b.png"]


def test_checks_before_it_times(cli):
    shown = cli("bench", *FAST, "--only", "decode")
    said = shown.err.splitlines()
    assert said.index("checking what comes out") < min(n for n, line in enumerate(said) if line.startswith("run 1"))
    assert sum(line.startswith("run") for line in said) == 1


def test_a_config_and_a_file(cli, clip, job, tmp_path):
    config = job(f"input: {clip}\nstages: [{{crop: {{width: 160, height: 90}}}}]\noutput: {{video: {{codec: ffv1}}}}\n")
    shown = cli(
        "bench", config, *FAST, "--json", tmp_path / "b.json", "--only", "decode,crop,whole", "--encode", "x264"
    )
    assert shown.code == 0, shown.err
    report = json.loads((tmp_path / "b.json").read_text())
    assert (report["clip"]["name"], report["clip"]["frames"], report["clip"]["width"]) == ("clip.mov", 30, 320)
    assert [r["label"] for r in report["rows"]] == ["decode only", "+ crop", "whole, to mp4"]
    assert str(tmp_path) not in json.dumps(report["plan"])


def test_sessions_are_tried_where_the_plan_is_cut(cli, job, tmp_path):
    config = job("segments: {seconds: 1}\noutput: {video: {codec: ffv1}}\n")
    path = tmp_path / "b.json"
    options = ("--device", "cpu", "--frames", "90", "--runs", "1", "--sessions", "1,3")
    shown = cli("bench", config, *options, "--only", "decode", "--json", path)
    assert shown.code == 0, shown.err
    report = json.loads(path.read_text())
    assert set(report["tried"]) == {"1", "3"}
    assert report["rows"][0]["sessions"] in (1, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--sessions", "0"), "numbers of sessions are 1 to 64"),
        (("--sessions", "1,x"), "numbers of sessions are 1 to 64"),
        (("--frames", "3"), "--frames"),
        (("--encode", "x263"), "--encode"),
        (("--codec", "av1"), "--codec"),
    ],
)
def test_wrong_options_are_usage_errors(cli, options, message):
    shown = cli("bench", *options)
    assert shown.code == 2
    assert message in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "wrap"), "--only: there is no row 'wrap' here (one of decode, convert, warp"),
        (("--input", "none.mov"), "none.mov: "),
        (("c.yaml",), "c.yaml: stages: a bench counts one frame out for one in"),
        (("--json", "old.json"), "old.json: the output exists (give --overwrite"),
        (("--json", "no/b.json"), "no/b.json: the folder "),
        (("--json", "c.yaml", "--overwrite", "c.yaml"), "c.yaml: the output is the input"),
    ],
)
def test_failures_are_one_line_and_leave_nothing(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("stages: [{fps: {rate: '24'}}]\n")
    (tmp_path / "old.json").write_text("mine")
    shown = cli("bench", *FAST, "--quiet", *arguments)
    assert (shown.code in (1, 5), shown.out) == (True, "")
    assert shown.err.startswith(f"error: {message}")
    assert shown.err.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c.yaml", "old.json"]
    assert (tmp_path / "old.json").read_text() == "mine"


def test_replaces_what_it_may(cli, tmp_path):
    path = tmp_path / "b.json"
    path.write_text("old")
    assert cli("bench", *FAST, "--only", "decode", "--json", path, "--overwrite").code == 0
    assert json.loads(path.read_text())["schema"] == 1


def test_without_matplotlib_the_rest_is_done(cli, tmp_path, monkeypatch):
    monkeypatch.setattr("gpupipe.cli.bench.obstacle", lambda: "matplotlib is not installed")
    shown = cli("bench", *FAST, "--only", "decode", "--chart", tmp_path / "b.png", "--json", tmp_path / "b.json")
    assert shown.code == 0
    assert shown.err.startswith("warning: the chart is left out: matplotlib is not installed\n")
    assert [p.name for p in tmp_path.iterdir()] == ["b.json"]


def test_ctrl_c_ends_it_and_leaves_nothing(cli, tmp_path, monkeypatch):
    def interrupted(*_: object, stop: object, **__: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        check_stop(stop)

    monkeypatch.setattr("gpupipe.cli.bench.bench", interrupted)
    shown = cli("bench", *FAST, "--json", tmp_path / "b.json")
    assert shown.code == 130
    assert list(tmp_path.iterdir()) == []
