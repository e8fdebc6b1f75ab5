"""crop against ffmpeg's crop where samples are kept, and against ramps where chroma has to move."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from stills import SITES, filtered, picture, plan, ramp, run, test_picture, worst

from gpupipe.color import ChromaLocation, ColorSpec
from gpupipe.errors import PlanError


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p10le", "yuv444p12le", "nv12", "p010le", "gbrp", "gray10le"])
def test_cuts_what_ffmpeg_cuts(pixels: str) -> None:
    source = picture(pixels, 161, 121)
    planes = test_picture(source)
    ours, target = run("crop", {"width": 63, "height": 41, "x": 34, "y": 18}, source, planes)
    assert worst(ours, filtered(planes, source, "crop=63:41:34:18:exact=1", target)) == 0
    assert plan("crop", {"width": 63, "height": 41, "x": 34, "y": 18}, source)[1] == ()


@pytest.mark.parametrize("pixels", ["yuv444p", "gbrp10le", "gray"])
def test_odd_corners_need_no_resampling_without_subsampling(pixels: str) -> None:
    source = picture(pixels, 161, 121)
    planes = test_picture(source)
    ours, target = run("crop", {"width": 1, "height": 1, "x": 160, "y": 120}, source, planes)
    assert worst(ours, filtered(planes, source, "crop=1:1:160:120:exact=1", target)) == 0


@pytest.mark.parametrize("location", SITES)
def test_odd_corners_move_chroma_by_half_a_sample(location: str) -> None:
    source = picture("yuv420p12le", 100, 80, color=ColorSpec(chroma_location=ChromaLocation(location)))
    slope, site = (12.0, 20.0), SITES[location]
    planes = tuple(
        torch.from_numpy(np.rint(p[None]).astype(np.uint16))
        for p in (ramp((80, 100), (0.5, 0.5), (1, 1), slope), *[ramp((40, 50), site, (2, 2), slope)] * 2)
    )
    ours, _ = run("crop", {"width": 51, "height": 33, "x": 13, "y": 7}, source, planes)
    assert torch.equal(ours[0], planes[0][:, 7:40, 13:64])
    expected = 13 * slope[0] + 7 * slope[1] + ramp((17, 26), site, (2, 2), slope)
    assert np.abs(ours[1][0].numpy().astype(float) - expected).max() <= 1.0
    assert "resampled" in plan("crop", {"width": 51, "height": 33, "x": 13, "y": 7}, source)[1][0]


def test_chroma_of_semiplanar_moves_alike() -> None:
    source = picture("yuv420p", 100, 80)
    y, u, v = test_picture(source)
    settings = {"width": 51, "height": 33, "x": 13, "y": 7}
    expected, _ = run("crop", settings, source, (y, u, v))
    got, _ = run("crop", settings, picture("nv12", 100, 80), (y, torch.stack((u, v), dim=-1)))
    assert torch.equal(got[1], torch.stack(expected[1:], dim=-1))


def test_what_is_not_given_is_centred_or_all() -> None:
    source = picture("yuv420p", 1920, 1080)
    target, _ = plan("crop", {"height": 800}, source)
    assert (target.width, target.height) == (1920, 800)
    planes = tuple(torch.arange(1080 >> s).view(1, -1, 1).expand(1, -1, 1920 >> s).to(torch.uint16) for s in (0, 1, 1))
    ten = picture("yuv420p12le", 1920, 1080)
    ours, _ = run("crop", {"height": 800}, ten, planes)
    assert [int(p[0, 0, 0]) for p in ours] == [140, 70, 70]
    right, _ = plan("crop", {"x": 1900}, source)
    assert right.width == 20


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": 0, "height": 0}, "leaves no picture"),
        ({"width": -5}, "leaves no picture"),
        ({"x": 64}, "leaves no picture"),
        ({"width": 60, "x": 5}, "beyond the edge"),
        ({"width": 65}, "beyond the edge"),
        ({"width": 6, "x": -1}, "beyond the edge"),
        ({"height": 40, "y": 9}, "beyond the edge"),
    ],
)
def test_what_cannot_be_cut(settings: dict, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        plan("crop", settings, picture("yuv420p", 64, 48))
    assert caught.value.where == "stages.crop"


def test_fields_stay_whole() -> None:
    source = picture("yuv420p", 64, 48, field_order="tt")
    for settings in ({"height": 20, "y": 2}, {"height": 22, "y": 4}, {"height": 20, "y": 1}):
        with pytest.raises(PlanError, match="tear"):
            plan("crop", settings, source)
    target, _ = plan("crop", {"height": 20, "y": 4, "width": 31, "x": 3}, source)
    assert target.field_order == "tt"
    assert plan("crop", {"height": 22, "y": 2}, picture("yuv422p", 64, 48, field_order="bb"))[0].height == 22
    assert plan("crop", {"height": 36}, source)[0].height == 36  # centred on a multiple of four: y 4, not 6
