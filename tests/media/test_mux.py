"""The muxer against ffprobe: every stream, tag, timestamp and payload of real files, copied through it."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import pytest
from remux import Audio, Wanted, header_of, remux

from gpupipe import __version__
from gpupipe.errors import MediaError
from gpupipe.journal import Journal
from gpupipe.media import carry
from gpupipe.media.mux import Muxer
from gpupipe.media.probe import probe

if TYPE_CHECKING:
    from pathlib import Path


SEEN: dict[tuple, dict] = {}


def described(ffprobe, path: Path) -> dict:
    """All that ffprobe says of a file's streams and packets; asked once a file."""
    stat = path.stat()
    key = (path, stat.st_ino, stat.st_mtime_ns, stat.st_size)
    if key not in SEEN:
        SEEN[key] = ffprobe(path, "-show_data_hash", "md5", "-show_packets", "-show_streams")
    return SEEN[key]


def streams(ffprobe, path: Path, kind: str | None = None) -> list[dict]:
    return [s for s in described(ffprobe, path)["streams"] if kind is None or s["codec_type"] == kind]


def packets(ffprobe, path: Path, stream: str) -> list[tuple[Fraction, str]]:
    """(time, payload hash) of each packet in the order of presentation; `stream` as ffmpeg says it, such as `a:0`."""
    kind, number = stream.split(":")
    kinds = {"v": "video", "a": "audio", "s": "subtitle", "d": "data"}
    chosen = streams(ffprobe, path, kinds[kind])[int(number)]
    base = Fraction(chosen["time_base"])
    found = [p for p in described(ffprobe, path)["packets"] if p["stream_index"] == chosen["index"]]
    return sorted((int(p["pts"]) * base, p["data_hash"]) for p in found)


FILES = [
    "rot_plus90_h264_aac.mp4",
    "editlist_video_starts_1s_after_audio.mp4",
    "vfr_63_frames_59_distinct_durations.mp4",
    "start_at_10s_2b_sar1137_800.mp4",
    "hlg_hevc_1080p_cropped_aac.mp4",
    "mkv_chapters_h264_444_start_neg.mkv",
    "two_video_two_audio_two_subs.mp4",
]


@pytest.mark.parametrize("extension", ["mkv", "mp4"])
@pytest.mark.parametrize("name", FILES)
def test_payloads_and_relative_times_survive(corpus, ffprobe, tmp_path, name, extension):
    source, output = corpus / "files" / name, tmp_path / f"out.{extension}"
    remux(source, output)
    for kind in "va":
        count = len(streams(ffprobe, source, {"v": "video", "a": "audio"}[kind]))
        assert len(streams(ffprobe, output, {"v": "video", "a": "audio"}[kind])) == count
        for n in range(count):
            before, after = packets(ffprobe, source, f"{kind}:{n}"), packets(ffprobe, output, f"{kind}:{n}")
            assert [h for _, h in after] == [h for _, h in before]
            zero_before = packets(ffprobe, source, "v:0")[0][0]
            zero_after = packets(ffprobe, output, "v:0")[0][0]
            worst = max(abs((b - zero_after) - (a - zero_before)) for (a, _), (b, _) in zip(before, after, strict=True))
            assert worst <= Fraction(1, 1000)


@pytest.mark.parametrize("extension", ["mp4", "mov"])
def test_video_times_are_exact_where_the_container_can(corpus, ffprobe, tmp_path, extension):
    source, output = corpus / "files/vfr_63_frames_59_distinct_durations.mp4", tmp_path / f"out.{extension}"
    remux(source, output)
    assert [t for t, _ in packets(ffprobe, output, "v:0")] == [t for t, _ in packets(ffprobe, source, "v:0")]
    assert streams(ffprobe, output, "video")[0]["duration"] == streams(ffprobe, source, "video")[0]["duration"]


def test_ntsc_film_rate_does_not_drift(ffmpeg, ffprobe, tmp_path):
    """Bug D01: DNxHD at 24000/1001, audio bit for bit, video times exact to the last frame."""
    source, output = tmp_path / "d01.mov", tmp_path / "out.mov"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=320x180:r=24000/1001:d=30", "-f", "lavfi", "-i", "sine=f=1000:r=48000:d=30",
        "-vf", "format=yuv422p", "-c:v", "dnxhd", "-profile:v", "dnxhr_lb", "-c:a", "pcm_s16le", source,
    )  # fmt: skip
    journal, _ = remux(source, output)
    times = [t for t, _ in packets(ffprobe, output, "v:0")]
    assert times == [Fraction(n * 1001, 24000) for n in range(len(times))]
    digest = [ffmpeg_md5(p) for p in (source, output)]
    assert digest[0] == digest[1]
    assert not journal.entries


