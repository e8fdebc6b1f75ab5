"""Whole runs into MOV with `encoder: prores_torch` on the CPU, seen through ffprobe; and what the planner chooses."""

from __future__ import annotations

import itertools
import subprocess
import threading
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import pytest
from prores_pictures import complaints, settings

from gpupipe.codecs.prores import frame, profile
from gpupipe.config import VideoOutput, parse_config
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.plan.encoder import choose_encoder, encoder_pixels
from gpupipe.render import render

if TYPE_CHECKING:
    from pathlib import Path


def run(source: Path, output: Path, video: dict) -> Path:
    config = {"output": {"video": {"codec": "prores", "encoder": "prores_torch", **video}}}
    plan = make_plan(parse_config(config), probe(source), output, device="cpu")
    assert plan.encoder.encoder == "prores_torch"
    render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    return output


@pytest.mark.parametrize("named", profile.PROFILES, ids=lambda p: p.name)
def test_tags_of_every_profile(named, tmp_path, ffmpeg, ffprobe) -> None:
    source = tmp_path / "source.mov"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=180x100:r=25:d=0.12", "-vf", "format=yuv422p10le,setsar=16/11",
           "-c:v", "ffv1", "-timecode", "10:00:00:05", "-color_primaries", "bt2020", "-color_trc", "smpte2084",
           "-colorspace", "bt2020nc", "-color_range", "tv", "-f", "mov", "-strict", "-2", source)  # fmt: skip
    output = run(source, tmp_path / "out.mov", {"options": {"profile": named.number}})
    video, *others = ffprobe(output)["streams"]
    assert (video["codec_name"], video["codec_tag_string"]) == ("prores", named.fourcc)
    assert (video["width"], video["height"], video["nb_frames"]) == (180, 100, "3")
    assert video["sample_aspect_ratio"] == "16:11"
    assert video["r_frame_rate"] == "25/1"
    assert [video[k] for k in ("color_primaries", "color_transfer", "color_space")] == [
        "bt2020",
        "smpte2084",
        "bt2020nc",
    ]
    assert video["field_order"] == "progressive"
    timecodes = [s["tags"]["timecode"] for s in [video, *others] if "timecode" in s.get("tags", {})]
    assert timecodes
    assert set(timecodes) == {"10:00:00:05"}
    assert complaints(output) == ""
    with av.open(str(output)) as found:  # the frame header says the colours too: primaries, transfer, matrix
        packet = next(p for p in found.demux(video=0) if p.size)
    data = bytes(packet)
    assert data[22:25] == bytes([9, 16, 9])
    assert data[21] == 3 << 4 | 3  # 16:9 at 25 frames a second


@pytest.mark.parametrize("encoder", ["prores_torch", "prores_ks"])
@pytest.mark.parametrize(("order", "tag"), [("tff", "tb"), ("bff", "bt")])
def test_field_order_stays(order, tag, encoder, tmp_path, ffmpeg, ffprobe) -> None:
    """In the container and in every frame, as in a file that ffmpeg itself made, through planes that a stage touched."""
    source = tmp_path / "source.mov"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=180x100:r=50:d=0.12", "-vf", f"tinterlace={'4' if order == 'tff' else '5'},"
           f"fieldorder={order},format=yuv422p10le", "-c:v", "prores_ks", "-flags", "+ildct", source)  # fmt: skip
    video = {"codec": "prores", "encoder": encoder}
    config = {"stages": [{"crop": {"width": 160, "height": 96, "x": 8, "y": 2}}], "output": {"video": video}}
    output = tmp_path / "out.mov"
    plan = make_plan(parse_config(config), probe(source), output, device="cpu")
    render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    for path in (source, output):
        assert ffprobe(path)["streams"][0]["field_order"] == tag
        frames = ffprobe(path, "-show_frames", "-select_streams", "v:0")["frames"]
        assert {(f["interlaced_frame"], f["top_field_first"]) for f in frames} == {(1, int(order == "tff"))}
    assert complaints(output) == ""


def test_times_are_the_source_s(tmp_path, ffmpeg, ffprobe) -> None:
    """A variable frame rate stays one."""
    source = tmp_path / "vfr.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x90:r=25:d=0.6", "-vf", "settb=1/1000,setpts=(N+0.3*mod(N\\,3))/25/TB",
           "-vsync", "passthrough", "-enc_time_base", "1/1000", "-c:v", "ffv1", source)  # fmt: skip
    output = run(source, tmp_path / "out.mov", {})

    def times(path: Path) -> list[Fraction]:
        stream = ffprobe(path, "-show_entries", "packet=pts:stream=time_base", "-select_streams", "v:0")
        base = Fraction(stream["streams"][0]["time_base"])
        return sorted(int(p["pts"]) * base for p in stream["packets"])

    got = times(output)
    expected = times(source)
    assert len({b - a for a, b in itertools.pairwise(expected)}) > 2
    assert [t - got[0] for t in got] == [t - expected[0] for t in expected]


