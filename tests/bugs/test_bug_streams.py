"""Reports on what is not pixels: orientation, pixel aspect, attachments, tracks, timecode (bugs.md D11, D12, D18-D20).

Waiting for a later issue: timecode of segments written by themselves (lossless-cut#2213, named in D20).
"""

from __future__ import annotations

import struct

import av
import pytest
from oracle import facts, names, packets, pattern, payloads, pictures, streams, times, told, tone

from gpupipe.errors import PlanError

ONE = 1 << 16
MATRICES = {
    "rotate 90": ((0, ONE, 0, -ONE, 0, 0, 180 * ONE, 0, 1 << 30), ["transpose=clock"], (180, 320)),
    "rotate 180": ((-ONE, 0, 0, 0, -ONE, 0, 320 * ONE, 180 * ONE, 1 << 30), ["hflip", "vflip"], (320, 180)),
    "rotate 270": ((0, -ONE, 0, ONE, 0, 0, 0, 320 * ONE, 1 << 30), ["transpose=cclock"], (180, 320)),
    "flip left to right": ((-ONE, 0, 0, 0, ONE, 0, 320 * ONE, 0, 1 << 30), ["hflip"], (320, 180)),
    "flip top to bottom": ((ONE, 0, 0, 0, -ONE, 0, 0, 180 * ONE, 1 << 30), ["vflip"], (320, 180)),
    "transpose": ((0, ONE, 0, ONE, 0, 0, 0, 0, 1 << 30), ["transpose=cclock_flip"], (180, 320)),
    "transpose, both flips": ((0, -ONE, 0, -ONE, 0, 0, 180 * ONE, 320 * ONE, 1 << 30), ["transpose=clock_flip"], (180, 320)),
}  # fmt: skip
"""Display matrix as in a track header (ISO 14496-12), what a player does, and the size that it shows."""


def matrix_of(path):
    """The matrix in the first track header: 40 bytes into a version 0 box's payload."""
    data = path.read_bytes()
    at = data.index(b"tkhd") + 4 + 40
    return struct.unpack(">9i", data[at : at + 36])


@pytest.fixture(scope="module", params=MATRICES)
def d11(request, made):
    """ffmpeg 5.1 can write rotations only, so the flips are written over its matrix."""
    plain = made("d11a.mp4", *pattern("320x180", "30", 0.4), "-c:v", "libx264", "-preset", "ultrafast")
    path = plain.with_name(f"d11 {request.param}.mp4")
    data = bytearray(plain.read_bytes())
    at = data.index(b"tkhd") + 4 + 40
    data[at : at + 36] = struct.pack(">9i", *MATRICES[request.param][0])
    path.write_bytes(data)
    return path, *MATRICES[request.param]


def test_d11_turned_and_no_longer_marked_or_the_other_way_round(d11, job, tmp_path):
    source, matrix, filters, size = d11
    turned = pictures(source, *filters)
    for container in ("mp4", "mkv"):
        out = job(source, tmp_path / f"o.{container}").path
        (video,) = streams(out, "video")
        assert (video["width"], video["height"]) == size
        assert "side_data_list" not in video
        assert pictures(out) == turned
    assert matrix_of(tmp_path / "o.mp4")[:5] == (ONE, 0, 0, 0, ONE)
    out = job(source, tmp_path / "carried.mp4", stages=[{"orient": "off"}]).path
    (video,) = streams(out, "video")
    assert (video["width"], video["height"]) == (320, 180)
    assert pictures(out) == pictures(source)
    for i in (0, 1, 3, 4):  # the place of the origin may be written differently
        assert matrix_of(out)[i] == matrix[i]


def test_d11_the_input_that_ffmpeg_writes(made, job, tmp_path):
    plain = made("d11a.mp4", *pattern("320x180", "30", 0.4), "-c:v", "libx264", "-preset", "ultrafast")
    source = made("d11.mp4", "-i", plain, "-c", "copy", "-metadata:s:v:0", "rotate=90")
    assert streams(source, "video")[0]["side_data_list"][0]["rotation"] in (90, -90)
    out = job(source, tmp_path / "o.mp4").path
    told("ffmpeg", "-i", source, "-c:v", "ffv1", tmp_path / "turned.mkv")  # ffmpeg turns it by itself
    assert pictures(out) == pictures(tmp_path / "turned.mkv")