def ffmpeg_md5(path: Path) -> str:
    command = ["ffmpeg", "-v", "error", "-nostdin", "-i", str(path), "-map", "0:a", "-c", "copy", "-f", "md5", "-"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("extension", ["mp4", "mkv", "mov"])
def test_late_audio_stays_late(ffmpeg, ffprobe, tmp_path, extension):
    """Bug D04: audio that starts at 2.569 s."""
    source, output = tmp_path / "d04.mkv", tmp_path / f"out.{extension}"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=6", "-itsoffset", "2.569", "-f", "lavfi", "-i", "sine=d=3",
        "-map", "0:v", "-map", "1:a", "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac", source,
    )  # fmt: skip
    remux(source, output)
    for path in (source, output):
        begin = [packets(ffprobe, path, s)[0][0] for s in ("v:0", "a:0")]
        assert abs(begin[1] - begin[0] - Fraction("2.569")) <= Fraction(24, 1000)  # AAC begins one packet early
    moved = [packets(ffprobe, p, "a:0")[0][0] - packets(ffprobe, p, "v:0")[0][0] for p in (source, output)]
    assert abs(moved[0] - moved[1]) <= Fraction(1, 1000)


def test_attachments_chapters_and_ass(ffmpeg, ffprobe, tmp_path):
    """Bug D18: MKV to MKV keeps the font's bytes, name and mimetype, two chapters and the ASS stream."""
    font, text, meta = tmp_path / "d18.ttf", tmp_path / "d18.srt", tmp_path / "d18.txt"
    font.write_bytes(b"dummyfont")
    text.write_text("1\n00:00:00,500 --> 00:00:02,000\nhello\n")
    meta.write_text(
        ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=2000\ntitle=One\n"
        "[CHAPTER]\nTIMEBASE=1/1000\nSTART=2000\nEND=4000\ntitle=Two\n"
    )
    source, output = tmp_path / "d18.mkv", tmp_path / "out.mkv"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=4", "-f", "lavfi", "-i", "sine=d=4", "-i", text, "-i", meta,
        "-map", "0:v", "-map", "1:a", "-map", "2:s", "-map_metadata", "3", "-map_chapters", "3", "-attach", font,
        "-metadata:s:t:0", "mimetype=application/x-truetype-font", "-c:v", "libx264", "-preset", "ultrafast",
        "-c:a", "flac", "-c:s", "ass", source,
    )  # fmt: skip
    _, lost = remux(source, output)
    assert not lost
    attached = streams(ffprobe, output, "attachment")[0]["tags"]
    assert (attached["filename"], attached["mimetype"]) == ("d18.ttf", "application/x-truetype-font")
    with av.open(str(output)) as opened:
        assert next(s for s in opened.streams if s.type == "attachment").data == b"dummyfont"
    chapters = ffprobe(output, "-show_chapters")["chapters"]
    assert [(c["tags"]["title"], c["start_time"]) for c in chapters] == [("One", "0.000000"), ("Two", "2.000000")]
    assert streams(ffprobe, output, "subtitle")[0]["codec_name"] == "ass"
    assert packets(ffprobe, output, "s:0") == packets(ffprobe, source, "s:0")
    _, lost = remux(source, tmp_path / "out.mp4")
    assert {x.code for x in lost} == {"attachment-dropped", "subtitle-styling-lost"}
    assert streams(ffprobe, tmp_path / "out.mp4", "subtitle")[0]["codec_name"] == "mov_text"
    assert len(ffprobe(tmp_path / "out.mp4", "-show_chapters")["chapters"]) == 2


