"""Files that are unusual and yet right: they come out whole, or one line says why not."""

from __future__ import annotations

import json
import random
import subprocess
from fractions import Fraction

import pytest

CPU = ["--device", "cpu"]
X264 = "output: {video: {encoder: libx264, preset: ultrafast}}\n"


@pytest.fixture(scope="module")
def make(tmp_path_factory, ffmpeg):
    """`make(name, *output options)` encodes moving bars; `size`, `rate`, `seconds` as keywords."""
    folder = tmp_path_factory.mktemp("odd")

    def run(name, *options, size="64x48", rate="25", seconds="0.4", before=()):
        path = folder / name
        if not path.exists():
            bars = f"testsrc2=s=80x60:r={rate}:d={seconds},gblur=1,scale={size.replace('x', ':')}"
            ffmpeg("-f", "lavfi", "-i", bars, *before, *options, path)
        return path

    return run


@pytest.fixture
def done(cli, job, tmp_path):
    """Runs a config that must succeed and returns the JSON log's warnings by code."""

    def run(text, source, name):
        shown = cli("run", *CPU, "--log", "json", job(text), source, tmp_path / name)
        assert shown.code == 0, shown.err
        events = [json.loads(line) for line in shown.err.splitlines()]
        assert {path.name for path in tmp_path.iterdir()} == {"c.yaml", name}
        codes = {e["code"] for e in events if e["event"] == "warning"}
        return {code: "; ".join(e["message"] for e in events if e.get("code") == code) for code in codes}

    return run


@pytest.fixture
def video(ffprobe):
    """What ffprobe says of the first video stream after counting its frames."""
    return lambda path: ffprobe(path, "-count_frames", "-select_streams", "v:0", "-show_streams")["streams"][0]


def times(ffprobe, path, stream="v:0"):
    """Presentation times in seconds, in order, as ffprobe reads them."""
    told = ffprobe(path, "-select_streams", stream, "-show_entries", "packet=pts_time")["packets"]
    return sorted(Fraction(packet["pts_time"]) for packet in told)