@pytest.fixture(scope="module")
def d12(made):
    return made("d12.mkv", *pattern("720x480", "24000/1001", 0.5), "-vf", "setsar=32/27", "-c:v", "libx264")


@pytest.mark.parametrize("container", ["mkv", "mp4", "mov"])
def test_d12_pixel_aspect_survives_scaling(d12, job, tmp_path, container):
    out = job(d12, tmp_path / f"o.{container}", stages=[{"resize": {"width": 1440, "height": 960}}]).path
    (video,) = streams(out, "video")
    assert (video["width"], video["height"]) == (1440, 960)
    assert (video["sample_aspect_ratio"], video["display_aspect_ratio"]) == ("32:27", "16:9")
    bare_of = ("-map", "0:v", "-c", "copy", "-bsf:v", "h264_mp4toannexb")
    told("ffmpeg", "-i", out, *bare_of, "-f", "h264", tmp_path / "bare.h264")
    (bare,) = streams(tmp_path / "bare.h264", "video")
    assert bare["sample_aspect_ratio"] == "32:27", "in the bitstream"
    assert stored_aspect(out) == pytest.approx(32 / 27, rel=1e-3), "in the container"


def stored_aspect(path):
    """Of a pixel, as the container alone says it: pasp in MOV and MP4, DisplayWidth by DisplayHeight in Matroska."""
    data = path.read_bytes()
    if path.suffix != ".mkv":
        at = data.index(b"pasp") + 4
        return struct.unpack(">2I", data[at : at + 8])[0] / struct.unpack(">2I", data[at : at + 8])[1]
    sides = []
    for element in (b"\x54\xb0", b"\x54\xba"):
        at = data.index(element) + 2
        length = data[at] & 0x7F
        sides.append(int.from_bytes(data[at + 1 : at + 1 + length], "big"))
    return sides[0] / sides[1] / (1440 / 960)


