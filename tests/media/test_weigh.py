"""Bytes of the main video beside ffprobe's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpupipe.media.timeline import Window
from gpupipe.media.weigh import video_bytes

if TYPE_CHECKING:
    from pathlib import Path


def packets(ffprobe, path: Path) -> list[dict]:
    return ffprobe(path, "-select_streams", "v:0", "-show_entries", "packet=pts,size,flags")["packets"]


@pytest.mark.parametrize(
    "name", ["rot_plus90_h264_aac.mp4", "two_video_two_audio_two_subs.mp4", "crop_hevc_914x686_b4.ts"]
)
def test_all_of_it(corpus: Path, ffprobe, name: str) -> None:
    path = corpus / "files" / name
    assert video_bytes(path) == sum(int(p["size"]) for p in packets(ffprobe, path))


def test_a_range_begins_at_its_key_frame_and_ends_before_its_end(tmp_path: Path, ffmpeg, ffprobe) -> None:
    path = tmp_path / "a.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x90:r=25:d=4", "-c:v", "libx264", "-bf", "0", "-g", "25", path)
    wanted = sum(int(p["size"]) for p in packets(ffprobe, path) if 1000 <= int(p["pts"]) < 2520)
    assert video_bytes(path, Window(1480, 2520)) == wanted
    assert wanted < video_bytes(path)
