"""Decisions of the planner that no single run shows."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.config import parse_config
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.media.probe import probe
from gpupipe.media.source import SourceInfo, StreamInfo, VideoInfo
from gpupipe.plan import Plan, make_plan
from gpupipe.plan.text import lines

UNTAGGED = ColorSpec()


def source(
    pixels: str = "yuv420p", size: tuple[int, int] = (1920, 1080), color: ColorSpec = UNTAGGED, **more: object
) -> SourceInfo:
    picture = FrameFormat(
        PIXEL_FORMATS[pixels], *size, color=color, **{k: v for k, v in more.items() if k == "field_order"}
    )
    video = VideoInfo(
        index=0, codec="ffv1", profile=None, format=picture, native_pixels=pixels, coded_width=size[0],
        coded_height=size[1], time_base=Fraction(1, 25), rate=Fraction(25), start=0, frames=50, duration=50,
        display_matrix=more.get("display_matrix"),
    )  # fmt: skip
    stream = StreamInfo(0, "video", "ffv1", Fraction(1, 25), 0, 50)
    return SourceInfo(Path("clip.mkv"), "matroska,webm", video, (stream,), Fraction(0), Fraction(2))


def plan(info: SourceInfo, config: dict | None = None, output: str = "out.mkv") -> Plan:
    return make_plan(parse_config(config or {}), info, Path(output), device="cpu")


def steps(made: Plan) -> list[str]:
    return [step.name for step in made.steps]


def test_nothing_is_converted_where_no_stage_needs_it() -> None:
    made = plan(source())
    assert made.steps == ()
    assert made.encoder.input_format.pixels.name == "yuv420p"


def test_untagged_stays_untagged_and_the_guess_is_said() -> None:
    made = plan(source(size=(720, 576)), {"stages": [{"warp": {"rotate": 1}}]})
    assert made.encoder.input_format.color == ColorSpec()
    assert any("smpte170m" in note for note in made.notes)


def test_a_resize_from_sd_to_hd_keeps_the_matrix_of_the_source() -> None:
    stages = [{"resize": {"width": 1920, "height": 1080}}, {"warp": {"rotate": 1}}]
    made = plan(source(size=(720, 576)), {"stages": stages})
    assert {s.source.color.matrix for s in made.steps} == {Matrix.SMPTE170M}


def test_one_conversion_for_a_row_of_stages() -> None:
    made = plan(source(), {"stages": [{"warp": {"rotate": 1}}, {"warp": {"scale": 1.1}}]})
    assert steps(made) == ["yuv420p to rgbf32", "warp", "warp", "rgbf32 to yuv420p"]


@pytest.mark.parametrize(
    ("video", "says"),
    [
        ({"encoder": "libx264"}, "quality 18 (default)"),
        ({"encoder": "libx265", "quality": 21}, "quality 21"),
        ({"encoder": "libx264", "options": {"qp": 0}}, "quality default"),
        ({"codec": "ffv1"}, "quality default"),
    ],
)
def test_the_quality_that_is_taken_is_said(video, says) -> None:
    (encode,) = (line for line in lines(plan(source(), {"output": {"video": video}})) if line.startswith("encode"))
    assert f", {says}" in encode


def test_a_change_of_range_alone_says_so() -> None:
    assert steps(plan(source(), {"output": {"video": {"codec": "mjpeg"}}}, "o.mov")) == [
        "yuv420p, limited to full range"
    ]


@pytest.mark.parametrize(
    ("pixels", "encoder", "expected", "dithered"),
    [
        ("yuv420p10le", "libx264", "yuv420p10le", False),
        ("yuv420p12le", "libx264", "yuv420p10le", True),
        ("yuv420p12le", "libx265", "yuv420p12le", False),
        ("yuv444p", "libsvtav1", "yuv420p", False),
        ("yuv422p10le", "prores_ks", "yuv422p10le", False),
        ("yuv420p", "prores_ks", "yuv422p10le", False),
        ("gray10le", "libx265", "gray10le", False),
    ],
)
def test_depth_and_chroma_are_kept_as_far_as_the_encoder_can(
    pixels: str, encoder: str, expected: str, dithered: bool
) -> None:
    made = plan(
        source(pixels), {"output": {"video": {"encoder": encoder}}}, "out.mov" if "prores" in encoder else "out.mkv"
    )
    assert made.encoder.input_format.pixels.name == expected
    assert any("dithered" in name for name in steps(made)) == dithered
    lost = {notice.code for notice in made.warnings}
    assert ("depth-reduced" in lost) == dithered
    assert ("chroma-reduced" in lost) == (pixels == "yuv444p")


def test_rgb_sources_get_a_matrix() -> None:
    rgb = ColorSpec(matrix=Matrix.RGB, range=Range.FULL)
    made = plan(source("gbrp", color=rgb), {"output": {"video": {"encoder": "libx264"}}})
    assert made.encoder.input_format.pixels.name == "yuv444p"
    assert made.encoder.input_format.color.matrix == Matrix.BT709
    assert made.encoder.input_format.color.range == Range.LIMITED


def test_odd_sizes_are_evened_with_a_warning_where_the_encoder_must() -> None:
    made = plan(source(size=(321, 241)), {"output": {"video": {"encoder": "libx264"}}})
    assert (made.encoder.input_format.width, made.encoder.input_format.height) == (322, 242)
    assert [n.code for n in made.warnings] == ["size-evened"]
    assert plan(source(size=(321, 241)), {"output": {"video": {"encoder": "ffv1"}}}).steps == ()


def test_interlaced_pictures_are_refused_where_a_stage_or_encoder_would_ruin_them() -> None:
    fields = source(size=(720, 576), field_order="tt")
    with pytest.raises(PlanError, match="interlaced"):
        plan(fields, {"stages": [{"warp": {"rotate": 1}}]})
    with pytest.raises(PlanError, match="fields"):
        plan(fields, {"output": {"video": {"encoder": "libx265"}}})
    assert plan(fields).encoder.input_format.field_order == "tt"


def test_device_only_is_refused_on_the_cpu() -> None:
    with pytest.raises(PlanError, match="needs a GPU"):
        plan(source(), {"memory": "device_only"})


def test_a_plan_is_plain_json_and_its_digest_follows_what_matters(corpus: Path) -> None:
    info = probe(corpus / "files" / "rot_plus90_h264_aac.mp4")
    one, same = plan(info), plan(info, output="other.mkv")
    other = plan(info, {"output": {"video": {"quality": 20}}})
    assert json.loads(json.dumps(one.to_json()))["steps"][0]["name"] == "orient"
    assert one.digest() == same.digest() != other.digest()


def test_pq_in_8_bit_is_a_warning_of_its_own() -> None:
    pq = ColorSpec(matrix=Matrix.BT2020_NCL, transfer=16, primaries=9, range=Range.LIMITED)
    video = {"encoder": "libx264", "pixel_format": "yuv420p"}
    made = plan(source("yuv420p10le", color=pq), {"output": {"video": video}})
    assert {"hdr-in-8-bit", "depth-reduced"} <= {n.code for n in made.warnings}
    assert "hdr-in-8-bit" not in {n.code for n in plan(source("yuv420p10le", color=pq)).warnings}


def test_h264_that_few_can_play_is_a_note() -> None:
    assert any("yuv422p10le" in note for note in plan(source("yuv422p10le")).notes)
    assert not any("players" in note for note in plan(source("yuv420p")).notes)