def picture(pixels: str, device: str = "cpu", **changes: object) -> FrameFormat:
    return FrameFormat(PIXEL_FORMATS[pixels], 64, 48, device=device, **changes)


@pytest.mark.parametrize(
    ("options", "source", "pixels"),
    [
        ({}, "yuv420p", "yuv422p10le"),
        ({}, "yuv420p12le", "yuv422p10le"),
        ({}, "yuv444p", "yuv444p10le"),
        ({"profile": "hq"}, "yuv444p12le", "yuv422p10le"),
        ({"profile": "4444"}, "yuv444p12le", "yuv444p12le"),
        ({"profile": 4444}, "yuv420p", "yuv444p10le"),
        ({"profile": 5}, "gbrp12le", "yuv444p12le"),
    ],
)
def test_pixel_formats(options, source, pixels) -> None:
    video = VideoOutput(codec="prores", encoder="prores_torch", options=options)
    choice = choose_encoder(video, picture(source), "cpu")
    assert encoder_pixels(choice, video, picture(source)).name == pixels
    by_libav = VideoOutput(codec="prores", options=options)
    rival = encoder_pixels(choose_encoder(by_libav, picture(source), "cpu"), by_libav, picture(source)).name
    assert rival.replace("12", "10") == pixels.replace("12", "10")  # the same profile of the same config, in 10 bit


def test_auto_takes_it_on_a_gpu_and_libavs_elsewhere() -> None:
    video = VideoOutput(codec="prores", options={"profile": "hq"})
    assert choose_encoder(video, picture("yuv420p"), "cpu").encoder == "prores_ks"
    on_gpu = choose_encoder(video, picture("yuv420p", "cuda:0"), "cuda:0")
    assert (on_gpu.encoder, on_gpu.on_device) == ("prores_torch", True)
    named = choose_encoder(VideoOutput(encoder="prores_torch"), picture("yuv420p", "cuda:0"), "cuda:0")
    assert (named.encoder, named.on_device) == ("prores_torch", True)
    other = choose_encoder(
        VideoOutput(codec="prores", options={"vendor": "apl0"}), picture("yuv420p", "cuda:0"), "cuda:0"
    )
    assert other.encoder == "prores_ks"
    assert "vendor" in other.reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"profile": "raw"}}, "profile 'raw'"),
        ({"options": {"vendor": "apl0"}}, "no option 'vendor'"),
        ({"quality": 0.5}, "from 1 (finest) to 224"),
        ({"bitrate": "100M"}, "its own rate"),
        ({"preset": "slow"}, "no presets"),
    ],
)
def test_refusals_are_one_line(changes, words) -> None:
    video = VideoOutput(codec="prores", encoder="prores_torch", **changes)
    with pytest.raises(PlanError) as refused:
        choose_encoder(video, picture("yuv420p"), "cpu")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_quality_is_every_slice_s_quantiser() -> None:
    """The byte behind the size of each slice's header, found by way of the slice table."""
    import numpy as np  # noqa: PLC0415
    from prores_pictures import coded  # noqa: PLC0415
    from prores_pictures import picture as made  # noqa: PLC0415

    (data,) = coded(settings(100, 40, quality=37), [made("grain", 100, 40)])
    at = 8 + 148
    slices = int.from_bytes(data[at + 5 : at + 7], "big")
    sizes = np.frombuffer(data[at + 8 : at + 8 + 2 * slices], ">u2")
    starts = at + 8 + 2 * slices + np.cumsum(sizes) - sizes
    assert [data[s + 1] for s in starts] == [37] * slices
    assert starts[-1] + sizes[-1] == len(data)


@pytest.mark.parametrize(
    ("width", "height", "aspect", "code"),
    [(1920, 1080, Fraction(1), 1), (720, 486, Fraction(10, 11), 2), (720, 576, Fraction(16, 15), 2),
     (1440, 1080, Fraction(4, 3), 3), (1280, 1080, Fraction(2), 0), (720, 576, Fraction(0), 0)],
)  # fmt: skip
def test_aspect_code(width, height, aspect, code) -> None:
    assert frame.aspect_code(width, height, aspect) == code


def test_ffprobe_is_the_one_that_is_installed() -> None:
    """The oracle is another libav than PyAV's: Debian's, from its own build."""
    words = subprocess.run(["ffprobe", "-version"], capture_output=True, text=True, check=True).stdout
    assert f"libavcodec     {'. '.join(map(str, av.library_versions['libavcodec']))}" not in words
