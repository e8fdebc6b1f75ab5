"""Reports on edges, colour matrix, HDR metadata and bit depth (bugs.md D13, D15 to D17).

Waiting for a later issue: D16 in a job that tone-maps, where the metadata must go (there is no such stage yet).
"""

from __future__ import annotations

import json
import re
import subprocess
from itertools import pairwise

import numpy as np
import pytest
from oracle import pattern, pictures, planes, streams, told

LOSSLESS_HEVC = {"codec": "hevc", "encoder": "libx265", "preset": "ultrafast", "options": {"x265-params": "lossless=1"}}
RGB = {"warp": {"rotate": 0}}
"""Touches nothing, but sends every picture through R'G'B'."""
TAGS = ("color_range", "color_space", "color_transfer", "color_primaries")


@pytest.fixture(scope="module", params=[270, 271, 322, 854, 1366])
def d13(request, made):
    """ffmpeg's `color` makes even sizes only, so the width of the report is cropped from a wider one."""
    width = request.param
    gray = f"color=c=0x808080:s={width + width % 2}x480:r=25:d=0.08,format=yuv444p,crop={width}:480:0:0:exact=1"
    return made(f"d13_{width}.mkv", "-f", "lavfi", "-i", gray, "-c:v", "libx264", "-qp", 0), width


@pytest.mark.parametrize(
    ("stage", "shape"),
    [
        (RGB, "yuv444p"),
        (RGB, "yuv420p"),
        ({"warp": {"rotate": 7, "border": "edge"}}, "yuv444p"),
        ({"resize": {"height": 479}}, "yuv420p"),
    ],
    ids=["rgb", "rgb-420", "warp", "resize-420"],
)
def test_d13_no_strip_at_the_border(d13, job, tmp_path, stage, shape):
    source, width = d13
    if "resize" in stage:
        stage = {"resize": {"width": width, "height": 479}}
    done = job(source, tmp_path / "o.mkv", stages=[stage], video={"pixel_format": shape})
    for plane in (plane for picture in planes(done.path) for plane in picture):
        inside = int(np.median(plane))
        assert np.abs(plane.astype(int) - inside).max() <= 2, "last columns and rows too"
    odd = shape == "yuv420p" and (width % 2 or "resize" in stage)
    assert ("size-evened" in done.warned) == bool(odd), "the rule for odd sizes is said"
    (video,) = streams(done.path, "video")
    assert (video["pix_fmt"], video["width"]) == (shape, width + (width % 2 if shape == "yuv420p" else 0))


@pytest.fixture(scope="module")
def d15_709(made):
    return made(
        "d15_709.mkv", "-f", "lavfi", "-i", "smptehdbars=s=1280x720:r=25:d=0.08", "-vf",
        "scale=out_color_matrix=bt709:out_range=tv,format=yuv420p", "-colorspace", "bt709", "-color_primaries",
        "bt709", "-color_trc", "bt709", "-color_range", "tv", "-c:v", "libx264", "-qp", 0,
    )  # fmt: skip


