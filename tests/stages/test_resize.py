"""resize against zimg (ffmpeg's zscale), and its geometry against linear ramps, which every filter must keep."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from stills import SITES, calm, filtered, picture, plan, psnr, ramp, run, test_picture, worst

from gpupipe.color import ChromaLocation, ColorSpec
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS

ZSCALE = {"lanczos": "lanczos", "bicubic": "bicubic:param_a=0:param_b=0.5", "bilinear": "bilinear"}


def zscale(planes, source, target, name: str, location: str = "left"):
    graph = f"zscale=w={target.width}:h={target.height}:filter={ZSCALE[name]}:chromalin={location}:chromal={location}"
    return filtered(planes, source, f"setparams=range=tv,{graph}", target)


@pytest.mark.parametrize("name", ZSCALE)
@pytest.mark.parametrize(
    ("pixels", "size"),
    [
        ("yuv420p", (212, 120)),
        ("yuv420p", (500, 300)),
        ("yuv422p10le", (320, 90)),
        ("yuv444p12le", (200, 400)),
        ("gbrp", (640, 180)),
        ("gray", (40, 22)),
    ],
)
def test_agrees_with_zimg(name: str, size: tuple[int, int], pixels: str) -> None:
    source = picture(pixels, 320, 180)
    planes = calm(test_picture(source), source)
    ours, target = run("resize", {"width": size[0], "height": size[1], "filter": name}, source, planes)
    theirs = zscale(planes, source, target, name)
    assert worst(ours, theirs) <= 1
    assert psnr(ours, theirs, (1 << source.pixels.depth) - 1) > 55


@pytest.mark.parametrize("location", SITES)
def test_chroma_siting_agrees_with_zimg(location: str) -> None:
    source = picture("yuv420p", 320, 180, color=ColorSpec(chroma_location=ChromaLocation(location)))
    planes = calm(test_picture(source), source)
    ours, target = run("resize", {"width": 212, "height": 120}, source, planes)
    assert worst(ours, zscale(planes, source, target, "lanczos", location)) <= 1
    other = "topleft" if location in ("bottom", "center") else "center"
    assert worst(ours, zscale(planes, source, target, "lanczos", other)) > 1  # so the test can tell


def test_semiplanar_is_planar_interleaved() -> None:
    for flat, paired, shift in (("yuv420p", "nv12", 0), ("yuv420p10le", "p010le", 6)):
        source = picture(flat, 99, 75)
        y, u, v = test_picture(source)
        expected, _ = run("resize", {"width": 50, "height": 101}, source, (y, u, v))
        bits = lambda p, shift=shift: (p.int() << shift).to(p.dtype)  # noqa: E731
        uv = torch.stack((bits(u), bits(v)), dim=-1)
        got, _ = run("resize", {"width": 50, "height": 101}, picture(paired, 99, 75), (bits(y), uv))
        assert torch.equal(got[0], bits(expected[0]))
        assert torch.equal(got[1], torch.stack((bits(expected[1]), bits(expected[2])), dim=-1))


@pytest.mark.parametrize("pixels", PIXEL_FORMATS)
@pytest.mark.parametrize(
    ("name", "size"), [("lanczos", ((1, 1), (3, 2))), ("area", ((7, 5), (1, 1))), ("nearest", ((33, 21), (64, 11)))]
)
def test_a_flat_picture_stays_flat_in_every_format_and_size(name: str, pixels: str, size: tuple) -> None:
    (width, height), (new_width, new_height) = size
    source = picture(pixels, width, height)
    value = 0.25 if source.pixels.layout == "float" else 77 << source.pixels.msb_shift
    floats = {"rgbf16": torch.float16, "rgbf32": torch.float32}
    kind = floats.get(pixels, torch.uint8 if source.pixels.depth == 8 else torch.uint16)
    planes = tuple(torch.full((2, *s), value, dtype=kind) for s in source.pixels.plane_shapes(width, height))
    out, _ = run("resize", {"width": new_width, "height": new_height, "filter": name}, source, planes)
    for plane in out:
        torch.testing.assert_close(plane.float(), torch.full_like(plane.float(), value), atol=1e-6, rtol=0)


@pytest.mark.parametrize("order", ["progressive", "tt", "bb"])
@pytest.mark.parametrize("location", SITES)
def test_ramps_stay_where_they_are_by_frame_and_by_field(order: str, location: str) -> None:
    """The lines of a field lie where they lie in the frame, so one ramp runs through both fields, before and after."""
    color = ColorSpec(chroma_location=ChromaLocation(location))
    source = picture("yuv420p12le", 96, 80, color=color, field_order=order)
    slope, site = (12.0, 20.0), SITES[location]
    luma = ramp((80, 96), (0.5, 0.5), (1, 1), slope)
    chroma = ramp((40, 48), site, (2, 2), slope)
    planes = tuple(torch.from_numpy(np.rint(p[None]).astype(np.uint16)) for p in (luma, chroma, chroma))
    ours, target = run("resize", {"width": 120, "height": 120, "filter": "bilinear"}, source, planes)
    new = (slope[0] * 96 / 120, slope[1] * 80 / 120)
    for plane, expected in zip(
        ours, (ramp((120, 120), (0.5, 0.5), (1, 1), new), ramp((60, 60), site, (2, 2), new)), strict=False
    ):
        inner = (slice(8, -8), slice(4, -4))
        assert np.abs(plane[0].numpy().astype(float) - expected)[inner].max() <= 1.0
    assert target.field_order == order


def test_fields_do_not_mix() -> None:
    planes = tuple(torch.full((1, *s), 40, dtype=torch.uint8) for s in ((80, 64), (40, 32), (40, 32)))
    for plane in planes:
        plane[:, 1::2] = 200
    source = picture("yuv420p", 64, 80, field_order="tt")
    ours, _ = run("resize", {"width": 40, "height": 56}, source, planes)
    for plane in ours:
        assert plane[:, 0::2].unique().tolist() == [40]
        assert plane[:, 1::2].unique().tolist() == [200]
    assert "field" in " ".join(plan("resize", {"width": 40, "height": 56}, source)[1])


def test_follows_the_proportion() -> None:
    hd = picture("yuv420p", 1920, 800)
    for settings, size in (
        ({"width": 1280}, (1280, 533)),
        ({"width": 1280, "height": -2}, (1280, 534)),
        ({"height": 400}, (960, 400)),
        ({"width": -16, "height": 333}, (800, 333)),
        ({"width": 1, "height": -2}, (1, 2)),
        ({"width": 1280, "height": 720, "fit": "contain"}, (1280, 534)),
        ({"width": 1280, "height": 720, "fit": "cover"}, (1280, 720)),
    ):
        target, _ = plan("resize", settings, hd)
        assert (target.width, target.height) == size, settings


def test_display_aspect_is_kept() -> None:
    dvd = picture("yuv420p", 720, 480, sample_aspect=Fraction(32, 27))
    twice, _ = plan("resize", {"width": 1440, "height": -2}, dvd)  # report D12
    assert (twice.width, twice.height, twice.sample_aspect) == (1440, 960, Fraction(32, 27))
    square, _ = plan("resize", {"width": 854, "height": 480}, dvd)
    assert square.sample_aspect == 1
    narrow, notes = plan("resize", {"width": 360, "height": 480}, dvd)
    assert narrow.sample_aspect == Fraction(64, 27)
    assert "64:27" in notes[0]
    assert Fraction(narrow.width, narrow.height) * narrow.sample_aspect == Fraction(720, 480) * Fraction(32, 27)
    unknown, _ = plan("resize", {"width": 1280, "height": -2}, picture("yuv420p", 1920, 800, sample_aspect=Fraction(0)))
    assert unknown.sample_aspect == 0


def test_cover_cuts_evenly() -> None:
    source = picture("gray12le", 200, 100)
    plane = torch.from_numpy(ramp((100, 200), (0.5, 0.5), (1, 1), (10, 0))[None].astype(np.uint16))
    (out,), target = run("resize", {"width": 50, "height": 50, "fit": "cover", "filter": "area"}, source, (plane,))
    expected = 10 * (50 + 2 * (np.arange(50) + 0.5))
    assert target.sample_aspect == 1
    assert np.abs(out[0, 25].numpy() - expected).max() <= 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "needs a width"),
        ({"width": 0, "height": 0}, "0x0"),
        ({"width": 0}, "0x"),
        ({"width": 99999999, "height": 2}, "no picture size"),
        ({"width": 100, "fit": "cover"}, "both width and height"),
    ],
)
def test_impossible_sizes_name_the_stage(settings: dict, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        plan("resize", settings, picture("yuv420p", 64, 48))
    assert caught.value.where == "stages.resize"


def test_too_few_lines_for_fields() -> None:
    with pytest.raises(PlanError, match="too few"):
        plan("resize", {"width": 64, "height": 2}, picture("yuv420p", 64, 48, field_order="tt"))