@pytest.mark.parametrize("extension", ["mp4", "mkv"])
def test_all_audio_tracks_with_language_and_title(ffmpeg, ffprobe, tmp_path, extension):
    """Bug D19."""
    source, output = tmp_path / "d19.mp4", tmp_path / f"out.{extension}"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=160x90:r=30:d=1", "-f", "lavfi", "-i", "sine=f=440:d=1",
        "-f", "lavfi", "-i", "sine=f=880:d=1", "-map", "0", "-map", "1", "-map", "2", "-c:v", "libx264", "-c:a", "aac",
        "-metadata:s:a:0", "language=eng", "-metadata:s:a:1", "language=fra", "-disposition:a:1", "default",
        "-disposition:a:0", "0", source,
    )  # fmt: skip
    remux(source, output)
    after, before = streams(ffprobe, output, "audio"), streams(ffprobe, source, "audio")
    assert [s["tags"]["language"] for s in after] == ["eng", "fra"]
    assert [s["disposition"]["default"] for s in after] == [s["disposition"]["default"] for s in before] == [0, 1]
    for n in range(2):
        ours, theirs = packets(ffprobe, output, f"a:{n}"), packets(ffprobe, source, f"a:{n}")
        assert [h for _, h in ours] == [h for _, h in theirs]


@pytest.mark.parametrize(
    ("rate", "timecode"), [("25", "03:00:00:00"), ("30000/1001", "01:00:00;02"), ("30000/1001", "01:00:00:02")]
)
@pytest.mark.parametrize("extension", ["mov", "mp4", "mkv"])
def test_timecode(ffmpeg, ffprobe, tmp_path, rate, timecode, extension):
    """Bug D20: the start timecode with its drop-frame flag."""
    source, output = tmp_path / "d20.mov", tmp_path / f"out.{extension}"
    ffmpeg("-f", "lavfi", "-i", f"testsrc2=s=160x90:r={rate}:d=0.5", "-c:v", "mpeg4", "-timecode", timecode, source)
    remux(source, output)
    found = ffprobe(output, "-show_streams")["streams"]
    tags = {v for s in found for k, v in s.get("tags", {}).items() if k.lower() == "timecode"}
    assert tags == {timecode}
    if extension != "mkv":
        assert [s["codec_tag_string"] for s in found if s["codec_type"] == "data"] == ["tmcd"]


def test_impossible_drop_frame_is_reported(ffmpeg, ffprobe, tmp_path):
    source, output = tmp_path / "a.mov", tmp_path / "out.mov"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x90:r=25:d=0.2", "-c:v", "mpeg4", source)
    journal, _ = remux(source, output, timecode="01:00:00;02")
    assert "timecode-drop-flag" in journal.entries
    assert streams(ffprobe, output, "video")[0]["tags"]["timecode"] == "01:00:00:02"


def test_gopro_data_and_timecode(corpus, ffprobe, tmp_path):
    source = corpus / "files/gopro_tmcd_timecode_gpmf_data.mp4"
    _, lost = remux(source, tmp_path / "out.mp4")
    found = streams(ffprobe, tmp_path / "out.mp4", "data")
    assert [s["codec_tag_string"] for s in found] == ["gpmd", "tmcd"]
    assert found[1]["tags"]["timecode"] == "15:44:35:10"
    ours, theirs = packets(ffprobe, tmp_path / "out.mp4", "d:0"), packets(ffprobe, source, "d:1")
    assert ours == theirs
    assert [x.code for x in lost] == ["data-dropped"]
    assert "fdsc" in lost[0].message


@pytest.mark.parametrize(("extension", "held"), [("mkv", True), ("mp4", True), ("m4v", True), ("mov", False)])
def test_cover_art(corpus, ffprobe, tmp_path, extension, held):
    source, output = corpus / "files/cover_art_odd_763x1079.m4v", tmp_path / f"out.{extension}"
    _, lost = remux(source, output)
    covers = [s for s in streams(ffprobe, output, "video") if s["disposition"]["attached_pic"]]
    assert len(covers) == held
    assert [x.code for x in lost] == ([] if held else ["cover-dropped"])
    if held:
        assert (covers[0]["width"], covers[0]["height"]) == (763, 1079)
        before, after = (packets_any(ffprobe, p) for p in (source, output))
        assert before == after
    tags = ffprobe(output, "-show_format")["format"]["tags"]
    original = ffprobe(source, "-show_format")["format"]["tags"]
    assert {k.lower(): v for k, v in tags.items()}["title"] == original["title"]


def packets_any(ffprobe, path: Path) -> list[str]:
    """Payload hashes of the cover picture."""
    index = next(s["index"] for s in streams(ffprobe, path, "video") if s["disposition"]["attached_pic"])
    return [
        p["data_hash"]
        for p in ffprobe(path, "-select_streams", index, "-show_data_hash", "md5", "-show_packets")["packets"]
    ]


