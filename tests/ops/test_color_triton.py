"""The Triton kernels against the torch reference: on the GPU, and by Triton's interpreter where there is none."""

from __future__ import annotations

import itertools
from importlib.util import find_spec
from typing import TYPE_CHECKING

import h273
import numpy as np
import pytest
import torch
from noise import noise

from gpupipe.collector import no_collection
from gpupipe.color import LUMA_COEFFICIENTS, ChromaLocation, ColorSpec, Matrix, Range
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.ops import color
from gpupipe.ops.color import Converter

Planes = tuple[torch.Tensor, ...]

if TYPE_CHECKING:
    from collections.abc import Callable

HOT = ["nv12", "p010le", "yuv420p", "yuv420p10le"]


def spec(location: ChromaLocation = ChromaLocation.LEFT, range_: Range = Range.LIMITED) -> ColorSpec:
    return ColorSpec(Matrix.BT709, range=range_, chroma_location=location)


JFIF = ColorSpec(Matrix.BT470BG, range=Range.FULL, chroma_location=ChromaLocation.CENTER)


def assert_close(got: Planes, expected: Planes, target: FrameFormat) -> None:
    """At most a code value or 2^-10 apart, and seldom at all: another order of addition may tip a tie."""
    for p, q in zip(got, expected, strict=True):
        assert p.shape == q.shape
        assert p.dtype == q.dtype
    for p, q in zip(*(h273.components(x, target.pixels.name) for x in (got, expected)), strict=True):
        error = np.abs(p.astype(np.float64) - q)
        if target.pixels.layout == "float":
            assert error.max() <= (2**-10 if target.pixels.depth == 16 else 4e-6)
        else:
            assert error.max() <= 1
            assert (error > 0).mean() <= 0.01 + 1 / error.size


def interpreted() -> None:
    """Runs in a process of its own with TRITON_INTERPRET=1: kernels called directly, planes on the CPU."""
    from gpupipe.ops.color_triton import ToRgb, ToYuv  # noqa: PLC0415  (reads the environment)

    names = [*HOT, "yuv422p10le", "yuv444p12msble"]
    for i, (name, location) in list(enumerate(itertools.product(names, ChromaLocation)))[::2]:
        range_, dithered = (Range.LIMITED, Range.FULL)[i // 2 % 2], i % 5 < 3
        width, height = ((3, 5), (1, 1), (133, 6))[i % 3]
        yuv = FrameFormat(PIXEL_FORMATS[name], width, height, spec(location, range_))
        rgb = yuv.with_(pixels=PIXEL_FORMATS["rgbf16" if i % 8 else "rgbf32"])
        dtype = torch.float16 if i % 8 else torch.float32
        planes, values = noise(yuv, 2, padding=i % 4), noise(rgb, 2, padding=i % 4)
        matrix = LUMA_COEFFICIENTS[Matrix.BT709]
        assert_close(ToRgb(yuv, range_, matrix, dtype)(planes), Converter(yuv, rgb)(planes), rgb)
        expected = Converter(rgb, yuv, dither=dithered)(values)
        assert_close(ToYuv(yuv, range_, matrix, dithered=dithered)(values), expected, yuv)
    for name, dithered in (("nv12", False), ("p010le", True), ("yuv422p10le", True)):  # as a GPU goes from YUV to YUV
        yuv = FrameFormat(PIXEL_FORMATS[name], 37, 22, spec())
        jpeg = yuv.with_(pixels=PIXEL_FORMATS["yuv420p"], color=JFIF)
        planes, (one, other) = noise(yuv, 2), (LUMA_COEFFICIENTS[m] for m in (Matrix.BT709, JFIF.matrix))
        rgb = ToRgb(yuv, Range.LIMITED, one, torch.float32)(planes)
        got = ToYuv(jpeg, Range.FULL, other, dithered=dithered)(rgb)
        assert_close(got, Converter(yuv, jpeg)(planes), jpeg)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed; the gpu tests run the kernels")
def test_kernels_in_the_interpreter(by_the_interpreter: Callable[[], None]) -> None:
    by_the_interpreter()


def pair(name: str, width: int, height: int, color_: ColorSpec, working: str) -> tuple[FrameFormat, FrameFormat]:
    yuv = FrameFormat(PIXEL_FORMATS[name], width, height, color_, device="cuda:0")
    return yuv, yuv.with_(pixels=PIXEL_FORMATS[working])


def reference(
    monkeypatch: pytest.MonkeyPatch, source: FrameFormat, target: FrameFormat, *, dither: bool = True
) -> Converter:
    """The torch path on the GPU."""
    with monkeypatch.context() as patch:
        patch.setattr(color, "find_spec", lambda _: None)
        converter = Converter(source, target, dither=dither)
    assert converter.kernel == "torch"
    return converter


LEFT = ChromaLocation.LEFT
CASES = [(n, "rgbf16", LEFT) for n in (*HOT, "yuv422p10le", "yuv444p", "p012le", "yuv444p12msble")] + [
    ("nv12", "rgbf16", ChromaLocation.CENTER),
    ("p010le", "rgbf32", ChromaLocation.TOP_LEFT),
    ("yuv420p10le", "rgbf16", ChromaLocation.BOTTOM),
]  # every case costs some compilations


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "working", "location"), CASES)
def test_kernels_on_the_gpu(name: str, working: str, location: ChromaLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(1, 1), (3, 5), (321, 241), (128, 4), (130, 6), (1920, 1080)]
    for (width, height), batch, padding in zip(sizes, (2, 1, 3, 1, 2, 1), (0, 3, 7, 0, 0, 128), strict=True):
        for range_ in Range:
            yuv, rgb = pair(name, width, height, spec(location, range_), working)
            for source, target, dither in ((yuv, rgb, True), (rgb, yuv, True), (rgb, yuv, False)):
                converter = Converter(source, target, dither=dither)
                assert converter.kernel == "triton"
                planes = noise(source, batch, padding=padding)
                expected = reference(monkeypatch, source, target, dither=dither)(planes)
                assert_close(converter(planes), expected, target)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["nv12", "p010le"])
