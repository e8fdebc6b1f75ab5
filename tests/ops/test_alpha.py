"""Alpha's depths against exact arithmetic; weighted resampling against zimg, scipy and Porter and Duff in float64."""

from __future__ import annotations

import shutil
import subprocess
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from gpupipe.format import PIXEL_FORMATS, FrameFormat, pixel_format, with_alpha, without_alpha
from gpupipe.ops.alpha import WeightedRegrid, codes, opaque, releveled
from gpupipe.ops.blend import over_alpha
from gpupipe.ops.color import Converter
from gpupipe.ops.regrid import Regrid, Window
from gpupipe.ops.warp import sample, sampling_grid, weighted_sample

WIDTH, HEIGHT = 45, 31


def stored(values: np.ndarray, bits: int) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.uint8 if bits == 8 else np.uint16))


def cut_out(bits: int) -> np.ndarray:
    """Nothing on the left, all on the right, a soft slanted edge between."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return np.rint(np.clip((x + 0.4 * y - 20) / 9, 0, 1) * ((1 << bits) - 1))


@pytest.mark.parametrize("have", [8, 10, 12, 16])
@pytest.mark.parametrize("want", [8, 9, 10, 12, 16])
def test_every_code_goes_to_the_nearest(have: int, want: int) -> None:
    every = np.arange(1 << have)
    got = releveled(stored(every, have), have, want).numpy()
    step = Fraction((1 << want) - 1, (1 << have) - 1)
    tried = {0, 1, 2, (1 << have) // 3, (1 << have) - 2, (1 << have) - 1, *range(0, 1 << have, 257)}
    assert [int(got[v]) for v in sorted(tried)] == [round(v * step) for v in sorted(tried)]
    if want >= have:
        assert np.array_equal(releveled(torch.from_numpy(got), want, have).numpy(), every)


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_opaque_is_the_top_code(bits: int) -> None:
    made = opaque(2, FrameFormat(PIXEL_FORMATS["gray"], 3, 4, alpha=bits))
    assert made.shape == (2, 4, 3)
    assert set(made.numpy().ravel()) == {(1 << bits) - 1}
    assert codes(torch.tensor([-9.0, 1e9]), bits).tolist() == [0, (1 << bits) - 1]


@pytest.mark.parametrize(("have", "want"), [(8, 16), (12, 0), (0, 10), (10, 10)])
def test_a_conversion_takes_alpha_along_and_makes_or_leaves_it(have: int, want: int) -> None:
    source = FrameFormat(PIXEL_FORMATS["yuv444p"], WIDTH, HEIGHT, alpha=have)
    target = source.with_(pixels=PIXEL_FORMATS["rgbf32"], alpha=want)
    planes = tuple(torch.full((1, HEIGHT, WIDTH), v, dtype=torch.uint8) for v in (99, 120, 140))
    alpha = (stored(cut_out(have), have)[None],) if have else ()
    made = Converter(source, target)((*planes, *alpha))
    (plain,) = Converter(source.with_(alpha=0), target.with_(alpha=0))(planes)
    assert torch.equal(made[0], plain)
    assert len(made) == (2 if want else 1)
    if want:
        wide = cut_out(have) if have else np.full((HEIGHT, WIDTH), 1.0)
        assert np.array_equal(made[1][0].numpy(), np.rint(wide * ((1 << want) - 1) / ((1 << have) - 1 or 1)))


def zscaled(planes: np.ndarray, width: int, height: int, name: str) -> np.ndarray:
    """Three planes of floats resized by ffmpeg's zscale."""
    tool = shutil.which("ffmpeg")
    assert tool, "ffmpeg is the oracle"
    size = f"{planes.shape[2]}x{planes.shape[1]}"
    form = ["-f", "rawvideo", "-pix_fmt", "gbrpf32le"]
    command = [tool, "-v", "error", *form, "-s", size, "-i", "-", "-vf", f"zscale=w={width}:h={height}:filter={name}"]
    raw = planes.astype("<f4").tobytes()
    done = subprocess.run([*command, *form, "-"], input=raw, capture_output=True, check=True, timeout=240)
    return np.frombuffer(done.stdout, "<f4").reshape(3, height, width).astype(np.float64)


