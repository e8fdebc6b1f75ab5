"""Every corpus file against Debian's ffprobe, and what is no source at all."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from fractions import Fraction
from pathlib import Path

import av
import pytest

from gpupipe.color import Matrix, Range
from gpupipe.errors import MediaError
from gpupipe.media.container import open_input
from gpupipe.media.picture import embedded_timecode, first_picture
from gpupipe.media.pixels import nearest_pixels
from gpupipe.media.probe import main_video, probe

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
ROWS = {Path(row["file"]).name: row for row in csv.DictReader((CORPUS / "manifest.csv").read_text().splitlines())}
READABLE = sorted(name for name, row in ROWS.items() if row["codec"])

MATRIX = {"bt709": 1, "bt470bg": 5, "smpte170m": 6, "bt2020nc": 9}
TRANSFER = {"bt709": 1, "smpte170m": 6, "bt2020-10": 14, "smpte2084": 16, "arib-std-b67": 18}
PRIMARIES = {"bt709": 1, "bt470bg": 5, "smpte170m": 6, "bt2020": 9}
RANGE = {"tv": Range.LIMITED, "pc": Range.FULL}
NEWER = {
    "fmp4_bogus_duration.mp4": "ffprobe 5.1 believes its header; libavformat 8 adds up the fragments",
    "two_video_two_audio_two_subs.mp4": "ffprobe 5.1 counts subtitles that outlast sound and picture",
    "start_at_10s_2b_sar1137_800.mp4": "ffprobe 5.1 counts the ten seconds before the first picture",
    "mkv_chapters_h264_444_start_neg.mkv": "ffprobe 5.1 counts the sound encoder's delay, which no player plays",
}


@pytest.fixture(scope="module")
def shown(ffprobe):
    cache = {}

    def show(name: str) -> dict:
        if name not in cache:
            cache[name] = ffprobe(CORPUS / "files" / name)
        return cache[name]

    return show


def main_stream(shown: dict) -> dict:
    return next(s for s in shown["streams"] if s["codec_type"] == "video" and not s["disposition"]["attached_pic"])


def ratio(text: str | None) -> Fraction:
    top, bottom = (text or "0/1").replace(":", "/").split("/")
    return Fraction(int(top), int(bottom)) if int(bottom) else Fraction(0)


def matrix_of(stream: dict) -> tuple[int, ...] | None:
    for data in stream.get("side_data_list", []):
        if "displaymatrix" in data:
            return tuple(
                int(n) for line in data["displaymatrix"].strip().splitlines() for n in line.split(":")[1].split()
            )
    return None


@pytest.mark.parametrize("name", READABLE)
def test_main_video_is_what_ffprobe_says(name, corpus, shown):
    info, oracle = probe(corpus / "files" / name), main_stream(shown(name))
    video = info.video
    assert (video.index, video.codec) == (oracle["index"], oracle["codec_name"])
    assert (video.format.width, video.format.height) == (oracle["width"], oracle["height"])
    assert video.native_pixels == oracle["pix_fmt"]
    assert video.format.pixels.name == oracle["pix_fmt"].replace("yuvj", "yuv")
    if name != "one_frame_av1_64x64.mp4":  # libavformat 8 reads its AV1 header, ffprobe 5.1 does not
        assert video.format.sample_aspect == ratio(oracle.get("sample_aspect_ratio"))
    assert video.format.field_order == oracle.get("field_order", "unknown")
    assert video.time_base == ratio(oracle["time_base"])
    assert video.frames == (int(oracle["nb_frames"]) if "nb_frames" in oracle else video.frames)
    assert video.display_matrix == matrix_of(oracle)
    assert video.timecode == (oracle["tags"]["timecode"] if "timecode" in oracle.get("tags", {}) else video.timecode)
    rates = (ratio(oracle["avg_frame_rate"]), ratio(oracle["r_frame_rate"]))
    assert video.rate == next(r for r in rates if r)


@pytest.mark.parametrize("name", READABLE)
def test_colour_is_what_ffprobe_says(name, corpus, shown):
    color, oracle = probe(corpus / "files" / name).video.format.color, main_stream(shown(name))
    said = {k: v for k, v in oracle.items() if v not in ("unknown", "unspecified")}
    assert said.get("color_space") is None or color.matrix == MATRIX[said["color_space"]]
    assert said.get("color_transfer") is None or color.transfer == TRANSFER[said["color_transfer"]]
    assert said.get("color_primaries") is None or color.primaries == PRIMARIES[said["color_primaries"]]
    assert said.get("color_range") is None or color.range == RANGE[said["color_range"]]
    assert said.get("chroma_location") == color.chroma_location


@pytest.mark.parametrize("name", READABLE)
def test_container_is_what_ffprobe_says(name, corpus, shown):
    info, oracle = probe(corpus / "files" / name), shown(name)
    assert info.container == oracle["format"]["format_name"]
    kinds = [("cover" if s["disposition"]["attached_pic"] else s["codec_type"]) for s in oracle["streams"]]
    assert [s.kind for s in info.streams] == kinds
    named = [
        (s.codec, o["codec_name"]) for s, o in zip(info.streams, oracle["streams"], strict=True) if "codec_name" in o
    ]
    assert all(ours == theirs for ours, theirs in named)
    for stream, other in zip(info.streams, oracle["streams"], strict=True):
        assert set(stream.disposition) >= {key for key, on in other["disposition"].items() if on}
        tags = {k: v for k, v in other.get("tags", {}).items() if k != "rotate" and v != "[0][0][0][0]"}  # 5.1 only
        assert stream.tags.items() >= tags.items()
        assert other["codec_type"] != "data" or stream.details["tag"] == other["codec_tag_string"]
    assert [c["metadata"] for c in info.chapters] == [c.get("tags", {}) for c in oracle["chapters"]]
    assert [int(c["start"] * c["time_base"]) for c in info.chapters] == [
        int(float(c["start_time"])) for c in oracle["chapters"]
    ]
    assert info.size_bytes == int(oracle["format"]["size"])
    if name in NEWER or "start_time" not in oracle["format"]:
        return
    assert float(info.start) == pytest.approx(float(oracle["format"]["start_time"]), abs=1e-6)
    assert float(info.duration) == pytest.approx(float(oracle["format"]["duration"]), abs=0.05)


def test_corpus_files_leave_the_terminal_alone(corpus, capfd):
    for name in ROWS:
        try:
            probe(corpus / "files" / name)
        except MediaError:
            assert name == "zero_length.mov"
    assert capfd.readouterr() == ("", "")


def hdr_of(ffprobe, path):
    """x265 notation and light levels from what ffprobe finds with the first frame or the stream."""
    found = ffprobe(path, "-select_streams", "v:0", "-show_streams", "-show_frames", "-read_intervals", "%+#1")
    data = [d for part in (*found["frames"], *found["streams"]) for d in part.get("side_data_list", [])]
    mastering = next(d for d in data if d["side_data_type"] == "Mastering display metadata")
    light = next(d for d in data if d["side_data_type"] == "Content light level metadata")

    def units(key: str, scale: int) -> int:
        return round(ratio(mastering[key]) * scale)

    parts = [(p, f"{c}_x", f"{c}_y") for p, c in (("G", "green"), ("B", "blue"), ("R", "red"), ("WP", "white_point"))]
    text = "".join(f"{p}({units(x, 50000)},{units(y, 50000)})" for p, x, y in parts)
    text += f"L({units('max_luminance', 10000)},{units('min_luminance', 10000)})"
    return text, (light["max_content"], light["max_average"])


@pytest.mark.parametrize(
    ("name", "dynamic"), [("hdr10_av1_container_mastering_cll.mp4", False), ("hdr10plus_hevc_sei_mastering.mkv", True)]
)
def test_hdr_metadata_from_container_and_from_bitstream(name, dynamic, corpus, ffprobe):
    hdr = probe(corpus / "files" / name).video.hdr
    assert (hdr.mastering_display, hdr.content_light) == hdr_of(ffprobe, corpus / "files" / name)
    assert hdr.dynamic is dynamic


def test_timecode_of_mxf_header(corpus, ffprobe):
    path = corpus / "files" / "imx_d10_720x608_vbi_422i.mxf"
    assert probe(path).video.timecode == ffprobe(path)["format"]["tags"]["timecode"]


def test_timecode_of_first_picture(corpus, ffprobe):
    path = corpus / "files" / "ts_starts_without_keyframe.ts"
    frames = ffprobe(path, "-select_streams", "v:0", "-show_frames")["frames"]
    data = frames[0]["side_data_list"]
    oracle = next(d["timecodes"][0]["value"] for d in data if "timecodes" in d)
    assert probe(path).video.timecode == oracle
    assert embedded_timecode({}, Fraction(25)) is None


def test_tmcd_timecode(tmp_path, ffmpeg):
    """D20."""
    path = tmp_path / "d20.mov"
    source = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=1"]
    ffmpeg(*source, "-c:v", "prores_ks", "-profile:v", "0", "-timecode", "03:00:00:00", path)
    assert probe(path).video.timecode == "03:00:00:00"


@pytest.mark.parametrize(
    ("native", "ours", "words"),
    [
        ("yuv411p", "yuv422p", "yuv411p"),
        ("yuv410p", "yuv420p", "yuv410p"),
        ("yuv440p", "yuv444p", "yuv440p"),
        ("yuva420p10be", "yuv420p10le", "alpha (10 bit) apart"),
        ("rgb24", "gbrp", "rgb24"),
        ("bgra", "gbrp", "alpha (8 bit) apart"),
        ("pal8", "gbrp", "pal8"),
        ("rgb48le", "gbrp12le", "16 bit cut to 12"),
        ("gray16le", "gray12le", "16 bit cut to 12"),
        ("monow", "gray", "monow"),
        ("yuyv422", "yuv422p", "yuyv422"),
        ("p210le", "yuv422p10le", "p210le"),
        ("yuv420p9le", "yuv420p10le", "yuv420p9le"),
        ("yuv420p10be", "yuv420p10le", "yuv420p10be"),
    ],
)
def test_formats_without_own_arithmetic_take_the_nearest(native, ours, words):
    pixels, notes = nearest_pixels(av.VideoFormat(native, 64, 48))
    assert pixels.name == ours
    assert words in notes[0]


@pytest.mark.parametrize("native", ["yuv420p", "yuva420p", "yuva444p10le", "gbrap12le"])
def test_formats_with_own_arithmetic_are_themselves(native):
    pixels, notes = nearest_pixels(av.VideoFormat(native, 64, 48))
    assert pixels.name == native.replace("yuva", "yuv").replace("gbrap", "gbrp")
    assert notes == ()


@pytest.mark.parametrize(
    ("codec", "pixels", "ours"), [("ffv1", "bgra", "gbrp"), ("ffv1", "yuv411p", "yuv422p"), ("qtrle", "rgb24", "gbrp")]
)
def test_real_streams_in_such_formats(codec, pixels, ours, tmp_path, ffmpeg):
    path = tmp_path / "a.mov"
    ffmpeg(
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=64x48:r=25",
        "-frames:v",
        2,
        "-pix_fmt",
        pixels,
        "-c:v",
        codec,
        "-strict",
        "-2",
        path,
    )
    info = probe(path)
    assert (info.video.native_pixels, info.video.format.pixels.name) == (pixels, ours)
    assert any(pixels in note for note in info.notes)
    assert info.video.format.pixels.family != "rgb" or info.video.format.color.matrix in (
        Matrix.RGB,
        Matrix.UNSPECIFIED,
    )


def test_field_order_comes_from_the_picture_where_the_stream_is_silent(tmp_path, ffmpeg):
    """libx264's MBAFF says so in pictures only: the order must be that of the encoder's input."""
    for order, filters in (("tt", "setfield=tff"), ("bb", "setfield=bff")):
        path = tmp_path / f"{order}.ts"
        flags = ["-flags", "+ildct+ilme", "-x264-params", f"{'tff' if order == 'tt' else 'bff'}=1"]
        ffmpeg(
            "-f",
            "lavfi",
            "-i",
            "testsrc2=s=64x64:r=25",
            "-frames:v",
            3,
            "-vf",
            filters,
            "-c:v",
            "libx264",
            *flags,
            path,
        )
        assert probe(path).video.format.field_order == order


def test_attachments_subtitles_and_chapters(tmp_path, ffmpeg):
    """D18."""
    font, text, marks, path = (tmp_path / n for n in ("d18.ttf", "d18.srt", "d18.txt", "d18.mkv"))
    font.write_text("dummyfont")
    text.write_text("1\n00:00:00,100 --> 00:00:00,500\nhello\n")
    chapters = "".join(f"[CHAPTER]\nTIMEBASE=1/1000\nSTART={n}\nEND={n + 500}\ntitle=At {n}\n" for n in (0, 500))
    marks.write_text(f";FFMETADATA1\n{chapters}")
    inputs = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=24:d=1", "-i", text, "-i", marks, "-map", 0, "-map", 1]
    font_options = ["-attach", font, "-metadata:s:t:0", "mimetype=application/x-truetype-font"]
    ffmpeg(*inputs, "-map_chapters", 2, *font_options, "-c:v", "libx264", "-c:s", "ass", path)
    info = probe(path)
    assert [(s.kind, s.codec) for s in info.streams] == [("video", "h264"), ("subtitle", "ass"), ("attachment", "ttf")]
    assert info.streams[2].details == {"name": "d18.ttf", "mimetype": "application/x-truetype-font"}
    assert [c["metadata"] for c in info.chapters] == [{"title": "At 0"}, {"title": "At 500"}]


def test_odd_names_are_not_taken_for_protocols(tmp_path, corpus, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("-dash.mp4", "a:b%03d #1, it's été 漢字.mp4", "new\nline.mp4"):
        Path(name).write_bytes((corpus / "files" / "rot180_3_frames.mov").read_bytes())
        assert probe(Path(name)).video.frames == 3


def test_tags_in_latin_1(tmp_path, corpus):
    path = tmp_path / "a.avi"
    source = os.fsencode(corpus / "files" / "mjpeg_422_fullrange_pcm.avi")
    command = [
        b"ffmpeg",
        b"-v",
        b"error",
        b"-i",
        source,
        b"-c",
        b"copy",
        b"-metadata",
        b"title=caf\xe9",
        os.fsencode(path),
    ]
    subprocess.run(command, check=True, capture_output=True)
    assert probe(path).tags["title"] == "café"


def test_a_cut_off_file_is_noted(corpus):
    notes = probe(corpus / "files" / "truncated_moov_says_745_frames.mp4").notes
    assert any("ends at 100000" in note for note in notes)
    assert not any("cut off" in n for n in probe(corpus / "files" / "long_6min_1080p30_aac.mp4").notes)


def garbage(path: Path, corpus: Path) -> None:
    """A good header in front of pictures that are all zeros."""
    data = bytearray((corpus / "files" / "rot180_3_frames.mov").read_bytes())
    at = data.index(b"mdat")
    length = int.from_bytes(data[at - 4 : at], "big")
    data[at + 4 : at - 4 + length] = bytes(length - 8)
    path.write_bytes(data)


def sound(path: Path, corpus: Path) -> None:
    subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "sine=d=0.1", path], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("none.mp4", lambda p, c: None, "no such file"),
        ("dir.mp4", lambda p, c: p.mkdir(), "directory"),
        ("empty.mp4", lambda p, c: p.touch(), "empty"),
        ("text.mp4", lambda p, c: p.write_text("not a film\n" * 200), "cannot be read as a media file"),
        ("three.mp4", lambda p, c: p.write_bytes(b"abc"), "cannot be read as a media file"),
        ("sound.wav", sound, "has no video stream"),
        ("zeros.mov", garbage, "can be decoded"),
        ("pipe.ts", lambda p, c: os.mkfifo(p), "regular file"),
    ],
)
def test_what_is_no_source_is_named(name, make, words, tmp_path, corpus, capfd):
    path = tmp_path / name
    make(path, corpus)
    with pytest.raises(MediaError, match=re.escape(words)) as caught:
        probe(path)
    assert caught.value.where == str(path)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_no_permission(tmp_path, corpus, monkeypatch):
    """By `os.access`, since the tests may run as root, whom no mode stops."""
    path = tmp_path / "a.mp4"
    path.write_bytes((corpus / "files" / "rot180_3_frames.mov").read_bytes())
    monkeypatch.setattr(os, "access", lambda p, mode: False)
    with pytest.raises(MediaError, match="permission"):
        probe(path)


def test_pictures_lost_before_the_first_keyframe_are_noted(corpus, ffprobe):
    path = corpus / "files" / "ts_starts_without_keyframe.ts"
    info = probe(path)
    packets = ffprobe(path, "-select_streams", "v:0", "-show_packets")["packets"]
    frames = ffprobe(path, "-select_streams", "v:0", "-show_frames")["frames"]
    assert info.video.start == frames[0]["best_effort_timestamp"]
    lost = (info.video.start - packets[0]["pts"]) / 90000
    assert any(f"{lost:.3f} s" in note for note in info.notes)


def test_packets_that_fail_before_the_first_picture_are_counted(tmp_path, ffmpeg):
    """The first two of six intra pictures are zeros."""
    path = tmp_path / "a.mov"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25", "-frames:v", 6, "-c:v", "prores_ks", path)
    with open_input(path) as container:
        entries = [(e.pos, e.size) for e in main_video(container, str(path)).index_entries][:2]
    data = bytearray(path.read_bytes())
    for at, size in entries:
        data[at : at + size] = bytes(size)
    path.write_bytes(data)
    with open_input(path) as container:
        assert first_picture(container, main_video(container, str(path)), str(path)).skipped == 2


@pytest.mark.parametrize("nothing", [0, 2])
def test_colour_that_the_container_alone_says_is_kept(nothing, ffmpeg, tmp_path):
    """Many ProRes files tag `colr` and leave 0 or 2 in each frame's header, which decoders write over it."""
    path = tmp_path / "tagged.mov"
    tags = ("-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc", "-color_range", "tv")
    picture = "color=gray:s=64x64:d=0.2,setparams=color_primaries=bt2020:color_trc=smpte2084:colorspace=bt2020nc"
    ffmpeg("-f", "lavfi", "-i", picture, "-c:v", "prores_ks", "-pix_fmt", "yuv444p10le", *tags, path)
    data = bytearray(path.read_bytes())
    at = data.find(b"icpf")
    while at >= 0:
        data[at + 18 : at + 21] = bytes([nothing] * 3)
        at = data.find(b"icpf", at + 4)
    path.write_bytes(data)
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
        assert (frame.color_primaries, frame.color_trc) == (nothing, nothing)
    color = probe(path).video.format.color
    assert (color.primaries, color.transfer, color.matrix) == (9, 16, Matrix.BT2020_NCL)


@pytest.mark.parametrize("last", [12, 13, 14])
def test_avi_counts_pictures_and_not_what_repeats_them(last, ffmpeg, tmp_path):
    """Frames that are left out are empty chunks, which the header counts; without its index a file is counted by that."""
    path, chosen = tmp_path / "drops.avi", rf"select=not(eq(mod(n\,5)\,2))*lte(n\,60+{last})"
    source = ("-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=3")
    ffmpeg(*source, "-vf", chosen, "-fps_mode", "vfr", "-c:v", "mjpeg", path)
    with av.open(str(path)) as container:
        pictures = sum(1 for _ in container.decode(video=0))
    assert probe(path).video.frames == pictures
    data = path.read_bytes()
    cut = tmp_path / "cut.avi"
    cut.write_bytes(data[: len(data) // 2])
    assert probe(cut).video.frames > pictures
