"""The JSON log against its schema in the README, and places that name file, segment, stage and pts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpupipe.cli import progress
from gpupipe.codecs.libav import LibavDecoder, LibavEncoder
from gpupipe.stages.warp import STAGE as WARP

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
CONFIG = "{segments: {seconds: 1}, sessions: 2, stages: [{warp: {rotate: 5}}], output: {video: {preset: ultrafast}}}"


def schema() -> dict[str, set[str]]:
    """Event to all words in code of its row."""
    table = README[README.index("## The JSON log") :]
    rows = re.findall(r"^\| `([a-z]+)` \| (.*) \|$", table[: table.index("Fields may be added")], re.MULTILINE)
    return {event: set(re.findall(r"`([a-z_]+)`", fields)) for event, fields in rows}


@pytest.fixture(scope="module")
def clip(sample_clip):
    return sample_clip(4, (160, 90))


@pytest.fixture
def words(clip, tmp_path):
    (tmp_path / "c.yaml").write_text(CONFIG)
    return ("run", tmp_path / "c.yaml", clip, tmp_path / "o.mp4", "--device", "cpu")


def fails_once(monkeypatch, owner, name, error, after=20):
    calls, original = iter(range(10_000)), getattr(owner, name)

    def call(*args: object, **more: object) -> object:
        if next(calls) == after:
            raise error
        return original(*args, **more)

    monkeypatch.setattr(owner, name, call)


def test_every_field_is_documented(cli, words, clip, corpus, tmp_path, monkeypatch):
    known = schema()
    monkeypatch.setattr(progress, "EVENT_EVERY", 0.0)  # the runs are short
    run = {"start", "metrics", "warning", "progress", "happened", "done", "error"}
    assert set(known) == run | {"file", "farm"}
    fails_once(monkeypatch, LibavEncoder, "encode", MemoryError())
    ways = [(*words, "--log", "json", "--metrics-port", "127.0.0.1:0"), (*words, "--log", "json")]
    damaged = corpus / "files" / "reschange_848x464_to_424x232.h264"
    ways += [("run", words[1], damaged, tmp_path / "d.mkv", "--device", "cpu", "--log", "json")]
    (tmp_path / "d.yaml").write_text("{output: {video: {preset: ultrafast}}}")
    ways += [("run", tmp_path / "d.yaml", damaged, tmp_path / "d.mkv", "--device", "cpu", "--log", "json")]
    seen = set()
    for way in ways:
        for line in cli(*way).err.splitlines():
            event = json.loads(line)
            kind, fields = event["event"], set(event) - {"event", "time"}
            seen.add(kind)
            assert fields <= known[kind] | ({"copies"} if kind == "done" else set()), (kind, fields - known[kind])
            if kind in ("warning", "happened"):
                assert event["file"] in (str(clip), str(damaged))
    assert seen == run


def test_an_error_names_file_segment_stage_and_pts(cli, words, clip, monkeypatch):
    fails_once(monkeypatch, WARP, "__call__", RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), 60)
    monkeypatch.setattr("gpupipe.render.guard.smaller", lambda _: None)
    done = cli(*words)
    assert done.code == 7
    where = rf"{re.escape(str(clip))}: segment [0-3], stage warp pts \d+"
    assert re.search(rf"^error: {where}: out of memory, 2.00 GiB more were asked for", done.err, re.MULTILINE)


def test_a_warning_names_segment_and_pts(cli, words, monkeypatch):
    def damaged(self, packet):
        if packet is not None and packet.pts is not None and packet.pts > 30_000:
            self._journal.warn("decode-error", "damaged video skipped: x", place=f"pts {packet.pts}")
        return original(self, packet)

    original = LibavDecoder.decode
    monkeypatch.setattr(LibavDecoder, "decode", damaged)
    done = cli(*words)
    assert done.code == 0
    assert re.search(r"^warning: damaged video skipped: x \(segment [1-3], pts \d+\)$", done.err, re.MULTILINE)


def test_files_of_a_batch_are_documented(cli, clip, tmp_path):
    (tmp_path / "c.yaml").write_text("{output: {video: {preset: ultrafast}}}")
    done = cli("batch", tmp_path / "c.yaml", clip, "--output-dir", tmp_path / "out", "--device", "cpu", "--log", "json")
    events = [event for event in map(json.loads, done.err.splitlines()) if event["event"] == "file"]
    assert [event["state"] for event in events] == ["begun", "done"]
    assert set(events[0]) | set(events[1]) == {"event", "time", "source", "output", "state", "plan", "frames", "seconds",
                                              "warnings", "reason", "exit_code"}  # fmt: skip
    assert set(events[1]) - {"event", "time"} <= schema()["file"]
