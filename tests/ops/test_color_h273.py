"""Colour conversion against exact float64 arithmetic."""

from __future__ import annotations

import itertools

import h273
import numpy as np
import pytest
import torch
from noise import noise

from gpupipe.color import LUMA_COEFFICIENTS, ChromaLocation, ColorSpec, Matrix, Range
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat, PixelFormat
from gpupipe.ops.color import Converter
from gpupipe.ops.dither import thresholds

SPEC = ColorSpec(Matrix.BT709, range=Range.LIMITED, chroma_location=ChromaLocation.LEFT)
OTHER = ColorSpec(Matrix.BT2020_NCL, range=Range.FULL, chroma_location=ChromaLocation.TOP_LEFT)


def frame(name: str, width: int = 37, height: int = 22, color: ColorSpec = SPEC, **more: object) -> FrameFormat:
    return FrameFormat(PIXEL_FORMATS[name], width, height, color, **more)


def check(planes: tuple[torch.Tensor, ...], source: FrameFormat, target: FrameFormat, converter: Converter) -> None:
    """Rounded to nearest: at most a hair beyond half a code from the exact value; floats to their own precision."""
    before = [p.clone() for p in planes]
    got = converter(planes)
    assert all(torch.equal(a, b) for a, b in zip(before, planes, strict=True)), "the input was written to"
    shapes = target.pixels.plane_shapes(target.width, target.height)
    assert [tuple(p.shape[1:]) for p in got] == list(shapes)
    dtype = {8: torch.uint8, 16: torch.float16, 32: torch.float32}.get(target.pixels.depth, torch.uint16)
    assert all(p.dtype == dtype for p in got)
    bound = {8: 0.5005, 10: 0.501, 12: 0.504, 16: 2**-10, 32: 2e-6}[target.pixels.depth]
    expected = h273.convert(planes, source, target)
    for value, exact in zip(h273.components(got, target.pixels.name), expected, strict=True):
        assert np.abs(value - exact).max() <= bound


@pytest.mark.parametrize("matrix", LUMA_COEFFICIENTS, ids=lambda m: m.name)
@pytest.mark.parametrize("range_", Range)
@pytest.mark.parametrize("depth", [8, 10, 12])
def test_every_matrix_range_depth_and_siting(matrix: Matrix, range_: Range, depth: int) -> None:
    name = {8: "nv12", 10: "p010le", 12: "yuv420p12le"}[depth]
    for location in ChromaLocation:
        color = ColorSpec(matrix, range=range_, chroma_location=location)
        yuv, rgb = frame(name, color=color), frame("rgbf32", color=color)
        check(noise(yuv), yuv, rgb, Converter(yuv, rgb))
        check(noise(rgb), rgb, yuv, Converter(rgb, yuv, dither=False))


@pytest.mark.parametrize("source", PIXEL_FORMATS.values(), ids=lambda f: f.name)
@pytest.mark.parametrize("field_order", ["progressive", "tt"])
def test_every_pair_of_formats(source: PixelFormat, field_order: str) -> None:
    for target, (width, height), tags in itertools.product(
        PIXEL_FORMATS.values(), ((1, 1), (3, 5), (8, 6)), ((SPEC, SPEC), (SPEC, OTHER))
    ):
        a = FrameFormat(source, width, height, tags[0], field_order=field_order)
        b = FrameFormat(target, width, height, tags[1], field_order=field_order)
        check(noise(a, batch=2), a, b, Converter(a, b, dither=False))


@pytest.mark.parametrize("location", ChromaLocation)
def test_odd_size(location: ChromaLocation) -> None:
    color = ColorSpec(Matrix.BT709, range=Range.LIMITED, chroma_location=location)
    for a, b in itertools.permutations((frame(n, 97, 53, color) for n in ("nv12", "yuv422p10le", "rgbf32")), 2):
        check(noise(a), a, b, Converter(a, b, dither=False))


def test_float16_is_within_a_code_of_ten_bits() -> None:
    yuv, rgb = frame("p010le"), frame("rgbf16")
    planes = noise(rgb)
    got, exact = Converter(rgb, yuv, dither=False)(planes), h273.convert(planes, rgb, yuv)
    assert max(np.abs(g - e).max() for g, e in zip(h273.components(got, "p010le"), exact, strict=True)) <= 0.501
    (got16,), exact = Converter(yuv, rgb)(noise(yuv)), h273.convert(noise(yuv), yuv, rgb)
    error = np.abs(got16.double().numpy()[0] - np.stack([e[0] for e in exact]))
    assert error[np.abs(np.stack([e[0] for e in exact])) <= 1].max() * 876 <= 0.22  # as the module says
    assert error.max() * 876 <= 0.44


