"""`gpupipe run --metrics-port`: what it takes, what it says, and that it never costs an output."""

from __future__ import annotations

import json
import re
import socket

import pytest


@pytest.fixture(scope="module")
def clip(sample_clip):
    return sample_clip(1, (160, 90))


@pytest.fixture
def words(clip, tmp_path):
    (tmp_path / "c.yaml").write_text("output: {video: {encoder: libx264, preset: ultrafast}}\n")
    return ("run", tmp_path / "c.yaml", clip, tmp_path / "o.mp4", "--device", "cpu", "--metrics-port")


def test_any_free_port_is_told(cli, words):
    done = cli(*words, "127.0.0.1:0")
    assert done.code == 0
    assert re.search(r"^metrics  http://127\.0\.0\.1:[0-9]+/metrics$", done.err, re.MULTILINE)


def test_the_json_log_has_the_url_before_frames(cli, words):
    done = cli(*words, "0", "--log", "json")
    events = [json.loads(line) for line in done.err.splitlines()]
    assert [e["event"] for e in events[:2]] == ["start", "metrics"]
    assert re.fullmatch(r"http://localhost:[0-9]+/metrics", events[1]["url"])


def test_a_port_in_use_leaves_nothing(cli, words, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli(*words, f"127.0.0.1:{port}")
    assert done.code == 1
    assert f"error: --metrics-port: 127.0.0.1:{port}: Address already in use" in done.err
    assert not (tmp_path / "o.mp4").exists()


@pytest.mark.parametrize("value", ["70000", "x", "127.0.0.1:", "-1", ""])
def test_no_port_is_a_wrong_command_line(cli, words, value):
    assert cli(*words, value).code == 2
