"""`gpupipe probe` against ffprobe."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest


@pytest.mark.parametrize(
    "name",
    [
        "gopro_tmcd_timecode_gpmf_data.mp4",
        "mkv_chapters_h264_444_start_neg.mkv",
        "two_video_two_audio_two_subs.mp4",
        "prores_422_proxy.mov",
    ],
)
def test_json_agrees_with_ffprobe(cli, corpus, ffprobe, name):
    path = corpus / "files" / name
    shown = cli("probe", "--json", path)
    assert (shown.code, shown.err) == (0, "")
    ours, theirs = json.loads(shown.out), ffprobe(path)
    main = next(s for s in theirs["streams"] if s["codec_type"] == "video")
    assert len(ours["streams"]) == len(theirs["streams"])
    assert ours["video"]["index"] == main["index"]
    assert ours["video"]["codec"] == main["codec_name"]
    assert Fraction(ours["video"]["rate"]) == Fraction(main["avg_frame_rate"])
    assert ours["video"]["native_pixels"] == main["pix_fmt"]
    assert Fraction(ours["video"]["time_base"]) == Fraction(main["time_base"])
    assert len(ours["chapters"]) == len(theirs["chapters"])


def test_text_names_what_people_look_for(cli, corpus):
    path = corpus / "files" / "gopro_tmcd_timecode_gpmf_data.mp4"
    shown = cli("probe", path)
    for fact in (str(path), "h264", "848x480", "30000/1001", "range full", "15:44:35:10", "aac"):
        assert fact in shown.out


@pytest.mark.parametrize("content", [b"", b"only some text\n"])
def test_what_is_no_video_is_an_error_that_names_the_file(cli, tmp_path, content):
    path = tmp_path / "clip.mp4"
    path.write_bytes(content)
    for target in (path, tmp_path, tmp_path / "missing.mov"):
        shown = cli("probe", target)
        assert (shown.code, shown.out) == (1, "")
        assert shown.err.startswith(f"error: {target}")
        assert shown.err.count("\n") == 1