def test_kernels_at_4k(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    yuv, rgb = pair(name, 3840, 2160, spec(), "rgbf16")
    for source, target in ((yuv, rgb), (rgb, yuv)):
        planes = noise(source, 2)
        assert_close(Converter(source, target)(planes), reference(monkeypatch, source, target)(planes), target)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["nv12", "p010le", "yuv444p", "yuv422p10le"])
@pytest.mark.parametrize("target", ["yuv420p", "yuv444p"])
def test_yuv_of_one_matrix_to_another(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for width, height in ((1, 1), (321, 241), (1920, 1080)):
        source = FrameFormat(PIXEL_FORMATS[name], width, height, spec(), device="cuda:0")
        wanted = source.with_(pixels=PIXEL_FORMATS[target], color=JFIF)
        converter, planes = Converter(source, wanted), noise(source, 2, padding=3)
        assert (converter.kind, converter.kernel) == ("matrix", "triton")
        assert_close(converter(planes), reference(monkeypatch, source, wanted)(planes), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("matrix", LUMA_COEFFICIENTS, ids=lambda m: m.name)
@pytest.mark.parametrize("range_", Range)
@pytest.mark.parametrize("name", HOT)
def test_kernels_against_exact_arithmetic(matrix: Matrix, range_: Range, name: str) -> None:
    for location in ChromaLocation:
        said = ColorSpec(matrix, range=range_, chroma_location=location)
        yuv, rgb = pair(name, 68, 46, said, "rgbf32")
        for source, target, bound in ((yuv, rgb, 4e-6), (rgb, yuv, 0.501)):
            planes = noise(source, 1)
            got = h273.components(Converter(source, target, dither=False)(planes), target.pixels.name)
            exact = h273.convert(planes, source, target)
            assert max(np.abs(p - q).max() for p, q in zip(got, exact, strict=True)) <= bound


@pytest.mark.gpu
@pytest.mark.parametrize("source", PIXEL_FORMATS)
@pytest.mark.parametrize("field_order", ["progressive", "tt"])
def test_every_pair_is_the_same_on_both_devices(source: str, field_order: str) -> None:
    for target in PIXEL_FORMATS:
        a, b = (FrameFormat(PIXEL_FORMATS[n], 37, 22, spec(), field_order=field_order) for n in (source, target))
        planes = noise(a, 2)
        expected = Converter(a, b)(planes)
        converter = Converter(a.with_(device="cuda:0"), b.with_(device="cuda:0"))
        got = tuple(p.cpu() for p in converter(tuple(p.cuda() for p in planes)))
        if converter.kind != "matrix" and "float" not in (a.pixels.layout, b.pixels.layout):
            assert all(torch.equal(p, q) for p, q in zip(got, expected, strict=True)), target
        else:
            assert_close(got, expected, b)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("source", "target"),
    [("nv12", "rgbf16"), ("rgbf16", "nv12"), ("p010le", "nv12"), ("yuv422p10le", "yuv420p"), ("rgbf16", "gbrp10le")],
)
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_capture_in_a_graph_without_waiting(source: str, target: str) -> None:
    a, b = (FrameFormat(PIXEL_FORMATS[n], 640, 360, spec(), device="cuda:0") for n in (source, target))
    converter, planes, fresh = Converter(a, b), noise(a, 2), noise(a, 2, seed=12)
    converter(planes)  # compiles
    torch.cuda.synchronize()
    try:
        torch.cuda.set_sync_debug_mode("error")
        converter(planes)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with no_collection(), torch.cuda.graph(graph):
        out = converter(planes)
    for p, q in zip(planes, fresh, strict=True):
        p.copy_(q)
    graph.replay()
    torch.cuda.synchronize()
    for p, q in zip(out, converter(fresh), strict=True):
        assert torch.equal(p.cpu(), q.cpu())


if __name__ == "__main__":
    interpreted()