def untagged(made, name, size, matrix):
    return made(
        name, "-f", "lavfi", "-i", f"smptebars=s={size}:r=25:d=0.08", "-vf",
        f"scale=out_color_matrix={matrix}:out_range=tv,format=yuv420p", "-c:v", "libx264", "-qp", 0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def d15_sd(made):
    return untagged(made, "d15_untagged_sd.mkv", "720x576", "bt601")


@pytest.fixture(scope="module")
def d15_hd(made):
    return untagged(made, "d15_untagged_hd.mkv", "1280x720", "bt709")


def tags(path):
    (video,) = streams(path, "video")
    return {key: video.get(key) for key in TAGS}


@pytest.mark.parametrize("which", ["d15_709", "d15_sd", "d15_hd"])
@pytest.mark.parametrize(
    ("stages", "container"), [([], "mkv"), ([], "mp4"), ([RGB], "mkv")], ids=["plain", "plain-mp4", "rgb"]
)
def test_d15_colours_and_tags_come_back(request, which, job, tmp_path, stages, container):
    source = request.getfixturevalue(which)
    done = job(source, tmp_path / f"o.{container}", stages=stages)
    wanted = tags(source)
    if container == "mp4" and set(wanted.values()) == {"tv", None}:
        wanted["color_range"] = None  # MP4 has no place for a range alone, and in H.264 saying nothing means limited
    assert tags(done.path) == wanted
    if not stages:
        assert pictures(done.path) == pictures(source)
        return
    for before, after in zip(planes(source), planes(done.path), strict=True):
        for was, now in zip(before, after, strict=True):
            bars = bars_of(was)
            assert len(bars) >= 7
            for bar in bars:
                assert abs(float(was[bar].mean()) - float(now[bar].mean())) <= 1
                inside = now[bar][4:-4, 4:-4]  # clear of chroma that leaks over an edge
                assert abs(float(was[bar].mean()) - float(inside.mean())) <= 0.5


def bars_of(plane):
    """The upright bars in the upper half of the picture, each as (rows, columns)."""
    row = plane[8].astype(int)
    edges = [0, *(np.flatnonzero(np.diff(row)) + 1), len(row)]
    return [(slice(0, len(plane) // 2), slice(a, b)) for a, b in pairwise(edges) if b - a > 12]


@pytest.mark.parametrize(("which", "name"), [("d15_sd", "smpte170m"), ("d15_hd", "bt709")])
def test_d15_what_is_assumed_is_said(request, which, name, job, tmp_path):
    done = job(request.getfixturevalue(which), tmp_path / "o.mkv", stages=[RGB])
    (line,) = [line for line in done.plan.lines() if "matrix unknown" in line]  # `run` prints these lines
    assert name in line


MASTERING = "G(8500,39850)B(6550,2300)R(35400,14600)WP(15635,16450)L(10000000,1)"
PRIMARIES = {"green": (8500, 39850), "blue": (6550, 2300), "red": (35400, 14600), "white_point": (15635, 16450)}


@pytest.fixture(scope="module")
def d16(made):
    parameters = (
        "hdr10=1:repeat-headers=1:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc:log-level=error:"
        f"master-display={MASTERING}:max-cll=900,400"
    )
    return made(
        "d16.mkv", *pattern("320x180", "24", 1), "-pix_fmt", "yuv420p10le", "-c:v", "libx265", "-preset", "ultrafast",
        "-x265-params", parameters,
    )  # fmt: skip


def number(text):
    over, under = map(int, text.split("/"))
    return over / under


def check_hdr(described, rel, unit=1e-6):
    """Side data of a stream or a frame, as ffprobe shows it, holds the report's values; `unit` is that of the least."""
    by_kind = {d["side_data_type"]: d for d in described}
    display, light = by_kind["Mastering display metadata"], by_kind["Content light level metadata"]
    for name, (x, y) in PRIMARIES.items():
        assert number(display[f"{name}_x"]) == pytest.approx(x / 50000, rel=rel), name
        assert number(display[f"{name}_y"]) == pytest.approx(y / 50000, rel=rel), name
    assert number(display["max_luminance"]) == pytest.approx(1000, rel=rel)
    assert number(display["min_luminance"]) == pytest.approx(0.0001, abs=unit)
    assert (light["max_content"], light["max_average"]) == (900, 400)


def told_json(*args):
    return json.loads(told("ffprobe", *args[:-1], "-of", "json", f"file:{args[-1]}"))


ENCODERS = {
    "hevc": {"codec": "hevc", "encoder": "libx265", "preset": "ultrafast", "quality": 20},
    "h264": {"codec": "h264", "encoder": "libx264", "preset": "ultrafast", "quality": 20},
    "av1": {"codec": "av1", "encoder": "libsvtav1", "preset": "ultrafast", "quality": 30},
}


@pytest.mark.parametrize("container", ["mkv", "mp4"])
@pytest.mark.parametrize("codec", ENCODERS)
def test_d16_hdr_metadata_in_bitstream_and_container(d16, job, tmp_path, codec, container):
    out = job(d16, tmp_path / f"o.{container}", video=ENCODERS[codec]).path
    (video,) = streams(out, "video")
    assert video["pix_fmt"] == "yuv420p10le"
    assert tags(out) == {
        "color_range": "tv",
        "color_space": "bt2020nc",
        "color_transfer": "smpte2084",
        "color_primaries": "bt2020",
    }
    check_hdr(video["side_data_list"], rel=1e-4)  # the container
    if codec == "av1":
        bare = tmp_path / "bare.obu"
        told("ffmpeg", "-i", out, "-map", "0:v", "-c", "copy", "-f", "obu", bare)
        (first,) = told_json("-read_intervals", "%+#1", "-show_frames", "-select_streams", "v", bare)["frames"]
        check_hdr(
            first["side_data_list"], rel=1e-3, unit=2**-15
        )  # fixed point: 16 bits of a chromaticity, 1/16384 cd/m2
        return
    headers = headers_of(out)
    for i, name in enumerate(("green", "blue", "red")):
        assert (headers[f"display_primaries_x[{i}]"], headers[f"display_primaries_y[{i}]"]) == PRIMARIES[name]
    assert (headers["white_point_x"], headers["white_point_y"]) == PRIMARIES["white_point"]
    assert headers["max_display_mastering_luminance"] == 10_000_000
    assert headers["min_display_mastering_luminance"] == 1
    assert headers["max_content_light_level"] == 900
    assert headers["max_pic_average_light_level"] == 400


def headers_of(path):
    """Fields of the first picture's headers as ffmpeg reads them from the bitstream."""
    command = ["ffmpeg", "-nostdin", "-i", str(path), "-map", "0:v", "-c", "copy", "-bsf:v", "trace_headers"]
    done = subprocess.run([*command, "-frames:v", "1", "-f", "null", "-"], capture_output=True, text=True, check=True)
    return {name: int(value) for name, value in re.findall(r"\] \d+ +(\S+) +[01]+ = (\d+)", done.stderr)}


@pytest.fixture(scope="module")
def d17(made):
    ramp = "nullsrc=s=1024x64:r=25,format=yuv420p10le,geq=lum='64+mod(X,877)':cb=512:cr=512"
    return made(
        "d17.mkv", "-f", "lavfi", "-i", ramp, "-frames:v", 4, "-c:v", "libx265", "-x265-params",
        "lossless=1:log-level=error", "-pix_fmt", "yuv420p10le",
    )  # fmt: skip


STAGES = {
    "plain": [],
    "planes": [{"crop": {"width": 1024, "height": 64}}],
    "rgb": [RGB],
    "resize": [{"resize": {"width": 1024, "height": 32}}],
}


@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("video", [{}, LOSSLESS_HEVC], ids=["h264", "hevc"])
def test_d17_ten_bits_stay_ten_bits(d17, job, tmp_path, stages, video):
    done = job(d17, tmp_path / "o.mkv", stages=STAGES[stages], video=video)
    assert not done.warned
    assert streams(done.path, "video")[0]["pix_fmt"] == "yuv420p10le"
    wanted = 64 + np.arange(1024) % 877
    for luma, *_ in planes(done.path):
        assert len(np.unique(luma)) == 877
        assert np.abs(luma.astype(int) - wanted).max() <= (0 if stages != "rgb" else 1)


def test_d17_eight_bits_on_request_are_dithered_and_said(d17, job, tmp_path):
    done = job(d17, tmp_path / "o.mkv", video={"pixel_format": "yuv420p"})
    assert "depth-reduced" in done.warned
    assert streams(done.path, "video")[0]["pix_fmt"] == "yuv420p"
    wanted = (64 + np.arange(1024) % 877) / 4
    for luma, *_ in planes(done.path):
        columns = luma.astype(float)
        assert np.abs(columns - wanted).max() < 1.01
        assert np.abs(columns.mean(axis=0) - wanted).max() < 0.2, "quarters of a code survive as a mean"
    (said,) = [n.message for n in done.plan.warnings if n.code == "depth-reduced"]
    assert "dithered" in said
