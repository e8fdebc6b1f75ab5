"""Generated clips, looked at with ffprobe and ffmpeg."""

from __future__ import annotations

from fractions import Fraction

import pytest
from bench_clips import SMALL

from gpupipe.bench.clip import Recipe, make_clip

TEN_BIT = Recipe("libx265", 192, 108, 400_000, "yuv420p10le", {"preset": "ultrafast", "x265-params": "log-level=none:open-gop=0:scenecut=0"})  # fmt: skip
B_FRAMES = Recipe("libx264", 192, 108, 400_000, options={"preset": "veryfast", "sc_threshold": "0"})


@pytest.mark.parametrize(("recipe", "pixels"), [(SMALL, "yuv420p"), (B_FRAMES, "yuv420p"), (TEN_BIT, "yuv420p10le")])
def test_goes_on_after_what_was_encoded(tmp_path, monkeypatch, ffprobe, ffmpeg, recipe, pixels):
    monkeypatch.setattr("gpupipe.bench.clip.DISTINCT", 60)
    path = tmp_path / "clip.mp4"
    make_clip(path, recipe, 140)
    (video,) = ffprobe(path, "-count_frames", "-show_streams")["streams"]
    assert (video["nb_read_frames"], video["pix_fmt"], video["has_b_frames"] > 0) == ("150", pixels, recipe != SMALL)
    assert (video["color_space"], video["color_range"]) == ("bt709", "tv")
    packets = ffprobe(path, "-show_entries", "packet=pts_time,flags")["packets"]
    assert [n for n, p in enumerate(packets) if "K" in p["flags"]] == [0, 30, 60, 90, 120]
    times = sorted(Fraction(p["pts_time"]) for p in packets)
    assert [round(t * 30) for t in times] == list(range(150))
    assert ffmpeg("-v", "warning", "-i", path, "-f", "null", "-") == ""


def test_a_short_one_is_as_long_as_asked(tmp_path, ffprobe):
    path = tmp_path / "clip.mp4"
    make_clip(path, SMALL, 47)
    assert ffprobe(path, "-count_frames", "-show_streams")["streams"][0]["nb_read_frames"] == "47"
    assert [p.name for p in tmp_path.iterdir()] == ["clip.mp4"]
