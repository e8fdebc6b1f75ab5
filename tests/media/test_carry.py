"""What a container cannot hold is said before work, and what it is said to hold can be written."""

from __future__ import annotations

import pytest
from remux import Audio, Wanted, remux

from gpupipe.errors import PlanError
from gpupipe.media import carry
from gpupipe.media.containers import CONTAINERS, holds
from gpupipe.media.probe import probe


def actions(tracks) -> list[tuple[str, str, str]]:
    return [(t.kind, t.action, t.codec) for t in tracks]


def test_text_is_converted_and_pictures_are_not(corpus):
    text = probe(corpus / "files/two_video_two_audio_two_subs.mp4")
    copied = [("audio", "copy", ""), ("subtitle", "encode", "subrip")]
    expected = [("video", "encode", ""), *copied, ("video", "copy", ""), *copied]
    tracks, lost = carry.plan_tracks(text, "matroska", Wanted())
    assert (actions(tracks), lost) == (expected, ())
    picture = probe(corpus / "files/mkv_pgs_ac3.mkv")
    for name, kept in (("mp4", False), ("mov", False), ("matroska", True), ("m2ts", True)):
        tracks, lost = carry.plan_tracks(picture, name, Wanted())
        assert tracks[2].action == ("copy" if kept else "drop")
        assert [x.code for x in lost] == ([] if kept else ["subtitle-dropped"])


def test_what_is_switched_off_is_no_warning(corpus):
    info = probe(corpus / "files/gopro_tmcd_timecode_gpmf_data.mp4")
    tracks, lost = carry.plan_tracks(info, "matroska", Wanted(audio="none", subtitles="none", metadata="none"))
    assert {t.action for t in tracks if t.index != info.video.index} == {"drop"}
    assert lost == ()


def test_chapters_and_timecode_need_a_place(corpus):
    chapters = probe(corpus / "files/mkv_chapters_h264_444_start_neg.mkv")
    assert [x.code for x in carry.plan_tracks(chapters, "mpegts", Wanted())[1]] == ["chapters-dropped"]
    timecode = probe(corpus / "files/gopro_tmcd_timecode_gpmf_data.mp4")
    assert "timecode-dropped" in [x.code for x in carry.plan_tracks(timecode, "avi", Wanted())[1]]


def test_codec_and_container_must_fit():
    with pytest.raises(PlanError, match=r"mp4 cannot hold prores.*\.mov"):
        carry.check_codec("mp4", "prores")
    with pytest.raises(PlanError, match=r"webm cannot hold h264.*\.mp4"):
        carry.check_codec("webm", "h264")
    with pytest.raises(PlanError, match=r"mov cannot hold av1.*\.mp4"):
        carry.check_codec("mov", "av1")
    for name in ("mp4", "mov", "matroska", "mxf", "mpegts", "avi"):
        carry.check_codec(name, "h264")


def test_audio_that_the_container_cannot_hold(corpus):
    info = probe(corpus / "files/rot_plus90_h264_aac.mp4")
    tracks, lost = carry.plan_tracks(info, "webm", Wanted())
    assert (tracks[1].action, lost[0].code) == ("drop", "audio-dropped")
    assert "re-encode" in lost[0].message
    assert carry.plan_tracks(info, "webm", Wanted(audio=Audio("opus")))[0][1].codec == "opus"
    with pytest.raises(PlanError, match="webm cannot hold flac"):
        carry.plan_tracks(info, "webm", Wanted(audio=Audio("flac")))


def test_bluray_pcm_becomes_plain_pcm_sample_for_sample(ffmpeg, ffprobe, tmp_path):
    source, output = tmp_path / "a.m2ts", tmp_path / "out.mkv"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=160x90:r=25:d=1", "-f", "lavfi", "-i", "sine=r=48000:d=1",
        "-c:v", "mpeg2video", "-ac", "2", "-c:a", "pcm_bluray", source,
    )  # fmt: skip
    remux(source, output)
    assert ffprobe(output, "-select_streams", "a", "-show_streams")["streams"][0]["codec_name"] == "pcm_s24le"
    raw = []
    for path in (source, output):
        ffmpeg("-i", path, "-map", "0:a", "-c:a", "pcm_s16le", "-f", "s16le", tmp_path / "raw")
        raw.append((tmp_path / "raw").read_bytes())
    assert len(raw[0]) > 180_000
    assert raw[0] == raw[1]


@pytest.mark.parametrize("name", [c.name for c in CONTAINERS])
def test_what_a_container_is_said_to_hold_can_be_written(corpus, tmp_path, name):
    """AAC audio and H.264 video, where the table says yes."""
    container = next(c for c in CONTAINERS if c.name == name)
    if not holds(name, "h264"):
        with pytest.raises(PlanError):
            carry.check_codec(name, "h264")
        return
    source = corpus / ("files/ts_starts_without_keyframe.ts" if name == "avi" else "files/rot_plus90_h264_aac.mp4")
    output = tmp_path / f"out.{container.extensions[0]}"
    remux(source, output)
    assert probe(output).video.codec == "h264"
