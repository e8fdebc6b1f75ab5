"""ProRes on a GPU: the kernels give the torch path's integers, and the encoder the bytes that it gives on the CPU."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from gpupipe.codecs.base import EncoderSettings
from gpupipe.codecs.prores.coder import Coder, TorchArithmetic
from gpupipe.codecs.prores.encoder import ProresEncoder
from gpupipe.codecs.prores.layout import layout_of
from gpupipe.codecs.prores.profile import PROFILES
from gpupipe.color import ColorSpec, Matrix, Range
from gpupipe.device.cpu import CpuLane
from gpupipe.device.cuda import CudaLane
from gpupipe.device.driver import enter_context
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codecs" / "prores"))
from prores_pictures import decoded, picture, psnr

pytestmark = pytest.mark.gpu
COLOR = ColorSpec(Matrix.BT709, 1, 1, Range.LIMITED)


def source_of(size: tuple[int, int], profile: int, order: str = "progressive", device: str = "cpu") -> FrameFormat:
    pixels = PIXEL_FORMATS["yuv444p12le" if PROFILES[profile].chroma_444 else "yuv422p10le"]
    return FrameFormat(pixels, *size, COLOR, field_order=order, device=device)


def frames_of(source: FrameFormat, kinds: tuple[str, ...]) -> tuple[torch.Tensor, ...]:
    full, depth = source.pixels.chroma_shift == (0, 0), source.pixels.depth
    made = [picture(k, source.width, source.height, full=full, depth=depth, seed=n) for n, k in enumerate(kinds)]
    return tuple(torch.from_numpy(np.stack(planes)) for planes in zip(*made, strict=True))


def settings_of(source: FrameFormat, profile: int) -> EncoderSettings:
    return EncoderSettings(
        "prores", "prores_torch", source, Fraction(1, 25), Fraction(25), None, None, None, {"profile": str(profile)}
    )


@pytest.mark.parametrize(
    ("size", "profile", "order"),
    [((1920, 1080), 3, "progressive"), ((720, 486), 2, "bb"), ((720, 576), 0, "tt"), ((1998, 1080), 1, "progressive"),
     ((66, 50), 4, "progressive"), ((17, 15), 5, "progressive")],
    ids=str,
)  # fmt: skip
def test_kernels_are_the_torch_path(size, profile, order) -> None:
    source = source_of(size, profile, order, "cuda:0")
    layout = layout_of(source)
    from gpupipe.codecs.prores.entropy_triton import TritonArithmetic  # noqa: PLC0415

    plain = TorchArithmetic(layout, PROFILES[profile], source.pixels, "cuda:0")
    kernels = TritonArithmetic(layout, PROFILES[profile], source.pixels, "cuda:0")
    planes = tuple(p.cuda() for p in frames_of(source, ("grain", "noise", "text")))
    coefficients = plain.coefficients(planes)
    assert torch.equal(kernels.coefficients(planes), coefficients)
    generator = torch.Generator("cpu").manual_seed(profile)
    for most in (4, 225):
        signs = torch.randint(0, 2, (len(coefficients), layout.slices), generator=generator) * 2 - 1
        quantisers = (signs * torch.randint(1, most, signs.shape, generator=generator)).cuda()  # below 0: plain
        cost, same = plain.cost(coefficients, quantisers), kernels.cost(coefficients, quantisers)
        assert torch.equal(same.bits, cost.bits)
        assert torch.equal(same.error, cost.error)
        sizes = (cost.bits + 7) // 8
        starts = 8 * (sizes.flatten().cumsum(0) - sizes.flatten()).view(sizes.shape)
        room = -(-int(sizes.sum()) // 4) * 4
        assert torch.equal(
            kernels.write(coefficients, quantisers, starts, room), plain.write(coefficients, quantisers, starts, room)
        )


@pytest.mark.parametrize("profile", PROFILES, ids=lambda p: p.name)
@pytest.mark.parametrize("order", ["progressive", "tt"])
@pytest.mark.parametrize("graphed", [0, 5], ids=["eager", "graphed"])
def test_bytes_are_those_of_the_cpu(profile, order, graphed) -> None:
    """And they are a picture."""
    size = (360, 162)
    kinds = ("grain", "text", "noise", "gradient", "smooth")
    cpu = source_of(size, profile.number, order)
    planes = frames_of(cpu, kinds)
    times = tuple(range(len(kinds)))
    expected = ProresEncoder(settings_of(cpu, profile.number), CpuLane()).encode(
        FrameBatch(cpu, times, Fraction(1, 25), planes)
    )
    gpu, lane = cpu.with_(device="cuda:0"), CudaLane("cuda:0")
    encoder = ProresEncoder(settings_of(gpu, profile.number), lane, graphed)
    assert (encoder._repeated is not None) == bool(graphed)
    with lane.active():
        there = tuple(p.cuda() for p in planes)
    for rows in (5, 2, 1):  # whatever the batch
        found = []
        for n in range(0, 5, rows):
            part = tuple(p[n : n + rows] for p in there)
            found += encoder.encode(FrameBatch(gpu, times[n : n + rows], Fraction(1, 25), part, ready=lane.record()))
        assert [bytes(p) for p in found] == [bytes(p) for p in expected]
        assert [p.pts for p in found] == list(times)
    first = decoded([bytes(expected[0])], *size, profile.fourcc)[0]
    assert psnr(first, tuple(p[0].numpy() for p in planes), cpu.pixels.depth) > 38
    assert encoder.finish() == []


def test_alpha_is_that_of_the_cpu() -> None:
    source = source_of((150, 52), 4)
    planes = frames_of(source, ("grain", "text"))
    alpha = torch.from_numpy(np.random.default_rng(1).integers(0, 4096, (2, 52, 150)).astype(np.uint16))
    alpha[1, :, 40:] = 4095
    batch = FrameBatch(source, (0, 1), Fraction(1, 25), (*planes, alpha))
    expected = ProresEncoder(settings_of(source, 4), CpuLane()).encode(batch)
    lane = CudaLane("cuda:0")
    there = batch.with_(planes=tuple(p.cuda() for p in batch.planes))
    torch.cuda.synchronize()
    found = ProresEncoder(settings_of(source.with_(device="cuda:0"), 4), lane).encode(there)
    assert [bytes(p) for p in found] == [bytes(p) for p in expected]


def test_lanes_side_by_side_give_the_same_bytes() -> None:
    source = source_of((640, 360), 3, device="cuda:0")
    planes = tuple(p.cuda() for p in frames_of(source, ("grain", "noise", "text", "smooth")))
    torch.cuda.synchronize()
    results: dict[int, list[bytes]] = {}

    encoders = [ProresEncoder(settings_of(source, 3), CudaLane("cuda:0"), 4 if n else 0) for n in range(3)]

    def work(number: int) -> None:
        enter_context(0)
        encoder = encoders[number]
        coded = [encoder.encode(FrameBatch(source, (0, 1, 2, 3), Fraction(1, 25), planes)) for _ in range(5)]
        results[number] = [b"".join(bytes(p) for p in packets) for packets in coded]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len({data for found in results.values() for data in found}) == 1


def test_what_leaves_the_device() -> None:
    """At most 1.02 times the bitstream: the frames lie packed, and beside them only their sizes are read."""
    source = source_of((1920, 1080), 3, device="cuda:0")
    coder = Coder(source, PROFILES[3])
    coded = coder.write(coder.choose(tuple(p.cuda() for p in frames_of(source, ("grain", "smooth")))))
    assert coded.data.numel() + 16 * len(coded.sizes) <= 1.02 * sum(coded.sizes)


def test_what_does_not_fit_is_coded_piece_by_piece() -> None:
    """Noise at the finest quantiser takes more than the profile's rate, which is what a graph has room for."""
    source = source_of((360, 162), 0)
    planes = frames_of(source, ("noise", "noise"))
    asked = replace(settings_of(source, 0), quality=1)
    expected = ProresEncoder(asked, CpuLane()).encode(FrameBatch(source, (0, 1), Fraction(1, 25), planes))
    gpu, lane = source.with_(device="cuda:0"), CudaLane("cuda:0")
    encoder = ProresEncoder(replace(asked, input_format=gpu), lane, 2)
    assert encoder._repeated is not None
    assert sum(p.size for p in expected) > encoder._repeated._room
    there = tuple(p.cuda() for p in planes)
    torch.cuda.synchronize()
    found = encoder.encode(FrameBatch(gpu, (0, 1), Fraction(1, 25), there))
    assert [bytes(p) for p in found] == [bytes(p) for p in expected]