@pytest.fixture(scope="module")
def d18(made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("d18")
    font, text, chapters = (folder / f"d18.{kind}" for kind in ("ttf", "srt", "txt"))
    font.write_text("dummyfont")
    text.write_text("1\n00:00:00,500 --> 00:00:02,000\nhello\n")
    chapters.write_text(
        ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=2000\ntitle=One\n"
        "[CHAPTER]\nTIMEBASE=1/1000\nSTART=2000\nEND=4000\ntitle=Two\n"
    )
    return made(
        "d18.mkv", *pattern("320x180", "24", 4), *tone(4), "-i", text, "-i", chapters, "-map", "0:v", "-map", "1:a",
        "-map", "2:s", "-map_metadata", 3, "-map_chapters", 3, "-attach", font, "-metadata:s:t:0",
        "mimetype=application/x-truetype-font", "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "flac", "-c:s", "ass",
    )  # fmt: skip


def chapters_of(path):
    return [(c["start_time"], c["end_time"], c["tags"]["title"]) for c in facts(path)["chapters"]]


def test_d18_matroska_keeps_fonts_chapters_and_styles(d18, job, tmp_path):
    done = job(d18, tmp_path / "o.mkv")
    out = done.path
    assert not done.warned
    font = []
    for path in (d18, out):
        dumped = tmp_path / f"{path.stem}.font"
        told("ffmpeg", "-dump_attachment:t:0", dumped, "-i", path, "-f", "null", "-t", "0", "-")
        font.append((dumped.read_bytes(), streams(path, "attachment")[0]["tags"]))
    assert font[0][0] == font[1][0] == b"dummyfont"
    assert {k: font[1][1][k] for k in ("filename", "mimetype")} == {
        "filename": "d18.ttf",
        "mimetype": "application/x-truetype-font",
    }
    assert chapters_of(out) == chapters_of(d18)
    assert [title for *_, title in chapters_of(out)] == ["One", "Two"]
    assert packets(out, "s:0") == packets(d18, "s:0")
    headers = []
    for path in (d18, out):
        with av.open(str(path)) as container:
            headers.append(bytes(container.streams.subtitles[0].codec_context.extradata))
    assert headers[0] == headers[1], "the styles"


def test_d18_what_mp4_cannot_hold_is_said_before_work(d18, job, tmp_path):
    done = job(d18, tmp_path / "o.mp4")
    said = {n.code: n.message for n in done.plan.warnings}
    assert "d18.ttf" in said["attachment-dropped"]
    assert "ass" in said["subtitle-styling-lost"]
    assert [(a, b) for a, _, b in chapters_of(done.path)] == [("0.000000", "One"), ("2.000000", "Two")]
    assert len(streams(done.path, "subtitle")) == 1


def test_d18_or_refused_under_strict(d18, job, program, tmp_path):
    with pytest.raises(PlanError, match=r"d18\.ttf"):
        job(d18, tmp_path / "o.mp4", strict=True)
    ended = program(d18, tmp_path / "o.mp4", "--strict")
    assert ended.code == 1
    assert "d18.ttf" in ended.err
    assert names(tmp_path) == []


@pytest.fixture(scope="module")
def d19(made):
    return made(
        "d19.mp4", *pattern("320x180", "30", 4), *tone(4, 440), *tone(4, 880), "-map", 0, "-map", 1, "-map", 2,
        "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac", "-metadata:s:a:0", "language=eng",
        "-metadata:s:a:1", "language=fra", "-metadata:s:a:1", "handler_name=Doublage",
    )  # fmt: skip


@pytest.mark.parametrize("container", ["mp4", "mkv", "mov"])
def test_d19_every_sound_track(d19, job, tmp_path, container):
    out = job(d19, tmp_path / f"o.{container}").path
    sound = streams(out, "audio")
    assert [s["tags"]["language"] for s in sound] == ["eng", "fra"]
    title = "HANDLER_NAME" if container == "mkv" else "handler_name"  # that is where MP4 keeps a track's title
    assert sound[1]["tags"][title] == "Doublage"
    for track in ("a:0", "a:1"):
        assert payloads(out, track) == payloads(d19, track)
    assert payloads(out, "a:0") != payloads(out, "a:1")


def test_d19_titles_in_matroska(d19, made, job, tmp_path):
    titled = ("-metadata:s:a:0", "title=Original", "-metadata:s:a:1", "title=Doublage", "-disposition:a:1", "default")
    source = made("d19.mkv", "-i", d19, "-map", 0, "-c", "copy", *titled, "-disposition:a:0", 0)
    sound = streams(job(source, tmp_path / "o.mkv").path, "audio")
    assert [(s["tags"]["language"], s["tags"]["title"]) for s in sound] == [("eng", "Original"), ("fra", "Doublage")]
    assert [s["disposition"]["default"] for s in sound] == [0, 1]


def mezzanine(made, name, rate, seconds, timecode):
    return made(
        name, *pattern("320x180", rate, seconds), "-c:v", "prores_ks", "-profile:v", 0, "-timecode", timecode
    )  # fmt: skip


@pytest.fixture(scope="module")
def d20(made):
    return mezzanine(made, "d20.mov", "25", 6, "03:00:00:00")


def timecodes(path):
    """The start timecode as the timecode track (MOV, MP4) or the tag says it."""
    tagged = [s["tags"]["timecode"] for s in facts(path)["streams"] if s.get("codec_tag_string") == "tmcd"]
    return tagged or [
        s["tags"][k] for s in streams(path, "video") for k in s.get("tags", {}) if k.lower() == "timecode"
    ]


@pytest.mark.parametrize("container", ["mov", "mp4"])
def test_d20_timecode_is_kept(d20, job, tmp_path, container):
    assert timecodes(job(d20, tmp_path / f"o.{container}").path) == ["03:00:00:00"]


@pytest.mark.parametrize("start", ["5.24", "03:00:05:06", "pts:67072"])
def test_d20_timecode_moves_with_the_cut(d20, job, tmp_path, start):
    out = job(d20, tmp_path / "o.mov", range={"start": start}).path
    assert timecodes(out) == ["03:00:05:06"]
    assert times(out)[0] == 0
    assert pictures(out)[0] == pictures(d20, "select='eq(n,131)'", "format=yuv422p10le")[0]


def test_d20_drop_frame_stays_drop_frame(made, job, tmp_path):
    source = mezzanine(made, "d20_df.mov", "30000/1001", 2, "00:00:59;00")
    assert timecodes(job(source, tmp_path / "whole.mov").path) == ["00:00:59;00"]
    cut = job(source, tmp_path / "cut.mov", range={"start": "00:01:00;02"}).path  # labels ;00 and ;01 do not exist
    assert timecodes(cut) == ["00:01:00;02"]
    assert pictures(cut)[0] == pictures(source, "select='eq(n,30)'")[0]
