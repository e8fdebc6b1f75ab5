"""File names: whatever a file system takes, sources, outputs, images and LUTs may be called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

X264 = "output: {video: {encoder: libx264, preset: ultrafast}}\n"
LONGEST = 255
NAMES = [
    "two words", " leading", "trailing ", "it's \"quoted\"", "line\nbreak", "tab\there", "-i", "--json", "%d", "%03d",
    "100%25", "file:a", "http:a", "https:__a", "concat:a|b", "pipe:1", "subfile,,start,0,end,0,,:a", "data:a", "fd:1",
    "crypto:a", "C:\\a", "back\\slash", "a*b?[c]", "{a,b}", "#a", "a;b", "$(a)", "~a", ".hidden", "Größe 映画 🎬",
    "e\u0301", "\u202eright to left", "\x1b[31m", "\udcff\udcfe", "n" * 251, "ä" * 125 + "n",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_any_name(cli, clip, ffprobe, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    source, output = f"{name}.mov", f"{name}.mp4"
    assert len(os.fsencode(source)) <= LONGEST
    Path("c.yaml").write_text(X264)
    Path(source).write_bytes(clip.read_bytes())
    shown = cli("run", "--device", "cpu", "--", "c.yaml", source, output)
    assert shown.code == 0, shown.err
    assert {os.fsencode(path.name) for path in tmp_path.iterdir()} == {
        os.fsencode(n) for n in ("c.yaml", source, output)
    }
    assert ffprobe(Path(os.path.relpath(output)))["streams"][0]["codec_name"] == "h264"
    assert all(line.isprintable() for line in shown.err.splitlines())
    assert shown.err.splitlines()[-1].startswith("done: ")


@pytest.mark.parametrize(
    "name", ["a b", "-a", "file:a", "http:a", "%d", "a'b\"", "line\nbreak", "Größe", "a*[b]", "\\a"]
)
def test_any_name_in_a_config(cli, clip, ffmpeg, tmp_path, monkeypatch, name):
    """Written with YAML's double quotes, as any YAML library would."""
    monkeypatch.chdir(tmp_path)
    ffmpeg("-f", "lavfi", "-i", "color=red:s=16x16", "-frames:v", 1, "logo.png")
    Path("logo.png").rename(f"{name}.png")
    Path(f"{name}.cube").write_text("LUT_1D_SIZE 2\n0 0 0\n1 1 1\n")
    Path(f"{name}.mov").write_bytes(clip.read_bytes())
    quoted = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    Path("c.yaml").write_text(
        f'input: "{quoted}.mov"\nrange: {{end: 0.2}}\n'
        f'stages: [overlay: {{image: "{quoted}.png"}}, lut3d: {{file: "{quoted}.cube"}}]\n'
        f'output: {{path: "{quoted}.mkv", video: {{encoder: libx264, preset: ultrafast}}}}\n'
    )
    shown = cli("run", "--device", "cpu", "--", "c.yaml")
    assert shown.code == 0, shown.err
    assert Path(f"{name}.mkv").stat().st_size


def test_no_name_is_a_network_address(cli, clip, tmp_path, monkeypatch):
    """What looks like one is a file, or there is none."""
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(X264)
    for name in ("http://127.0.0.1:9/a.mov", "rtmp://127.0.0.1:9/a.mov", "pipe:0", "file:a.mov", "lavfi:testsrc"):
        shown = cli("run", "--device", "cpu", "--", "c.yaml", name, "o.mp4")
        assert shown.code == 1
        assert "no such file" in shown.err
    shown = cli("run", "--device", "cpu", "--", "c.yaml", clip, "http://127.0.0.1:9/o.mp4")
    assert (shown.code, "does not exist (create it first)" in shown.err) == (1, True)


def test_a_report_and_a_preview_of_a_name_that_is_no_text(cli, clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(X264)
    source = "a\udcff.mov"
    Path(source).write_bytes(clip.read_bytes())
    reports = ("--report", "r.json", "--report", "r.html")
    assert cli("run", "c.yaml", source, "o.mp4", "--device", "cpu", *reports).code == 0
    assert json.loads(Path("r.json").read_text(encoding="utf-8"))["plan"]["source"]["path"] == source
    assert "a\\udcff.mov" in Path("r.html").read_text(encoding="utf-8")
    assert cli("preview", "c.yaml", source, "--at", "0", "-o", "p.html").code == 0
    assert "a\\udcff.mov" in Path("p.html").read_text(encoding="utf-8")


def test_a_log_is_added_to_no_media_and_no_config(cli, clip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(X264)
    Path("a.mov").write_bytes(clip.read_bytes())
    Path("log").write_text("before\n")
    for verb, words in (("run", ("a.mov", "o.mp4")), ("batch", ("a.mov", "--output-dir", "out"))):
        for name in ("a.mov", "c.yaml", "./c.yaml"):
            shown = cli(verb, "c.yaml", *words, "--device", "cpu", "--log-file", name)
            assert shown.code == 1
            assert "is no log, nothing is added to it" in shown.err
    assert Path("a.mov").read_bytes() == clip.read_bytes()
    assert Path("c.yaml").read_text() == X264
    assert cli("run", "c.yaml", "a.mov", "o.mp4", "--device", "cpu", "--log-file", "log").code == 0
    assert Path("log").read_text().startswith("before\n2")