def likeness(source, output, size):
    """PSNR in dB of the upper left `size` of the output against the source, by ffmpeg's own filter."""
    graph = f"[0:v]crop={size.replace('x', ':')}:0:0:exact=1,format=yuv444p[a];[1:v]format=yuv444p[b];[a][b]psnr"
    command = ["ffmpeg", "-nostdin", "-i", f"file:{output}", "-i", f"file:{source}", "-lavfi", graph, "-f", "null", "-"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stderr
    value = said.rpartition("average:")[2].split()[0]
    return float("inf") if value == "inf" else float(value)


EXACT = {
    "ffv1": "mkv", "prores_ks": "mov", "mjpeg": "mov", "libvpx": "mkv", "libvpx-vp9": "mkv", "libsvtav1": "mp4",
    "jpeg2000": "mkv", "rawvideo": "nut", "magicyuv": "avi", "mpeg1video": "mkv", "mpeg2video": "mkv", "mpeg4": "mp4",
    "snow": "mkv",
}  # fmt: skip
EVENED = {
    "libx264": "mp4", "libx265": "mp4", "prores_aw": "mov", "ffvhuff": "nut", "utvideo": "avi", "v210": "mov", "huffyuv": "avi",
}  # fmt: skip
SLACK = {"v210": 20, "huffyuv": 20, "prores_aw": 20, "prores_ks": 20}
"""Lower than the 24 dB that all others reach: these have 4:2:2 and chroma is doubled."""


@pytest.mark.parametrize(("encoder", "kind"), (EXACT | EVENED).items())
def test_odd_sizes_and_every_common_encoder(make, done, video, tmp_path, encoder, kind):
    source = make("odd.mkv", "-pix_fmt", "yuv420p", "-c:v", "ffv1", size="63x47")
    warned = done(f"output: {{video: {{encoder: {encoder}}}}}", source, f"o.{kind}")
    shown = video(tmp_path / f"o.{kind}")
    width, height = shown["width"], shown["height"]
    assert int(shown["nb_read_frames"]) == 10
    if encoder in EXACT:
        assert (width, height, "size-evened" in warned) == (63, 47, False)
    else:
        assert (width % 2, height - 47 <= 1, "repeated" in warned["size-evened"]) == (0, True, True)
        assert f"63x47 becomes {width}x{height}" in warned["size-evened"]
    assert likeness(source, tmp_path / f"o.{kind}", "63x47") > SLACK.get(encoder, 24)


@pytest.mark.parametrize(("size", "order"), [("64x46", "tt"), ("64x45", "bb"), ("63x46", "tt")])
def test_odd_fields_grow_field_by_field(make, done, video, tmp_path, size, order):
    """x264 takes interlaced 4:2:0 in multiples of four lines."""
    source = make(
        f"fields-{size}.mkv", "-vf", f"setfield={'tff' if order == 'tt' else 'bff'}", "-pix_fmt", "yuv420p",
        "-flags", "+ilme+ildct", "-c:v", "ffv1", "-field_order", order, size=size,
    )  # fmt: skip
    warned = done(X264, source, "o.mkv")
    shown = video(tmp_path / "o.mkv")
    assert (shown["width"], shown["height"]) == (64, 48)
    assert "becomes 64x48" in warned["size-evened"]
    graph = "crop=2:16:0:32,format=gray"
    command = ["ffmpeg", "-v", "error", "-i", tmp_path / "o.mkv", "-vf", graph, "-frames:v", "1", "-f", "rawvideo", "-"]
    rows = subprocess.run(command, capture_output=True, check=True).stdout[::2]
    height = int(size.partition("x")[2])
    for row in range(height, 48):
        last = height - 1 if (height - 1 - row) % 2 == 0 else height - 2
        assert abs(rows[row - 32] - rows[last - 32]) <= 12


@pytest.mark.parametrize(
    ("encoder", "scale"),
    [(encoder, scale) for encoder in ("mpeg2video", "mpeg4") for scale in (12800, 90000, 1001000)]
    + [("mpeg1video", 90000), ("dnxhd", 90000), ("prores_ks", 1001000), ("libx264", 90000), ("libvpx-vp9", 90000)],
)
def test_any_time_base_and_uneven_times(make, done, ffprobe, tmp_path, encoder, scale):
    """Encoders that only know frame rates get real times all the same."""
    source = make(
        f"uneven-{scale}.mov", "-vf", "select='not(mod(n,3))+eq(mod(n,7),1)'", "-vsync", "vfr", "-c:v", "libx264",
        "-bf", "0", "-video_track_timescale", scale, rate="30000/1001", seconds="1",
    )  # fmt: skip
    kind = "mov" if encoder not in ("mpeg1video", "libvpx-vp9") else "mkv"
    big = "stages: [resize: {width: 1280, height: 720}]\n" if encoder == "dnxhd" else ""
    options = ", options: {profile: dnxhr_lb}" if encoder == "dnxhd" else ""
    options = ", options: {bf: 2}" if encoder in ("mpeg2video", "mpeg4") else options
    done(f"{big}output: {{video: {{encoder: {encoder}{options}}}}}", source, f"o.{kind}")
    wanted, got = times(ffprobe, source), times(ffprobe, tmp_path / f"o.{kind}")
    tolerance = Fraction(1, 1000) if kind == "mkv" else Fraction(1, 50_000)
    assert len(got) == len(wanted)
    assert max(abs((g - got[0]) - (w - wanted[0])) for g, w in zip(got, wanted, strict=True)) <= tolerance


PIXELS = [
    "yuv411p", "yuv440p", "yuv444p", "nv12", "nv24", "yuyv422", "p210le", "gray", "gray16le", "ya8", "monob",
    "yuv420p9le", "yuv420p14le", "yuvj420p", "yuva444p10le", "gbrp", "gbrap16le", "rgb24", "rgba", "pal8",
]  # fmt: skip


@pytest.mark.parametrize("pixels", PIXELS)
def test_every_kind_of_pixel(make, done, video, tmp_path, pixels):
    source = make(f"{pixels}.nut", "-pix_fmt", pixels, "-strict", "-1", "-c:v", "rawvideo", seconds="0.12")
    warned = done(X264, source, "o.mkv")
    assert int(video(tmp_path / "o.mkv")["nb_read_frames"]) == 3
    lost = warned.get("source-reduced", "")
    assert ("alpha dropped" in lost) == (pixels in ("ya8", "yuva444p10le", "gbrap16le", "rgba"))
    assert ("cut to 12" in lost) == any(n in pixels for n in ("14", "16le"))
    if pixels not in ("monob", "pal8", "yuv411p"):
        assert likeness(source, tmp_path / "o.mkv", "64x48") > 24


@pytest.mark.parametrize(
    ("name", "options", "frames"),
    [
        ("a.gif", ["-r", "10"], 5),
        ("a.apng", ["-f", "apng"], 10),
        ("a.png", ["-frames:v", "1"], 1),
        ("a.jpg", ["-frames:v", "1"], 1),
        ("a.webp", ["-frames:v", "1"], 1),
        ("a.tiff", ["-frames:v", "1"], 1),
        ("a.bmp", ["-frames:v", "1"], 1),
        ("a.y4m", ["-pix_fmt", "yuv420p"], 10),
        ("rgb.mov", ["-c:v", "png", "-pix_fmt", "rgb24"], 10),
        ("alpha.mov", ["-c:v", "qtrle", "-pix_fmt", "argb"], 10),
        ("one.mp4", ["-frames:v", "1", "-c:v", "libx264"], 1),
    ],
)
def test_pictures_and_animations(make, done, video, tmp_path, name, options, frames):
    done(X264, make(name, *options), "o.mkv")
    assert int(video(tmp_path / "o.mkv")["nb_read_frames"]) == frames


@pytest.mark.parametrize(
    ("size", "pixels"), [("1x1", "gray"), ("1x1", "yuv444p"), ("1x1", "yuv420p"), ("2x2", "yuv420p")]
)
def test_the_smallest_pictures(done, video, ffmpeg, tmp_path, tmp_path_factory, size, pixels):
    raw = tmp_path_factory.mktemp("small") / "raw"
    raw.write_bytes(bytes(range(12)) * 2)
    source = raw.with_suffix(".nut")
    ffmpeg("-f", "rawvideo", "-pix_fmt", pixels, "-s", size, "-i", raw, "-frames:v", 2, "-c:v", "rawvideo", source)
    done("stages: [resize: {width: 8, height: 8}]\n" + X264, source, "o.mkv")
    assert int(video(tmp_path / "o.mkv")["nb_read_frames"]) == 2
    (tmp_path / "o.mkv").unlink()
    done(X264, source, "o.mkv")
    assert video(tmp_path / "o.mkv")["width"] in (1, 2)


@pytest.mark.parametrize(
    ("name", "options", "rate", "seconds"),
    [
        ("between.ts", ["-output_ts_offset", "10800"], "25", "0.4"),
        ("late.mkv", ["-output_ts_offset", "10800"], "25", "0.4"),
        ("fast.mp4", [], "1000", "0.1"),
        ("slow.mp4", [], "1/10", "50"),
        ("long-gop.mp4", ["-g", "1000", "-x264-params", "open-gop=1"], "25", "2"),
    ],
)
def test_unusual_times(make, done, ffprobe, tmp_path, name, options, rate, seconds):
    source = make(name, "-c:v", "libx264", *options, rate=rate, seconds=seconds)
    done(X264, source, "o.mp4")
    wanted, got = times(ffprobe, source), times(ffprobe, tmp_path / "o.mp4")
    assert len(got) == len(wanted)
    assert max(abs((g - got[0]) - (w - wanted[0])) for g, w in zip(got, wanted, strict=True)) <= Fraction(1, 1000)


@pytest.mark.parametrize("options", [["-c:v", "libx264", "-bf", "3"], ["-c:v", "mpeg4", "-bf", "2", "-vtag", "XVID"]])
def test_avi_with_b_frames_keeps_its_pace(make, done, ffprobe, tmp_path, options):
    """AVI has no presentation times: every picture lasts one tick, in the order in which they are shown."""
    source = make(f"{options[1]}.avi", *options, seconds="1")
    warned = done(X264, source, "o.mkv")
    got = times(ffprobe, tmp_path / "o.mkv")
    assert [g - got[0] for g in got] == [Fraction(n, 25) for n in range(25)]
    assert "pts-repaired" not in warned
    assert likeness(source, tmp_path / "o.mkv", "64x48") > 30


INTERLACED = {
    "crop: {width: 32, height: 24, x: 0, y: 0}": None,
    "resize: {width: 32, height: 24}": None,
    "pad: {width: 64, height: 56, x: 0, y: 4}": None,
    "overlay: {image: logo.png}": None,
    "lut3d: {file: look.cube}": None,
    "orient": None,
    "fps: {rate: 50}": None,
    "crop: {height: 23}": "would tear the two fields",
    "pad: {height: 57}": "would tear the two fields",
    "resize: {width: 2, height: 2}": "too few for two fields",
    "warp: {rotate: 5}": "is interlaced (tt) and warp would mix its fields (deinterlace it with",
}


@pytest.mark.parametrize(("stage", "refusal"), INTERLACED.items())
def test_interlaced_and_every_stage(make, refused, done, video, job, tmp_path_factory, tmp_path, stage, refusal):
    source = make(
        "fields.mp4", "-vf", "tinterlace=4,setfield=tff", "-flags", "+ilme+ildct", "-c:v", "libx264",
        "-x264-params", "tff=1", rate="50",
    )  # fmt: skip
    side = tmp_path_factory.mktemp("side")
    (side / "look.cube").write_text("LUT_3D_SIZE 2\n" + "".join(f"{n & 1} {n >> 1 & 1} {n >> 2}\n" for n in range(8)))
    (side / "logo.png").write_bytes(make("logo.png", "-frames:v", 1, size="16x16").read_bytes())
    stage = stage.replace("look.cube", str(side / "look.cube")).replace("logo.png", str(side / "logo.png"))
    text = f"stages:\n  - {stage}\n{X264}"
    if refusal is not None:
        assert refusal in refused(job(text), source, tmp_path / "o.mkv")
        return
    done(text, source, "o.mkv")
    assert video(tmp_path / "o.mkv")["field_order"] in ("tt", "tb")


@pytest.fixture(scope="module")
def sounds(tmp_path_factory, ffmpeg):
    """Videos with 0, 1 and 8 tracks, 7.1 in QuickTime's own order, and 16 channels."""
    folder = tmp_path_factory.mktemp("sounds")
    bars, tone = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.4"], ["-f", "lavfi", "-i", "sine=d=0.4:r=48000"]
    x264 = ["-c:v", "libx264", "-preset", "ultrafast"]
    ffmpeg(*bars, *x264, folder / "none.mov")
    ffmpeg(*bars, *tone, *x264, "-c:a", "aac", folder / "one.mov")
    ffmpeg(
        *bars, *tone * 8, *(a for n in range(9) for a in ("-map", n)), *x264, "-c:a", "pcm_s24le", folder / "eight.mov"
    )
    for name, count in (("surround", 8), ("sixteen", 16)):
        layout = ":c=7.1" if count == 8 else ""
        many = ["-f", "lavfi", "-i", f"aevalsrc={'|'.join(['sin(2764*t)'] * count)}:d=0.4:s=48000{layout}"]
        ffmpeg(*bars, *many, *x264, "-c:a", "pcm_s24le", folder / f"{name}.mov")
    return folder


@pytest.mark.parametrize(("name", "tracks"), [("none", 0), ("one", 1), ("eight", 8), ("surround", 1), ("sixteen", 1)])
@pytest.mark.parametrize(("codec", "kind"), [("copy", "mkv"), ("copy", "mov"), ("{codec: pcm_s24le}", "mkv")])
def test_every_track_of_sound_arrives(sounds, cli, program, ffprobe, job, tmp_path, name, tracks, codec, kind):
    """7.1 in a program of its own: PyAV 18 aborts the process on it where one is not careful."""
    source, out = sounds / f"{name}.mov", tmp_path / f"o.{kind}"
    config = job(f"output: {{video: {{encoder: libx264, preset: ultrafast}}, audio: {codec}}}")
    shown = (program if name == "surround" else cli)("run", *CPU, config, source, out)
    assert (shown.code, "warning" in shown.err) == (0, False), shown.err
    channels = [
        [s["channels"] for s in ffprobe(path)["streams"] if s["codec_type"] == "audio"] for path in (source, out)
    ]
    assert len(channels[0]) == tracks
    assert channels[0] == channels[1]


@pytest.mark.parametrize(
    ("codec", "kind"),
    [
        ("aac", "mp4"), ("aac", "ts"), ("aac", "mov"), ("ac3", "mkv"), ("eac3", "mp4"), ("mp2", "ts"), ("mp3", "avi"),
        ("libmp3lame", "mp4"), ("opus", "webm"), ("libopus", "mkv"), ("flac", "mkv"), ("alac", "mov"), ("pcm_s16le", "mov"),
        ("pcm_s24le", "mxf"), ("pcm_f32le", "mkv"), ("wavpack", "mkv"),
    ],
)  # fmt: skip
def test_audio_codecs_and_containers(sounds, done, ffprobe, tmp_path, codec, kind):
    encoder = {"webm": "libvpx-vp9", "mxf": "mpeg2video"}.get(kind, "libx264")
    text = f"output: {{video: {{encoder: {encoder}}}, audio: {{codec: {codec}, bitrate: 96k}}}}"
    done(text, sounds / "one.mov", f"o.{kind}")
    streams = ffprobe(tmp_path / f"o.{kind}")["streams"]
    sound = next(s for s in streams if s["codec_type"] == "audio")
    assert sound["codec_name"] == codec.removeprefix("lib").replace("mp3lame", "mp3")
    assert abs(float(sound.get("duration") or sound["tags"]["DURATION"].rpartition(":")[2]) - 0.4) < 0.12


@pytest.mark.parametrize("name", ["flips.mov", "flips.mkv", "flips.ts", "flips.avi"])
@pytest.mark.parametrize("seed", range(4))
def test_damage_is_survived_or_named(clip, ffmpeg, cli, job, tmp_path, tmp_path_factory, name, seed):
    """Bits flipped anywhere: what decodes is kept with a warning, or one line says why nothing is."""
    chance = random.Random(seed)
    source = tmp_path_factory.mktemp("damage") / name
    ffmpeg("-i", clip, "-map", "0:v", "-map", "0:a", "-c:v", "copy", "-c:a", "mp2", source)
    data = bytearray(source.read_bytes())
    for _ in range(3 * 8**seed):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    source.write_bytes(data)
    shown = cli("run", *CPU, "--strict", job(X264), source, tmp_path / "o.mkv")
    assert shown.code in (0, 1, 4, 5), shown.err
    assert (tmp_path / "o.mkv").exists() == (shown.code not in (1, 5))
    assert not list(tmp_path.glob(".*"))
    if shown.code in (1, 5):
        assert [line for line in shown.err.splitlines() if "rror" in line][-1].startswith("error: ")


@pytest.mark.parametrize("kept", [0.5, 0.7, 0.95])
def test_a_file_cut_off_keeps_what_is_there(clip, ffmpeg, cli, job, video, tmp_path, tmp_path_factory, kept):
    source = tmp_path_factory.mktemp("cut") / "cut.mp4"
    ffmpeg("-i", clip, "-map", "0:v", "-c", "copy", "-movflags", "+faststart", source)
    data = source.read_bytes()
    source.write_bytes(data[: int(len(data) * kept)])
    shown = cli("run", *CPU, job(X264), source, tmp_path / "o.mkv")
    assert shown.code == 0
    assert "the file is cut off" in shown.err
    frames = int(video(tmp_path / "o.mkv")["nb_read_frames"])
    assert 0 < frames < 50
    assert f"only {frames} of the 50 frames" in shown.err
    assert cli("run", *CPU, "--strict", "--overwrite", job(X264), source, tmp_path / "o.mkv").code == 4


@pytest.fixture(scope="module")
def grown(clip, ffmpeg, tmp_path_factory):
    """Transport streams that grow a second sound track: at the end, where libav looks for the duration, and between."""
    folder = tmp_path_factory.mktemp("grown")
    streams = ["-map", "0:v", "-map", "0:a", "-c:v", "copy", "-c:a", "mp2", "-f", "mpegts"]
    first = ["-stream_loop", 9, "-i", clip, *streams, "-muxrate", "3M"]  # 7 MB; libav looks through 5
    ffmpeg(*first, folder / "first.ts")
    ffmpeg("-i", clip, *streams[:4], "-map", "0:a", *streams[4:], "-output_ts_offset", "20", folder / "two.ts")
    ffmpeg(*first, "-output_ts_offset", "22", folder / "last.ts")
    for name, parts in (("end.ts", ("first", "two")), ("between.ts", ("first", "two", "last"))):
        (folder / name).write_bytes(b"".join((folder / f"{part}.ts").read_bytes() for part in parts))
    return folder


@pytest.mark.parametrize(
    ("name", "code", "says", "frames"),
    [
        ("end.ts", "audio-dropped", "stream 2: sample rate and channels of its ", 550),
        (
            "between.ts",
            "late-stream",
            "streams that begin in the middle of the file are missing in the output: 1",
            1050,
        ),
    ],
)
def test_a_sound_track_that_begins_in_mid_file(grown, done, video, tmp_path, name, code, says, frames):
    warned = done(X264, grown / name, "o.mkv")
    assert says in warned[code]
    assert int(video(tmp_path / "o.mkv")["nb_read_frames"]) == frames
