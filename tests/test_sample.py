"""The sample clip, looked at with ffmpeg and ffprobe."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gpupipe.errors import MediaError
from gpupipe.sample import frame_number, make_sample, pictures

if TYPE_CHECKING:
    from pathlib import Path

SIZE = (320, 180)


def decoded(path: Path, size: tuple[int, int]) -> np.ndarray:
    """(frames, H, W): luma as ffmpeg decodes it."""
    how = ["-map", "0:v", "-vsync", "passthrough", "-f", "rawvideo", "-pix_fmt", "yuv420p"]
    command = ["ffmpeg", "-v", "error", "-i", f"file:{path}", *how, "-"]
    raw = subprocess.run(command, capture_output=True, check=True, timeout=240).stdout
    width, height = size
    return np.frombuffer(raw, np.uint8).reshape(-1, height * 3 // 2, width)[:, :height]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "s.mov"
    make_sample(path, seconds=3, size=SIZE)
    return path


def test_every_frame_shows_its_number(sample):
    assert [frame_number(picture, SIZE) for picture in decoded(sample, SIZE)] == list(range(75))


def test_numbers_are_read_where_the_picture_was_scaled(sample, tmp_path, ffmpeg):
    small = tmp_path / "small.mkv"
    ffmpeg("-i", sample, "-vf", "scale=240:136", "-an", small)
    assert [frame_number(picture, SIZE) for picture in decoded(small, (240, 136))] == list(range(75))


def test_a_large_number_is_drawn_whole():
    *_, last = pictures(12, (96, 64))
    assert frame_number(last[:64], (96, 64)) == 11


@pytest.mark.parametrize("suffix", [".mov", ".mp4", ".mkv"])
def test_two_runs_write_the_same_bytes(tmp_path, suffix):
    for name in ("a", "b"):
        make_sample(tmp_path / f"{name}{suffix}", seconds=1, size=SIZE)
    one, two = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
    assert one == two
    assert len(one) > 10_000


@pytest.mark.parametrize("suffix", [".mov", ".mp4", ".mkv"])
@pytest.mark.parametrize("rate", [Fraction(25), Fraction(24000, 1001)])
def test_streams_times_colour_and_timecode(tmp_path, ffprobe, suffix, rate):
    path = tmp_path / f"s{suffix}"
    make_sample(path, seconds=2, size=SIZE, rate=rate)
    shown = ffprobe(path)
    video, audio = shown["streams"][:2]
    assert (video["codec_name"], video["pix_fmt"], video["width"], video["height"]) == ("h264", "yuv420p", *SIZE)
    assert [video[k] for k in ("color_range", "color_space", "color_transfer", "color_primaries")] == [
        "tv",
        *["bt709"] * 3,
    ]
    assert Fraction(video["avg_frame_rate"]) == rate
    assert (audio["codec_name"], audio["sample_rate"], audio["channels"]) == ("aac", "48000", 2)
    assert abs(float(video["start_time"])) < 0.001
    tags = {k.lower(): v for s in shown["streams"] for k, v in s.get("tags", {}).items()}
    assert tags["timecode"] == "01:00:00:00"
    times = [
        float(p["pts_time"])
        for p in ffprobe(path, "-select_streams", "v", "-show_entries", "packet=pts_time")["packets"]
    ]
    assert len(times) == int(2 * rate)
    tolerance = 0.0006 if suffix == ".mkv" else 0.0001
    assert sorted(times) == pytest.approx([float(n / rate) for n in range(int(2 * rate))], abs=tolerance)


def test_bars_and_ramp_are_bt_709(sample):
    """75 % bars of BT.709 in 8 bit, as SMPTE RP 219 and ITU-R BT.1729 list them."""
    luma = decoded(sample, SIZE)[10].astype(int)
    middles = [luma[20, 320 * (2 * i + 1) // 16] for i in range(8)]
    assert middles == pytest.approx([180, 168, 145, 134, 63, 51, 28, 16], abs=2)
    ramp = luma[180 * 5 // 8 + 10]
    assert ramp[4] == pytest.approx(16 + 219 * 4 / 319, abs=3)
    assert ramp[-4] == pytest.approx(235 - 219 * 3 / 319, abs=3)


def test_a_blip_sounds_at_every_second(sample):
    command = ["ffmpeg", "-v", "error", "-i", sample, "-map", "0:a", "-f", "f32le", "-ac", "1", "-"]
    sound = np.frombuffer(subprocess.run(command, capture_output=True, check=True).stdout, np.float32)
    level = np.abs(sound[: 3 * 48000]).reshape(-1, 960).max(1)  # 20 ms each
    loud = np.flatnonzero(level > 0.3)
    assert {int(at) // 50 for at in loud} == {0, 1, 2}
    assert all(int(at) % 50 <= 2 for at in loud)
    assert level.min() > 0.05


@pytest.mark.parametrize(
    "options", [{"size": (321, 180)}, {"size": (64, 32)}, {"rate": Fraction(1, 2)}, {"rate": Fraction(500)}]
)
def test_what_cannot_be_made_is_refused(tmp_path, options):
    with pytest.raises(MediaError, match="cannot be made"):
        make_sample(tmp_path / "s.mov", **options)
    assert list(tmp_path.iterdir()) == []


def test_other_containers_and_existing_files_are_refused(tmp_path):
    with pytest.raises(MediaError, match=r"\.mov, \.mp4 or \.mkv"):
        make_sample(tmp_path / "s.avi")
    (tmp_path / "s.mov").write_text("mine")
    with pytest.raises(MediaError, match="exists"):
        make_sample(tmp_path / "s.mov")
    assert (tmp_path / "s.mov").read_text() == "mine"


def test_nothing_is_left_where_it_fails(tmp_path, monkeypatch):
    def stop(frames: int, size: tuple[int, int]):
        yield from pictures(3, size)
        raise KeyboardInterrupt

    monkeypatch.setattr("gpupipe.sample.pictures", stop)
    with pytest.raises(KeyboardInterrupt):
        make_sample(tmp_path / "s.mov", seconds=1, size=SIZE)
    assert list(tmp_path.iterdir()) == []