@pytest.mark.parametrize("matrix", LUMA_COEFFICIENTS, ids=lambda m: m.name)
@pytest.mark.parametrize("range_", Range)
@pytest.mark.parametrize("name", ["yuv444p", "yuv444p10le", "yuv444p10msble", "yuv444p12le"])
def test_round_trip_of_444(matrix: Matrix, range_: Range, name: str) -> None:
    """All codes, most of them out of gamut: float32 is exact; what float16 may do stands in gpupipe.ops.color."""
    color = ColorSpec(matrix, range=range_)
    yuv = frame(name, 200, 100, color=color)
    planes = noise(yuv)
    for working, dither, worst in (
        ("rgbf32", False, 0),
        ("rgbf32", True, 0),
        ("rgbf16", False, {8: 0, 10: 1, 12: 2}[yuv.pixels.depth]),
        ("rgbf16", True, {8: 1, 10: 1, 12: 3}[yuv.pixels.depth]),
    ):
        rgb = frame(working, 200, 100, color=color)
        back = Converter(rgb, yuv, dither=dither)(Converter(yuv, rgb)(planes))
        for p, q in zip(h273.components(planes, name), h273.components(back, name), strict=True):
            assert np.abs(p - q).max() <= worst


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nv12", "yuv420p"),
        ("p010le", "yuv420p10le"),
        ("p012le", "yuv420p12le"),
        ("yuv444p10msble", "yuv444p10le"),
        ("yuv444p12msble", "yuv444p12le"),
    ],
)
def test_rearrangements_are_exact(one: str, other: str) -> None:
    for a, b in ((frame(one), frame(other)), (frame(other), frame(one))):
        there, back = Converter(a, b), Converter(b, a)
        assert there.kind == back.kind == "rearrange"
        planes = noise(a, batch=2)
        got = there(planes)
        assert all(
            np.array_equal(p, q)
            for p, q in zip(h273.components(planes, a.pixels.name), h273.components(got, b.pixels.name), strict=True)
        )
        assert all(torch.equal(p, q) for p, q in zip(planes, back(got), strict=True))


@pytest.mark.parametrize("name", PIXEL_FORMATS)
def test_identity(name: str) -> None:
    planes = noise(frame(name))
    converter = Converter(frame(name), frame(name))
    assert converter.kind == "identity"
    assert converter(planes) is planes


def test_same_matrix_does_not_go_through_rgb() -> None:
    strange = ColorSpec(Matrix.ICTCP, range=Range.LIMITED)  # has no R'G'B' here, and needs none
    a, b = frame("p010le", color=strange), frame("yuv420p12le", color=strange)
    assert Converter(a, b).kind == "levels"
    got = Converter(a, b)(noise(a))
    assert all(
        np.array_equal(p << 2, q)
        for p, q in zip(h273.components(noise(a), "p010le"), h273.components(got, "yuv420p12le"), strict=True)
    )


def test_both_tags_of_bt601_are_one_matrix() -> None:
    pal, ntsc = (ColorSpec(m, range=Range.LIMITED) for m in (Matrix.BT470BG, Matrix.SMPTE170M))
    assert Converter(frame("nv12", color=pal), frame("nv12", color=ntsc)).kind == "identity"


def test_unknown_tags_are_filled_in() -> None:
    bare = ColorSpec()
    for width, height, matrix in ((64, 48, Matrix.SMPTE170M), (1280, 16, Matrix.BT709)):
        planes = noise(frame("nv12", width, height))
        said = ColorSpec(matrix, range=Range.LIMITED, chroma_location=ChromaLocation.LEFT)
        guessed = Converter(frame("nv12", width, height, bare), frame("rgbf32", width, height, bare))(planes)
        assert torch.equal(
            guessed[0], Converter(frame("nv12", width, height, said), frame("rgbf32", width, height, said))(planes)[0]
        )


def test_matrix_without_linear_rgb_is_refused() -> None:
    with pytest.raises(PlanError, match="bt2020_cl"):
        Converter(frame("nv12", color=ColorSpec(Matrix.BT2020_CL)), frame("rgbf32"))
    with pytest.raises(ValueError, match="same size"):
        Converter(frame("nv12", 16, 16), frame("rgbf32", 16, 18))