@pytest.mark.parametrize("size", [(WIDTH * 2, HEIGHT + 9), (20, 13)])
@pytest.mark.parametrize("name", ["bilinear", "lanczos"])
def test_resized_colours_are_those_of_the_premultiplied_picture(name: str, size: tuple[int, int]) -> None:
    bits, (width, height) = 12, size
    source = FrameFormat(PIXEL_FORMATS["yuv444p10le"], WIDTH, HEIGHT, alpha=bits)
    alpha = cut_out(bits)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    color = np.where(alpha == 0, 1000, 300 + 4 * x + 3 * y)  # what is not seen is bright
    planes = tuple(stored(p, 10)[None] for p in (color, color // 2, color // 3))
    window = Window(scale_x=Fraction(WIDTH, width), scale_y=Fraction(HEIGHT, height))
    target = source.with_(width=width, height=height)
    made = WeightedRegrid(source, target, window, name)((*planes, stored(alpha, bits)[None]))
    top = (1 << bits) - 1
    part = alpha / top
    there, luma, chroma = zscaled(np.stack((part, color * part, color // 2 * part)), width, height, name)
    assert np.abs(made[3][0].numpy() - np.clip(there, 0, 1) * top).max() <= 1
    seen = there > 0.02
    for weigh, got in zip((luma, chroma), made[:2], strict=True):
        assert np.abs(got[0].numpy() - np.clip(weigh / np.where(seen, there, 1), 0, 1023))[seen].max() <= 1
    bled = Regrid(source, target, window, name)((*planes, stored(alpha, bits)[None]))
    assert np.abs(bled[0][0].numpy().astype(int) - made[0][0].numpy())[seen].max() > 20  # so the test can tell


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p10le", "gray12le", "rgbf32"])
@pytest.mark.parametrize("order", ["progressive", "tt"])
def test_an_opaque_picture_is_resized_as_without_alpha(pixels: str, order: str) -> None:
    plain = FrameFormat(PIXEL_FORMATS[pixels], WIDTH, 48, field_order=order)
    random = np.random.default_rng(2)
    if pixels == "rgbf32":
        planes = (torch.from_numpy(random.random((1, 3, 48, WIDTH), np.float32)),)
    else:
        depth = plain.pixels.depth
        planes = tuple(stored(random.integers(0, 1 << depth, (1, *s)), depth) for s in plain.plane_shapes)
    window, target = Window(scale_x=Fraction(WIDTH, 70), scale_y=Fraction(48, 36)), plain.with_(width=70, height=36)
    expected = Regrid(plain, target, window, "bicubic")(planes)
    source = plain.with_(alpha=16)
    regrid = WeightedRegrid(source, target.with_(alpha=16), window, "bicubic")
    *made, alpha = regrid((*planes, opaque(1, source)))
    assert set(alpha.numpy().ravel()) == {65535}
    for ours, theirs in zip(made, expected, strict=True):
        assert ours.dtype == theirs.dtype
        allowed = 1e-5 if pixels == "rgbf32" else 1  # a half may fall to either side
        assert (ours.double() - theirs.double()).abs().max() <= allowed


@pytest.mark.parametrize("order", ["progressive", "tt"])
@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p10le"])
def test_chroma_that_is_not_seen_does_not_bleed_either(pixels: str, order: str) -> None:
    source = FrameFormat(PIXEL_FORMATS[pixels], 64, 48, field_order=order, alpha=8)
    luma, chroma, _, _ = source.plane_shapes
    alpha = np.zeros(luma)
    alpha[12:37, 9:50] = 255
    color = np.full(chroma, 255)  # what is seen is 90, and all that a chroma sample near it could be mixed of
    step_y, step_x = (luma[n] // chroma[n] for n in (0, 1))
    margin = 2 if order == "progressive" else 6
    color[(12 - margin) // step_y : (36 + margin) // step_y, 8 // step_x : 52 // step_x] = 90
    depth = source.pixels.depth
    planes = [stored(p, depth)[None] for p in (np.full(luma, 50), color, color)]
    window, target = Window(scale_x=Fraction(64, 90), scale_y=Fraction(48, 36)), source.with_(width=90, height=36)
    made = WeightedRegrid(source, target, window, "lanczos")((*planes, stored(alpha, 8)[None]))
    seen = made[3][0].numpy()[:: 36 // made[1].shape[1], :: 90 // made[1].shape[2]] > 8
    assert set(made[1][0].numpy()[seen]) == {90}
    bled = Regrid(source, target, window, "lanczos")((*planes, stored(alpha, 8)[None]))
    assert set(bled[1][0].numpy()[seen]) != {90}


@pytest.mark.parametrize("border", ["constant", "edge"])
def test_warped_colours_are_weighted_and_nothing_darkens_at_the_border(border: str) -> None:
    bits, turn = 10, np.deg2rad(20)
    matrix = np.array([[np.cos(turn), np.sin(turn), 3], [-np.sin(turn), np.cos(turn), 5], [0, 0, 1]])
    alpha = cut_out(bits)
    random = np.random.default_rng(3)
    color = np.where(alpha == 0, 5.0, random.random((3, HEIGHT, WIDTH)))
    grid = sampling_grid(matrix, WIDTH, HEIGHT, torch.device("cpu"))
    planes = (torch.from_numpy(color).float()[None], stored(alpha, bits)[None])
    picture, matte = weighted_sample(planes, bits, grid, "bilinear", border)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    back = np.linalg.inv(matrix)
    at = [back[row, 0] * x + back[row, 1] * y + back[row, 2] for row in (1, 0)]
    mode = {"constant": "grid-constant", "edge": "nearest"}[border]
    there = map_coordinates(alpha / 1023, at, order=1, mode=mode)
    assert np.abs(matte[0].numpy() - there * 1023).max() <= 0.6
    seen = there > 0.01
    assert seen.sum() > 100
    for ours, plane in zip(picture[0].numpy(), color, strict=True):
        weigh = map_coordinates(plane * alpha / 1023, at, order=1, mode=mode)
        assert np.abs(ours - weigh / np.where(seen, there, 1))[seen].max() < 1e-3
    assert picture.shape == sample(planes[0], grid, "bilinear", border).shape


@pytest.mark.parametrize("bits", [8, 16])
def test_over_a_picture_with_alpha_is_porter_and_duff_s(bits: int) -> None:
    random, top = np.random.default_rng(4), (1 << bits) - 1
    below, color = random.integers(0, top + 1, (HEIGHT, WIDTH)), random.random((3, HEIGHT, WIDTH), np.float32)
    below[:, :9] = 0
    image, share = random.random((3, 20, 30), np.float32), random.random((1, 20, 30), np.float32)
    share[:, :5] = 0
    at = (4, 2)
    planes = (torch.from_numpy(color)[None], stored(below, bits)[None])
    made, alpha = over_alpha(planes, bits, torch.from_numpy(image), torch.from_numpy(share), at)
    expected, covered = color.astype(np.float64), below / top
    for row in range(20):
        for column in range(30):
            y, x, a = row + at[0], column + at[1], float(share[0, row, column])
            both = a + (1 - a) * covered[y, x]
            if both:
                mixed = a * image[:, row, column] + (1 - a) * covered[y, x] * color[:, y, x]
                expected[:, y, x] = mixed / both
            covered[y, x] = both
    assert np.abs(made[0].numpy() - expected).max() < 1e-4
    assert np.abs(alpha[0].numpy() - covered * top).max() <= 0.51
    assert np.array_equal(planes[1][0].numpy(), below)


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_next_to_nothing_is_no_infinity(kind: torch.dtype) -> None:
    """Where a filter that rings leaves alpha a trace of itself, a quotient may be anything."""
    random = np.random.default_rng(6)
    source = FrameFormat(PIXEL_FORMATS["rgbf32"], WIDTH, HEIGHT, alpha=16)
    alpha = np.where(random.random((HEIGHT, WIDTH)) < 0.5, 0, random.integers(0, 65536, (HEIGHT, WIDTH)))
    planes = (torch.from_numpy(random.random((1, 3, HEIGHT, WIDTH))).to(kind), stored(alpha, 16)[None])
    window = Window(scale_x=Fraction(WIDTH, 200), scale_y=Fraction(HEIGHT, 200))
    regrid = WeightedRegrid(source, source.with_(width=200, height=200), window, "lanczos")
    color, _ = regrid(planes)
    assert color.dtype == kind
    assert color.abs().max() < 64


def test_names_of_formats_with_alpha_are_libav_s() -> None:
    for name in PIXEL_FORMATS:
        twin = with_alpha(name)
        assert twin is None or without_alpha(twin) == name
    assert [without_alpha(n) for n in ("gbrapf32le", "yuva444p10be", "rgba", "ya8", "yuv420p", "yuva444p16le")] == [
        None, None, None, None, None, "yuv444p16le",
    ]  # fmt: skip
    assert with_alpha("yuv422p10le") == "yuva422p10le"
    assert with_alpha("gbrp12le") == "gbrap12le"
    assert pixel_format("yuva422p10le") is None