def test_cover_art_goes_back_from_matroska(corpus, ffprobe, tmp_path):
    first, second, third = tmp_path / "a.mkv", tmp_path / "b.mkv", tmp_path / "c.mp4"
    remux(corpus / "files/cover_art_odd_763x1079.m4v", first)
    remux(first, second)
    remux(second, third)
    assert packets_any(ffprobe, third) == packets_any(ffprobe, corpus / "files/cover_art_odd_763x1079.m4v")


@pytest.mark.parametrize(("name", "extension"), [
    ("rot_plus90_h264_aac.mp4", "mp4"), ("rot_plus90_h264_aac.mp4", "mkv"), ("rot180_3_frames.mov", "mkv"),
    ("matrix_transpose_flip_not_just_rotate.mp4", "mp4"), ("matrix_transpose_flip_not_just_rotate.mp4", "mov"),
])  # fmt: skip
def test_display_matrix_is_carried(corpus, ffprobe, tmp_path, name, extension):
    source, output = corpus / "files" / name, tmp_path / f"out.{extension}"
    remux(source, output)

    def matrix(path: Path) -> dict:
        found = streams(ffprobe, path, "video")[0]["side_data_list"]
        return next(d for d in found if d["side_data_type"] == "Display Matrix")

    ours, theirs = matrix(output), matrix(source)
    assert ours["rotation"] % 360 == theirs["rotation"] % 360
    if extension != "mkv":
        assert ours["displaymatrix"] == theirs["displaymatrix"]


@pytest.mark.parametrize("extension", ["mov", "mkv"])
def test_codec_tag_and_field_order(corpus, ffprobe, tmp_path, extension):
    """A ProRes Proxy stays one; the interlaced flags of XDCAM stay."""
    remux(corpus / "files/prores_422_proxy.mov", tmp_path / f"prores.{extension}")
    stream = streams(ffprobe, tmp_path / f"prores.{extension}")[0]
    assert (stream["codec_name"], stream["profile"]) == ("prores", "Proxy")
    if extension == "mov":
        assert stream["codec_tag_string"] == "apco"
    remux(corpus / "files/xdcam_ex_1080i_opengop.mov", tmp_path / f"xdcam.{extension}")
    assert streams(ffprobe, tmp_path / f"xdcam.{extension}")[0]["field_order"] == "tb"


@pytest.mark.parametrize(
    ("extension", "aspect"),
    [
        ("mkv", "32/27"),
        ("mkv", "2"),
        ("mkv", "1137/800"),
        ("webm", "32/27"),
        ("webm", "2"),
        ("mp4", "32/27"),
        ("mov", "64/45"),
    ],
)
def test_sample_aspect_in_the_container_alone(ffmpeg, ffprobe, tmp_path, extension, aspect):
    """VP9 and ProRes have no sample aspect in the bitstream, so what ffprobe shows is the container's."""
    codec = ["prores_ks"] if extension == "mov" else ["libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"]
    source, output = tmp_path / "a.mov" if extension == "mov" else tmp_path / "a.mkv", tmp_path / f"out.{extension}"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=720x480:r=25:d=0.2", "-c:v", *codec, source)
    remux(source, output, sample_aspect=Fraction(aspect))
    found = Fraction(streams(ffprobe, output)[0]["sample_aspect_ratio"].replace(":", "/"))
    assert found == Fraction(aspect) or abs(found / Fraction(aspect) - 1) < (0.002 if extension == "webm" else 0.00002)
    if extension in ("mkv", "webm"):
        assert (
            ffprobe(output, "-count_frames", "-show_entries", "stream=nb_read_frames")["streams"][0]["nb_read_frames"]
            == "5"
        )
        assert "side_data_list" not in streams(ffprobe, output)[0]


def test_matroska_checksum_holds_after_the_display_size_is_written(ffmpeg, tmp_path):
    source, output = tmp_path / "a.mkv", tmp_path / "out.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=720x480:r=25:d=0.2", "-c:v", "libx264", source)
    remux(source, output, sample_aspect=Fraction(32, 27))
    said = subprocess.run(
        ["ffmpeg", "-v", "verbose", "-err_detect", "crccheck+explode", "-i", str(output), "-f", "null", "-"],
        capture_output=True, text=True, check=True,
    ).stderr  # fmt: skip
    assert "SAR 32:27" in said
    assert "crc" not in said.lower()


