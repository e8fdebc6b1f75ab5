"""nvJPEG itself: what libav decodes is what went in, whatever the batch, the lane and the size."""

from __future__ import annotations

import io
import threading
from fractions import Fraction

import av
import numpy as np
import pytest
import torch

from gpupipe.codecs import nvjpeg
from gpupipe.codecs.base import EncoderSettings
from gpupipe.color import ChromaLocation, ColorSpec, Matrix, Range
from gpupipe.device.cuda import CudaLane
from gpupipe.device.driver import enter_context
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

pytestmark = pytest.mark.gpu


def settings(pixels: str, width: int, height: int, quality: int = 97, **options: str) -> EncoderSettings:
    color = ColorSpec(Matrix.BT470BG, 1, 1, Range.FULL, ChromaLocation.CENTER)
    source = FrameFormat(PIXEL_FORMATS[pixels], width, height, color, device="cuda:0")
    assert nvjpeg.supports(source, options, quality, None) is None
    return EncoderSettings("mjpeg", "nvjpeg", source, Fraction(1, 25), Fraction(25), quality, None, None, options)


def waves(asked: EncoderSettings, count: int) -> tuple[torch.Tensor, ...]:
    """Smooth pictures, each another one, with values near both ends of the range."""
    planes = []
    for index, (high, wide) in enumerate(asked.input_format.pixels.plane_shapes(*_size(asked))):
        y, x = torch.meshgrid(torch.linspace(0, 3, high), torch.linspace(0, 5, wide), indexing="ij")
        phases = torch.arange(count).reshape(-1, 1, 1) / 3 + index
        planes.append((128 + 63 * torch.sin(x + phases) + 63 * torch.cos(y - phases)).to(torch.uint8))
    return tuple(planes)


def _size(asked: EncoderSettings) -> tuple[int, int]:
    return asked.input_format.width, asked.input_format.height


def encode(encoder: nvjpeg.NvjpegEncoder, lane: CudaLane, planes: tuple[torch.Tensor, ...]) -> list[bytes]:
    with lane.active():
        there = tuple(plane.cuda() for plane in planes)
    source, count = encoder.settings.input_format, len(planes[0])
    batch = FrameBatch(source, tuple(range(3, 3 + count)), Fraction(1, 25), there, ready=lane.record())
    packets = encoder.encode(batch)
    assert [(p.pts, p.dts) for p in packets] == [(n, n) for n in range(3, 3 + count)]
    return [bytes(packet) for packet in packets]


def decode(data: bytes) -> tuple[str, list[np.ndarray]]:
    frame = next(av.open(io.BytesIO(data), format="mjpeg").decode(video=0))
    samples = [np.frombuffer(p, np.uint8).reshape(-1, p.line_size)[: p.height, : p.width] for p in frame.planes]
    return frame.format.name, samples


def psnr(got: np.ndarray, want: torch.Tensor) -> float:
    error = np.mean((got.astype(float) - want.numpy()) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p", "yuv444p"])
@pytest.mark.parametrize(("width", "height"), [(640, 360), (321, 241), (17, 9), (1, 1)])
def test_pictures_come_back(pixels: str, width: int, height: int) -> None:
    asked, lane = settings(pixels, width, height), CudaLane("cuda:0")
    planes = waves(asked, 3)
    for data, *wanted in zip(encode(nvjpeg.NvjpegEncoder(asked, lane), lane, planes), *planes, strict=True):
        name, got = decode(data)
        assert name == f"yuvj{pixels[3:]}"
        for plane, want in zip(got, wanted, strict=True):
            assert plane.shape == want.shape
            assert psnr(plane, want) >= (45 if width > 20 else 40)  # of a few samples the error hardly averages


def test_bytes_depend_on_neither_batch_nor_lane() -> None:
    asked, lane = settings("yuv420p", 640, 360), CudaLane("cuda:0")
    count = 2 * nvjpeg.STATES + 5
    planes = waves(asked, count)
    alone = nvjpeg.NvjpegEncoder(asked, lane)
    wanted = [encode(alone, lane, tuple(plane[n : n + 1] for plane in planes))[0] for n in range(count)]
    assert len(set(wanted)) == count
    found: list[list[bytes]] = []

    def work() -> None:
        enter_context(0)
        own = CudaLane("cuda:0")
        encoder = nvjpeg.NvjpegEncoder(asked, own)
        found.extend(encode(encoder, own, planes) for _ in range(4))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
        assert not thread.is_alive()
    assert len(found) == 16
    assert all(data == wanted for data in found)


def test_optimal_tables_are_smaller_and_change_no_sample() -> None:
    lane = CudaLane("cuda:0")
    data = {}
    for huffman in ("default", "optimal"):
        asked = settings("yuv420p", 640, 360, 90, huffman=huffman)
        data[huffman] = encode(nvjpeg.NvjpegEncoder(asked, lane), lane, waves(asked, 1))[0]
    assert len(data["optimal"]) < len(data["default"])
    for one, other in zip(decode(data["optimal"])[1], decode(data["default"])[1], strict=True):
        assert np.array_equal(one, other)


def test_noise_at_the_best_quality_fits() -> None:
    asked, lane = settings("yuv444p", 640, 360, 100), CudaLane("cuda:0")
    shapes = asked.input_format.pixels.plane_shapes(640, 360)
    random = torch.Generator().manual_seed(3)
    planes = tuple(torch.randint(0, 256, (20, *shape), dtype=torch.uint8, generator=random) for shape in shapes)
    coded = encode(nvjpeg.NvjpegEncoder(asked, lane), lane, planes)
    assert min(map(len, coded)) > 640 * 360
    for number in (0, 7, 8, 19):
        assert min(psnr(p, w[number]) for p, w in zip(decode(coded[number])[1], planes, strict=True)) >= 45


def test_a_lane_takes_no_more_memory_than_is_planned() -> None:
    asked, lane = settings("yuv444p", 1920, 1080, 100), CudaLane("cuda:0")
    encoders = [nvjpeg.NvjpegEncoder(settings("yuv444p", 320, 180), lane)]  # what the library takes once
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    encoders.append(nvjpeg.NvjpegEncoder(asked, lane))
    torch.cuda.empty_cache()
    taken = before - torch.cuda.mem_get_info()[0]
    planned = nvjpeg.lane_bytes(1920 * 1080, 3 * 1920 * 1080, 2 * nvjpeg.STATES)
    print("taken", taken >> 20, "planned", planned >> 20, "MiB")  # noqa: T201
    assert planned / 2 < taken <= planned
