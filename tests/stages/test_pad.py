"""pad against ffmpeg's pad, and its colours against figures of the standards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from stills import SITES, filtered, picture, plan, ramp, run, test_picture, worst

from gpupipe.color import ChromaLocation, ColorSpec, Matrix, Range
from gpupipe.errors import PlanError


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p", "yuv444p", "nv12", "gray", "gbrp"])
@pytest.mark.parametrize("color", ["black", "#ff8000", "white"])
def test_pads_as_ffmpeg_does(pixels: str, color: str) -> None:
    color_spec = ColorSpec(matrix=Matrix.SMPTE170M, range=None if pixels == "gbrp" else Range.LIMITED)
    source = picture(pixels, 102, 62, color=color_spec)
    planes = test_picture(source)
    ours, target = run("pad", {"width": 160, "height": 100, "x": 34, "y": 18, "color": color}, source, planes)
    graph = f"pad=160:100:34:18:{color.replace('#', '0x')}"
    theirs = filtered(planes, source, graph, target)
    assert worst(ours, theirs) <= 1  # ffmpeg's colour is rounded down


def test_an_odd_picture_keeps_all_of_its_chroma() -> None:
    source = picture("yuv420p", 101, 61)
    planes = test_picture(source)
    ours, _ = run("pad", {"width": 160, "height": 100, "x": 34, "y": 18}, source, planes)
    assert torch.equal(ours[0][:, 18:79, 34:135], planes[0])
    assert torch.equal(ours[1][:, 9:40, 17:68], planes[1])
    assert ours[1][:, :, 68:].unique().tolist() == [128]


@pytest.mark.parametrize(
    ("matrix", "depth", "full", "codes"),
    [
        (Matrix.BT709, "", False, (63, 102, 240)),  # red of SMPTE RP 219 at 100 per cent
        (Matrix.BT709, "10le", False, (250, 409, 960)),
        (Matrix.SMPTE170M, "", False, (81, 90, 240)),  # red of BT.601
        (Matrix.SMPTE170M, "", True, (76, 85, 255)),  # red in JFIF (Cr clamped)
        (Matrix.BT2020_NCL, "10le", False, (294, 387, 960)),
    ],
)
def test_red_has_the_codes_of_the_standard(matrix: Matrix, depth: str, full: bool, codes: tuple[int, ...]) -> None:
    color = ColorSpec(matrix=matrix, range=Range.FULL if full else Range.LIMITED)
    source = picture(f"yuv420p{depth}", 8, 8, color=color)
    planes = test_picture(source)
    ours, _ = run("pad", {"width": 12, "height": 12, "color": "red"}, source, planes)
    assert tuple(int(p[0, 0, 0]) for p in ours) == codes


def test_every_memory_layout_gets_the_same_colour() -> None:
    color = ColorSpec(matrix=Matrix.BT709, range=Range.LIMITED)
    source = picture("p010le", 8, 8, color=color)
    planes = tuple(torch.zeros((1, *s), dtype=torch.uint16) for s in source.pixels.plane_shapes(8, 8))
    (y, uv), _ = run("pad", {"width": 12, "height": 12, "color": "#ff0000"}, source, planes)
    assert [int(y[0, 0, 0]), *uv[0, -1, -1].tolist()] == [250 << 6, 409 << 6, 960 << 6]
    half = picture("rgbf16", 8, 8)
    (rgb,), _ = run(
        "pad", {"width": 12, "height": 12, "color": "#ff0080"}, half, (torch.zeros((1, 3, 8, 8), dtype=torch.float16),)
    )
    assert rgb[0, :, 0, 0].tolist() == pytest.approx([1.0, 0.0, 128 / 255], abs=1e-3)


@pytest.mark.parametrize("location", SITES)
def test_odd_places_move_chroma_by_half_a_sample(location: str) -> None:
    source = picture("yuv420p12le", 60, 40, color=ColorSpec(chroma_location=ChromaLocation(location)))
    slope, site = (12.0, 20.0), SITES[location]
    planes = tuple(
        torch.from_numpy(np.rint(p[None] + 500).astype(np.uint16))
        for p in (ramp((40, 60), (0.5, 0.5), (1, 1), slope), *[ramp((20, 30), site, (2, 2), slope)] * 2)
    )
    settings = {"width": 100, "height": 80, "x": 13, "y": 7}
    ours, _ = run("pad", settings, source, planes)
    assert torch.equal(ours[0][:, 7:47, 13:73], planes[0])
    expected = 500 - 13 * slope[0] - 7 * slope[1] + ramp((40, 50), site, (2, 2), slope)
    inner = (slice(6, 21), slice(9, 34))
    assert np.abs(ours[1][0].numpy().astype(float) - expected)[inner].max() <= 1.0
    assert ours[1][0, :3].unique().tolist() == [2048]
    assert "resampled" in plan("pad", settings, source)[1][0]


def test_centred_on_a_chroma_sample_and_fields() -> None:
    source = picture("yuv420p", 90, 50, field_order="tt")
    planes = test_picture(source)
    ours, _ = run("pad", {"width": 96, "height": 60}, source, planes)
    assert torch.equal(ours[0][:, 4:54, 2:92], planes[0])
    with pytest.raises(PlanError, match="fields"):
        plan("pad", {"height": 60, "y": 2}, source)
    with pytest.raises(PlanError, match="fields"):
        plan("pad", {"height": 61, "y": 4}, source)


@pytest.mark.parametrize("settings", [{"width": 80}, {"width": 100, "x": 11}, {"width": 100, "x": -1}, {"height": 0}])
def test_what_does_not_fit(settings: dict) -> None:
    with pytest.raises(PlanError, match="does not fit") as caught:
        plan("pad", settings, picture("yuv420p", 90, 50))
    assert caught.value.where == "stages.pad"


def test_colours_that_a_matrix_cannot_say() -> None:
    source = picture("yuv420p", 90, 50, color=ColorSpec(matrix=Matrix.YCGCO))
    plan("pad", {"width": 100, "color": "grey"}, source)
    with pytest.raises(PlanError, match="YCGCO"):
        plan("pad", {"width": 100, "color": "red"}, source)
    with pytest.raises(ValueError, match="#rrggbb"):
        plan("pad", {"width": 100, "color": "#12345g"}, source)