def test_text_subtitles_into_matroska(corpus, ffprobe, ffmpeg, tmp_path):
    source, output = corpus / "files/two_video_two_audio_two_subs.mp4", tmp_path / "out.mkv"
    remux(source, output)
    assert [s["codec_name"] for s in streams(ffprobe, output, "subtitle")] == ["subrip", "subrip"]
    begin = [packets(ffprobe, p, "v:0")[0][0] for p in (source, output)]
    for n in range(2):
        texts = []
        for path in (source, output):
            srt = tmp_path / f"{path.name}.{n}.srt"
            ffmpeg("-i", path, "-map", f"0:s:{n}", "-c:s", "srt", srt)
            texts.append(
                [line for line in srt.read_text().splitlines() if line and "-->" not in line and not line.isdigit()]
            )
        assert texts[0] == texts[1] != []
        shown = [
            [t - b for t, h in packets(ffprobe, p, f"s:{n}") if h not in EMPTY]
            for p, b in zip((source, output), begin, strict=True)
        ]
        assert len(shown[0]) == len(shown[1])
        assert all(abs(a - b) <= Fraction(1, 1000) for a, b in zip(*shown, strict=True))


EMPTY = {"MD5:c4103f122d27677c9db144cae1394a66"}
"""Two zero bytes: MP4's filler between subtitles."""


def test_range_cuts_copied_streams_and_chapters(ffmpeg, ffprobe, tmp_path):
    meta, text = tmp_path / "m.txt", tmp_path / "t.srt"
    meta.write_text(
        "".join(
            [
                ";FFMETADATA1\n",
                *(f"[CHAPTER]\nTIMEBASE=1/1000\nSTART={n}000\nEND={n + 2}000\ntitle=c{n}\n" for n in (0, 2, 4)),
            ]
        )
    )
    text.write_text(
        "1\n00:00:01,500 --> 00:00:02,500\nover the start\n\n2\n00:00:04,500 --> 00:00:05,500\nover the end\n"
    )
    source = tmp_path / "a.mkv"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=160x90:r=25:d=6", "-f", "lavfi", "-i", "sine=r=48000:d=6", "-i", text, "-i", meta,
        "-map", "0", "-map", "1", "-map", "2", "-map_chapters", "3", "-c:v", "mpeg4", "-g", "1", "-c:a", "pcm_s16le", source,
    )  # fmt: skip
    for extension in ("mkv", "mp4"):
        output = tmp_path / f"cut.{extension}"
        info = probe(source)
        header = header_of(info, offset=Fraction(2), end=Fraction(5))
        journal = Journal()
        tracks, _ = carry.plan_tracks(info, extension.replace("mkv", "matroska"), Wanted())
        muxer = Muxer(output, extension.replace("mkv", "matroska"), info, tracks, header, journal)
        with av.open(str(source)) as opened:
            muxer.add_video(opened.streams.video[0])
            for packet in opened.demux():
                if packet.stream_index != 0:
                    muxer.write_copied(packet)
                elif packet.size and 2 <= packet.pts * packet.time_base < 5:
                    muxer.write_video(packet)
            muxer.close()
        video, audio = packets(ffprobe, output, "v:0"), packets(ffprobe, output, "a:0")
        assert (video[0][0], len(video)) == (0, 75)
        length = Fraction(1024, 48000)
        assert -length < audio[0][0] < length
        assert 3 - length <= audio[-1][0] < 3
        chapters = ffprobe(output, "-show_chapters")["chapters"]
        assert [(c["tags"]["title"], float(c["start_time"]), float(c["end_time"])) for c in chapters] == [
            ("c2", 0, 2),
            ("c4", 2, 3),
        ]
        found = ffprobe(output, "-select_streams", "s:0", "-show_packets")["packets"]
        spoken = [(float(p["pts_time"]), float(p["duration_time"])) for p in found if int(p["size"]) > 2]
        assert spoken == [(0.0, 0.5), (2.5, 0.5)]