@pytest.mark.parametrize("working", ["rgbf16", "rgbf32"])
def test_super_white_super_black_and_neutrals(working: str) -> None:
    yuv, rgb = frame("yuv444p", 256, 1), frame(working, 256, 1)
    ramp, gray = (
        torch.arange(256, dtype=torch.uint8).reshape(1, 1, 256),
        torch.full((1, 1, 256), 128, dtype=torch.uint8),
    )
    (values,) = Converter(yuv, rgb)((ramp, gray, gray))
    assert torch.equal(values[:, 0], values[:, 1])
    assert torch.equal(values[:, 0], values[:, 2])
    assert values[0, 0, 0, 16] == 0
    assert values[0, 0, 0, 235] == pytest.approx(1, abs=2e-7)
    assert values.max() > 1.09
    assert values.min() < -0.07
    assert all(
        torch.equal(p, q) for p, q in zip(Converter(rgb, yuv, dither=False)((values,)), (ramp, gray, gray), strict=True)
    )


def test_codes_are_clamped_not_wrapped() -> None:
    rgb, yuv = frame("rgbf32", 4, 2), frame("yuv420p", 4, 2)
    for value, code in ((3.0, 255), (-3.0, 0)):
        assert set(Converter(rgb, yuv)((torch.full((1, 3, 2, 4), value),))[0].unique().tolist()) == {code}


def test_pitch_wider_than_the_picture() -> None:
    for name in ("nv12", "p010le", "yuv422p10le", "yuv444p10msble", "rgbf32"):
        source = frame(name)
        planes = noise(source, batch=2)
        wide = []
        for plane in planes:
            axis = 3 if source.pixels.layout == "float" else 2
            padded = torch.zeros([n + 5 * (i == axis) for i, n in enumerate(plane.shape)], dtype=plane.dtype)
            view = padded.narrow(axis, 0, plane.shape[axis])
            view.copy_(plane)
            wide.append(view)
        for target in ("nv12", "yuv420p10le", "yuv444p", "rgbf32", "gray"):
            converter = Converter(source, frame(target))
            assert all(torch.equal(p, q) for p, q in zip(converter(planes), converter(tuple(wide)), strict=True))


def test_thresholds_are_uniform_and_spread_evenly() -> None:
    grid = thresholds(512, 512, 0).double()
    counts = torch.bincount((grid * 256).long().flatten(), minlength=256)
    assert counts.min() >= 0.9 * 1024  # of 1024 each
    assert counts.max() <= 1.1 * 1024
    for value in (0.1, 0.25, 0.5, 0.8):
        dots = (grid + value >= 1).double()
        blocks = dots.reshape(64, 8, 64, 8).mean(dim=(1, 3))
        white_noise = (value * (1 - value) / 64) ** 0.5
        assert blocks.std() < white_noise / 2
    assert not torch.equal(thresholds(8, 8, 0), thresholds(8, 8, 1))


@pytest.mark.parametrize(
    ("source", "target", "step"), [("p010le", "nv12", 4), ("yuv420p12le", "yuv420p10le", 4), ("gray12le", "gray", 16)]
)
def test_dither_keeps_the_mean(source: str, target: str, step: int) -> None:
    a, b = frame(source, 128, 128), frame(target, 128, 128)
    first, second = Converter(a, b), Converter(a, b)
    for offset in range(1, step):
        planes = tuple(
            torch.full((2, *shape), (400 + offset) << a.pixels.msb_shift, dtype=torch.int32).to(torch.uint16)
            for shape in a.pixels.plane_shapes(128, 128)
        )
        got = first(planes)
        assert all(torch.equal(p, q) for p, q in zip(got, second(planes), strict=True))
        assert all(torch.equal(p[0], p[1]) for p in got), "two equal frames differ"
        for c in h273.components(got, target):
            assert c.mean() == pytest.approx((400 + offset) / step, abs=0.01)
            assert set(np.unique(c)) == {400 // step, 400 // step + 1}
        plain = Converter(a, b, dither=False)(planes)
        assert all((c == int((400 + offset) / step + 0.5)).all() for c in h273.components(plain, target))


def test_no_dither_where_the_depth_does_not_drop() -> None:
    for source, target in (("yuv422p", "yuv420p"), ("nv12", "p010le"), ("yuv444p10le", "yuv420p10le")):
        a, b = frame(source), frame(target)
        assert all(
            torch.equal(p, q)
            for p, q in zip(Converter(a, b)(noise(a)), Converter(a, b, dither=False)(noise(a)), strict=True)
        )
