"""HDR10 metadata in the container, read back by ffprobe."""

from __future__ import annotations

import struct
from dataclasses import replace
from fractions import Fraction

import pytest
from remux import remux

from gpupipe.codecs.mastering import MasteringDisplay
from gpupipe.config import parse_config
from gpupipe.errors import PlanError
from gpupipe.media.hdr import boxes
from gpupipe.media.picture import hdr
from gpupipe.media.probe import probe
from gpupipe.media.source import HdrInfo
from gpupipe.plan import make_plan

MASTERING = "G(8500,39850)B(6550,2300)R(35400,14600)WP(15635,16450)L(10000000,1)"
EXPECTED = {
    "red_x": Fraction(35400, 50000), "red_y": Fraction(14600, 50000), "green_x": Fraction(8500, 50000),
    "green_y": Fraction(39850, 50000), "blue_x": Fraction(6550, 50000), "blue_y": Fraction(2300, 50000),
    "white_point_x": Fraction(15635, 50000), "white_point_y": Fraction(16450, 50000),
    "min_luminance": Fraction(1, 10000), "max_luminance": Fraction(1000),
}  # fmt: skip


def side_data(ffprobe, path) -> dict[str, dict]:
    found = ffprobe(path, "-select_streams", "v:0", "-show_streams")["streams"][0].get("side_data_list", [])
    return {d["side_data_type"]: d for d in found}


@pytest.fixture(scope="module")
def without(ffmpeg, tmp_path_factory):
    """HEVC, VP9, H.264 and ProRes streams in containers that say nothing of HDR."""
    folder = tmp_path_factory.mktemp("hdr")
    for name, codec in (
        (
            "hevc.mkv",
            ["libx265", "-x265-params", "log-level=none:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc"],
        ),
        ("vp9.mkv", ["libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8"]),
        ("h264.mp4", ["libx264", "-preset", "ultrafast"]),
        ("prores.mov", ["prores_ks"]),
    ):
        pixels = "yuv422p10le" if name == "prores.mov" else "yuv420p10le"
        ffmpeg("-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=0.5", "-pix_fmt", pixels, "-c:v", *codec, folder / name)
    return folder


@pytest.mark.parametrize(("name", "extension"), [
    ("hevc.mkv", "mkv"), ("hevc.mkv", "mp4"), ("hevc.mkv", "mov"), ("vp9.mkv", "mp4"), ("vp9.mkv", "webm"),
    ("h264.mp4", "mkv"), ("h264.mp4", "mp4"), ("prores.mov", "mov"), ("prores.mov", "mkv"),
])  # fmt: skip
def test_mastering_and_light_level_reach_the_container(without, ffprobe, tmp_path, name, extension):
    source, output = without / name, tmp_path / f"out.{extension}"
    assert "Mastering display metadata" not in side_data(ffprobe, source)
    remux(source, output, hdr=HdrInfo(MASTERING, (900, 400)))
    found = side_data(ffprobe, output)
    mastering = found["Mastering display metadata"]
    assert {k: Fraction(mastering[k]) for k in EXPECTED} == EXPECTED
    assert (
        found["Content light level metadata"]["max_content"],
        found["Content light level metadata"]["max_average"],
    ) == (900, 400)
    counted = ffprobe(output, "-count_frames", "-show_streams")["streams"][0]
    before = ffprobe(source, "-count_frames", "-show_streams")["streams"][0]
    same = ("nb_read_frames", "color_transfer", "color_space", "color_range", "pix_fmt", "profile", "width", "height")
    assert {k: counted.get(k) for k in same} == {k: before.get(k) for k in same}


def test_only_what_is_known_is_written(without, ffprobe, tmp_path):
    remux(without / "hevc.mkv", tmp_path / "a.mp4", hdr=HdrInfo(content_light=(1000, 0)))
    assert set(side_data(ffprobe, tmp_path / "a.mp4")) == {"Content light level metadata"}
    remux(without / "hevc.mkv", tmp_path / "b.mp4", hdr=HdrInfo())
    assert not side_data(ffprobe, tmp_path / "b.mp4")


def test_the_source_of_real_hdr_goes_through(corpus, ffprobe, tmp_path):
    source = corpus / "files/hdr10_av1_container_mastering_cll.mp4"
    remux(source, tmp_path / "out.mkv")
    ours, theirs = side_data(ffprobe, tmp_path / "out.mkv"), side_data(ffprobe, source)
    for kind in theirs:
        for key in theirs[kind]:
            if key != "side_data_type":
                assert abs(Fraction(ours[kind][key]) - Fraction(theirs[kind][key])) < Fraction(1, 10000), key


def test_notation():
    told = MasteringDisplay.parse(MASTERING)
    assert told == ((8500, 39850), (6550, 2300), (35400, 14600), (15635, 16450), 10000000, 1)
    assert str(told) == MASTERING
    assert boxes(HdrInfo()) == b""
    with pytest.raises(PlanError, match="mastering"):
        MasteringDisplay.parse("bright")


@pytest.mark.parametrize(("x", "luminance", "light", "kept"), [
    ((35400, 50000), (10_000_000, 10_000), (1000, 400), (True, True)),
    ((-1, 50000), (10_000_000, 10_000), (1000, 400), (False, True)),
    ((70000, 50000), (10_000_000, 10_000), (1000, 400), (False, True)),
    ((35400, 50000), (2_000_000_000, 1), (1000, 400), (False, True)),
    ((35400, 50000), (10_000_000, 10_000), (1000, 70_000), (True, False)),
])  # fmt: skip
def test_numbers_that_no_bitstream_holds_are_left_out_and_told(x, luminance, light, kept, tmp_path, corpus) -> None:
    """AVMasteringDisplayMetadata as libav gives it of a damaged file."""
    numbers = [*x, 14600, 50000, 8500, 50000, 39850, 50000, 6550, 50000, 2300, 50000, 15635, 50000, 16450, 50000,
               1, 10_000, *luminance, 1, 1]  # fmt: skip
    data = {
        "MASTERING_DISPLAY_METADATA": struct.pack("=22i", *numbers),
        "CONTENT_LIGHT_LEVEL": struct.pack("=2I", *light),
    }
    found = hdr(data, dolby_vision=False)
    assert (found.mastering_display is not None, found.content_light is not None) == kept
    assert found.damaged == (kept != (True, True))
    info = probe(corpus / "files" / "rot180_3_frames.mov")
    damaged = replace(info, video=replace(info.video, hdr=found))
    told = make_plan(parse_config({}), damaged, tmp_path / "o.mp4", device="cpu").warnings
    assert [one.code for one in told if one.code == "hdr-damaged"] == ["hdr-damaged"] * found.damaged


def test_text_with_such_numbers_is_one_line() -> None:
    with pytest.raises(PlanError, match="cannot hold"):
        MasteringDisplay.parse("G(8500,39850)B(6550,2300)R(70000,14600)WP(15635,16450)L(10000000,1)")