@pytest.mark.parametrize(
    ("extension", "codec"), [("mp4", "aac"), ("mkv", "flac"), ("mov", "pcm_s24le"), ("mkv", "aac")]
)
def test_audio_encoded_anew_stays_in_place(ffmpeg, ffprobe, tmp_path, extension, codec):
    """A click at 1.000 s, seen against the picture, is at the same sample in the output; the length is the source's."""
    source, output = tmp_path / "a.mov", tmp_path / f"out.{extension}"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=160x90:r=25:d=3", "-f", "lavfi", "-i",
        "aevalsrc='if(between(t,1,1.02),0.9,0)|if(between(t,2,2.02),0.9,0)':s=48000:d=3", "-c:v", "mpeg4", "-c:a", "pcm_s16le", source,
    )  # fmt: skip
    remux(source, output, Wanted(audio=Audio(codec, 128000)))
    stream = streams(ffprobe, output, "audio")[0]
    assert stream["codec_name"] == codec
    assert (stream["channels"], stream["sample_rate"], stream["channel_layout"]) == (2, "48000", "stereo")
    raw = tmp_path / "out.raw"
    shift = packets(ffprobe, output, "v:0")[0][0]
    ffmpeg("-copyts", "-i", output, "-map", "0:a", "-af", "atrim=start=0", "-f", "s16le", raw)
    samples = memoryview(raw.read_bytes()).cast("h")
    left = [abs(samples[2 * n]) for n in range(len(samples) // 2)]
    first = next(n for n, v in enumerate(left) if v > 9000)
    assert shift == 0
    assert abs(first - 48000) <= (200 if codec == "aac" else 0)
    if codec != "aac":
        assert len(left) == 3 * 48000


def test_header_failure_names_the_file(corpus, tmp_path):
    with pytest.raises(MediaError, match=r"out\.mp4.*refuses"):
        remux_unchecked(corpus / "files/prores_422_proxy.mov", tmp_path / "out.mp4")


def remux_unchecked(source: Path, output: Path) -> None:
    info = probe(source)
    tracks, _ = carry.plan_tracks(info, "mp4", Wanted())
    muxer = Muxer(output, "mp4", info, tracks, header_of(info), Journal())
    try:
        with av.open(str(source)) as opened:
            muxer.add_video(opened.streams.video[0])
    finally:
        muxer.abort()
        assert not output.exists()


def test_repairs_are_counted(ffmpeg, ffprobe, tmp_path):
    """Equal decoding times in a copied stream are moved by one tick where the container refuses them."""
    source, output = tmp_path / "a.mkv", tmp_path / "out.mp4"
    ffmpeg(
        "-f", "lavfi", "-i", "testsrc2=s=160x90:r=25:d=1", "-map", "0", "-map", "0", "-c:v", "mpeg4",
        "-bsf:v:1", "setts=ts='if(eq(N,10),PREV_OUTPTS,TS)'", source,
    )  # fmt: skip
    journal, _ = remux(source, output)
    before, after = packets(ffprobe, source, "v:1"), packets(ffprobe, output, "v:1")
    moved = [b - a for (a, _), (b, _) in zip(before, after, strict=True) if a != b]
    assert journal.entries["dts-repaired"].count == 1
    assert moved == [Fraction(1, 16000)]


def test_encoder_tag(corpus, ffprobe, tmp_path):
    remux(corpus / "files/prores_422_proxy.mov", tmp_path / "out.mov")
    video = streams(ffprobe, tmp_path / "out.mov", "video")[0]["tags"]
    assert video["encoder"] == f"gpupipe {__version__}"
    assert video["creation_time"] == "2012-11-16T17:40:21.000000Z"


@pytest.mark.parametrize("extension", ["mp4", "mov", "mkv"])
def test_tags_of_any_name_survive(ffmpeg, ffprobe, tmp_path, extension):
    wanted = {"title": "Dailies", "com.apple.quicktime.make": "ARRI", "reel_name": "A001"}
    source, output = tmp_path / "a.mov", tmp_path / f"out.{extension}"
    said = [x for k, v in wanted.items() for x in ("-metadata", f"{k}={v}")]
    ffmpeg(
        "-f",
        "lavfi",
        "-i",
        "testsrc2=s=160x90:r=25:d=0.2",
        "-c:v",
        "mpeg4",
        *said,
        "-movflags",
        "use_metadata_tags",
        source,
    )
    remux(source, output)
    tags = {k.lower(): v for k, v in ffprobe(output, "-show_format")["format"]["tags"].items()}
    assert {k: tags.get(k) for k in wanted} == wanted
    assert "major_brand" not in tags or extension != "mkv"
