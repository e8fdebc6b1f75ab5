"""Colour conversion against zimg (ffmpeg's zscale, filter=bilinear, dither=none): every matrix, range, depth and siting."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from gpupipe.color import LUMA_COEFFICIENTS, ChromaLocation, ColorSpec, Matrix, Range
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.ops.color import Converter

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, HEIGHT = 64, 48
ALLOWED = {8: 1, 10: 4, 12: 16}  # code values, by depth
NAMES = {
    Matrix.BT709: "709",
    Matrix.FCC: "fcc",
    Matrix.BT470BG: "470bg",
    Matrix.SMPTE170M: "170m",
    Matrix.SMPTE240M: "7",
    Matrix.BT2020_NCL: "2020_ncl",
}
ALL = [
    ColorSpec(m, range=r, chroma_location=c) for m, r, c in itertools.product(LUMA_COEFFICIENTS, Range, ChromaLocation)
]
Run = Callable[..., str]


def tags(color: ColorSpec, suffix: str) -> str:
    location = f"chromal{suffix}={color.chroma_location}"
    return f"matrix{suffix}={NAMES[color.matrix]}:range{suffix}={color.range}:{location}"


def zscale(ffmpeg: Run, folder: Path, raw: bytes, source: str, target: str, filters: list[str]) -> list[bytes]:
    """One picture through each of the filters."""
    (folder / "in.raw").write_bytes(raw)
    names = [f"a{i}" for i in range(len(filters))]
    graph = f"[0:v]split={len(filters)}" + "".join(f"[{n}]" for n in names)
    graph += "".join(f";[{n}]{f},format={target}[o{n}]" for n, f in zip(names, filters, strict=True))
    outputs = [x for n in names for x in ("-map", f"[o{n}]", "-f", "rawvideo", folder / f"{n}.raw")]
    size = f"{WIDTH}x{HEIGHT}"
    ffmpeg(
        "-f", "rawvideo", "-pix_fmt", source, "-s", size, "-i", folder / "in.raw", "-filter_complex", graph, *outputs
    )
    return [(folder / f"{n}.raw").read_bytes() for n in names]


def unpack(raw: bytes, name: str) -> tuple[torch.Tensor, ...]:
    pixels = PIXEL_FORMATS[name]
    data, planes, at = np.frombuffer(raw, np.dtype(f"u{pixels.bytes_per_sample}")), [], 0
    for shape in pixels.plane_shapes(WIDTH, HEIGHT):
        count = int(np.prod(shape))
        planes.append(torch.from_numpy(data[at : at + count].reshape(1, *shape).copy()))
        at += count
    assert at == len(data)
    return tuple(planes)


def unpack_gbrpf32(raw: bytes) -> torch.Tensor:
    green, blue, red = np.frombuffer(raw, "<f4").reshape(3, HEIGHT, WIDTH)
    return torch.from_numpy(np.stack([red, green, blue])[None])


def codes(planes: tuple[torch.Tensor, ...], name: str) -> list[np.ndarray]:
    return [p.numpy().astype(np.int64) >> PIXEL_FORMATS[name].msb_shift for p in planes]


def random_codes(name: str, *, legal: bool = False) -> bytes:
    """Any code, or those of limited range."""
    pixels, random = PIXEL_FORMATS[name], np.random.default_rng(3)
    count = pixels.frame_bytes(WIDTH, HEIGHT) // pixels.bytes_per_sample
    step = 1 << (pixels.depth - 8)
    values = random.integers(16 * step, 235 * step + 1, count) if legal else random.integers(0, 256 * step, count)
    return (values << pixels.msb_shift).astype(f"<u{pixels.bytes_per_sample}").tobytes()


FORMATS = ["nv12", "yuv422p", "p010le", "yuv444p10le", "yuv420p12le"]


@pytest.mark.parametrize("name", FORMATS)
def test_yuv_to_rgb(ffmpeg: Run, tmp_path: Path, name: str) -> None:
    raw, depth = random_codes(name), PIXEL_FORMATS[name].depth
    filters = [f"zscale={tags(c, 'in')}:matrix=gbr:range=full:filter=bilinear:dither=none" for c in ALL]
    if name in ("nv12", "p010le"):  # zscale has no semi-planar input; this moves samples only
        planar = {"nv12": "yuv420p", "p010le": "yuv420p10le"}[name]
        filters = [f"format={planar},{f}" for f in filters]
    for color, expected in zip(ALL, zscale(ffmpeg, tmp_path, raw, name, "gbrpf32le", filters), strict=True):
        yuv = FrameFormat(PIXEL_FORMATS[name], WIDTH, HEIGHT, color)
        for working in ("rgbf32", "rgbf16"):
            (rgb,) = Converter(yuv, yuv.with_(pixels=PIXEL_FORMATS[working]))(unpack(raw, name))
            error = (rgb.float() - unpack_gbrpf32(expected)).abs().max().item() * (2**depth - 1)
            assert error <= ALLOWED[depth], color


@pytest.mark.parametrize("name", ["yuv420p", "yuv422p", "yuv420p10le", "yuv444p10le", "yuv420p12le"])
def test_rgb_to_yuv(ffmpeg: Run, tmp_path: Path, name: str) -> None:
    rgb = np.random.default_rng(4).uniform(-0.05, 1.05, (1, 3, HEIGHT, WIDTH)).astype("<f4")
    filters = [f"zscale=matrixin=gbr:rangein=full:{tags(c, '')}:filter=bilinear:dither=none" for c in ALL]
    raw, depth = rgb[0][[1, 2, 0]].tobytes(), PIXEL_FORMATS[name].depth
    for color, expected in zip(ALL, zscale(ffmpeg, tmp_path, raw, "gbrpf32le", name, filters), strict=True):
        yuv = FrameFormat(PIXEL_FORMATS[name], WIDTH, HEIGHT, color)
        converter = Converter(yuv.with_(pixels=PIXEL_FORMATS["rgbf32"]), yuv, dither=False)
        got = converter((torch.from_numpy(rgb),))
        for p, q in zip(codes(got, name), codes(unpack(expected, name), name), strict=True):
            assert np.abs(p - q).max() <= ALLOWED[depth], color


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("yuv420p10le", "yuv420p"),
        ("yuv422p", "yuv420p10le"),
        ("yuv444p12le", "yuv420p10le"),
        ("yuv420p", "yuv422p12le"),
    ],
)
def test_yuv_to_yuv(ffmpeg: Run, tmp_path: Path, source: str, target: str) -> None:
    """From BT.709, limited, left to everything: with and without a change of matrix.

    Legal codes only: where zimg widens the range before it moves chroma, it clamps in between, and gpupipe does not.
    """
    start = ColorSpec(Matrix.BT709, range=Range.LIMITED, chroma_location=ChromaLocation.LEFT)
    filters = [f"zscale={tags(start, 'in')}:{tags(c, '')}:filter=bilinear:dither=none" for c in ALL]
    raw, depth = random_codes(source, legal=True), PIXEL_FORMATS[target].depth
    for color, expected in zip(ALL, zscale(ffmpeg, tmp_path, raw, source, target, filters), strict=True):
        a = FrameFormat(PIXEL_FORMATS[source], WIDTH, HEIGHT, start)
        converter = Converter(a, FrameFormat(PIXEL_FORMATS[target], WIDTH, HEIGHT, color), dither=False)
        assert converter.kind == ("levels" if color.matrix is Matrix.BT709 else "matrix")
        for p, q in zip(
            codes(converter(unpack(raw, source)), target), codes(unpack(expected, target), target), strict=True
        ):
            assert np.abs(p - q).max() <= ALLOWED[depth], color


@pytest.mark.parametrize("interlaced", [False, True])
def test_fields_of_interlaced_material_stay_apart(ffmpeg: Run, tmp_path: Path, interlaced: bool) -> None:
    """Against swscale, which knows the siting of a field's chroma (zscale does not); rows are constant, as it centres."""
    random, shape = np.random.default_rng(5), (HEIGHT // 2, WIDTH // 2)
    planes = [
        np.full((HEIGHT, WIDTH), 128),
        *(np.broadcast_to(random.integers(0, 256, (shape[0], 1)), shape) for _ in "uv"),
    ]
    raw = b"".join(p.astype(np.uint8).tobytes() for p in planes)
    filters = [
        f"setfield=tff,scale=interl={int(interlaced)}:flags=bilinear+accurate_rnd+full_chroma_inp+full_chroma_int"
    ]
    (expected,) = zscale(ffmpeg, tmp_path, raw, "yuv420p", "yuv444p", filters)
    field_order = "tt" if interlaced else "progressive"
    yuv = FrameFormat(PIXEL_FORMATS["yuv420p"], WIDTH, HEIGHT, field_order=field_order)
    got = Converter(yuv, yuv.with_(pixels=PIXEL_FORMATS["yuv444p"]))(unpack(raw, "yuv420p"))
    for p, q in zip(codes(got, "yuv444p"), codes(unpack(expected, "yuv444p"), "yuv444p"), strict=True):
        assert np.abs(p - q).max() <= 1


def test_gbrp_plane_order(ffmpeg: Run, tmp_path: Path) -> None:
    color = ColorSpec(Matrix.BT709, range=Range.LIMITED, chroma_location=ChromaLocation.LEFT)
    raw = random_codes("yuv444p")
    filters = [f"zscale={tags(color, 'in')}:matrix=gbr:range=full:dither=none"]
    (expected,) = zscale(ffmpeg, tmp_path, raw, "yuv444p", "gbrp", filters)
    a, b = (
        FrameFormat(PIXEL_FORMATS["yuv444p"], WIDTH, HEIGHT, color),
        FrameFormat(PIXEL_FORMATS["gbrp"], WIDTH, HEIGHT),
    )
    for p, q in zip(
        codes(Converter(a, b)(unpack(raw, "yuv444p")), "gbrp"), codes(unpack(expected, "gbrp"), "gbrp"), strict=True
    ):
        assert np.abs(p - q).max() <= 1
