"""The faces' Triton kernels against torch, on the GPU, and by Triton's interpreter elsewhere.

Places are float64 in both, so that values are about as far apart as float32 rounds: crops by 1e-5, the detector's
picture by 5e-4 of 255 from float64, a float32 frame by 1e-4 (`grid_sample` has places of a crop in float32, a
hundred-thousandth of a pixel off), a float16 frame by one step of its own.
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import cycle
from typing import TYPE_CHECKING, get_args

import pytest
import torch

from gpupipe.collector import no_collection
from gpupipe.faces import align, detect
from gpupipe.faces import paste as laying
from gpupipe.faces.align import apply, inverse, pixels, scale, similarity
from gpupipe.faces.detect import Look
from gpupipe.faces.detect import shown as seen_by_detector
from gpupipe.faces.masks import Shape
from gpupipe.faces.paste import _FINE, Mask, Places, Region, extent, paste, paste_all, pyramid_of, rehearse
from gpupipe.faces.sampling import sample
from gpupipe.faces.templates import template

if TYPE_CHECKING:
    from collections.abc import Callable

SHARES = (0.8, 0.3, 0.5, 0.1, 2.5, 0.02, 9.0)
"""Sides of faces as parts of the picture's height."""
LOOKS = (*(Mask(shape, 0.2) for shape in get_args(Shape)), Mask("hull", 0.0, 0.6))


def pictures(count: int, width: int, height: int, dtype: torch.dtype, *, packed: bool = True) -> torch.Tensor:
    """Noise on slopes, a little beyond 0..1; column after column in memory if not packed."""
    random = torch.Generator().manual_seed(width + count)
    noise = torch.rand((count, 3, height, width), generator=random)
    rgb = (noise * 0.5 + torch.linspace(-0.1, 0.7, width)).to(dtype)
    return rgb if packed else rgb.transpose(2, 3).contiguous().transpose(2, 3)


def points(count: int, width: int, height: int, seed: int) -> torch.Tensor:
    """(count, 5, 2): turned faces of all sizes, some of them beyond an edge."""
    random = torch.Generator().manual_seed(seed)
    face = torch.from_numpy(template("ffhq512", 1)).to(torch.float32) - 0.5
    turn = torch.rand(count, generator=random) * 6.3
    side = height * torch.tensor(SHARES).repeat(count // len(SHARES) + 1)[:count]
    along = torch.stack((turn.cos(), -turn.sin(), turn.sin(), turn.cos()), -1).view(-1, 2, 2) * side.view(-1, 1, 1)
    middle = torch.rand((count, 1, 2), generator=random) * torch.tensor([width * 1.3, height * 1.3]) - 0.15 * height
    jitter = torch.randn((count, 5, 2), generator=random) * 0.02 * side.view(-1, 1, 1)
    return face @ along.mT + middle + jitter


def compare_crops(device: str, frames: tuple[tuple[int, int], ...], sizes: tuple[int, ...], count: int = 14) -> None:
    from gpupipe.faces.sampling_triton import crops  # noqa: PLC0415  (reads the environment)

    for width, height in frames:
        picture = (torch.arange(count) % 3).flip(0).to(device)
        for size in sizes:
            goal = torch.from_numpy(template("ffhq512", size))
            matrix = similarity(points(count, width, height, size), goal).to(device)
            back = inverse(matrix)
            places = apply(back, pixels(size, matrix.device).view(1, -1, 2)).view(-1, size, size, 2)
            for dtype, packed in ((torch.float16, True), (torch.float32, False)):
                rgb = pictures(3, width, height, dtype, packed=packed).to(device)
                wanted = sample(rgb.to(torch.float32), picture, places, scale(back))
                got = crops(rgb, picture, matrix, size)
                assert got.dtype == torch.float32
                torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
                alone = crops(rgb[1:2], picture[:1] * 0, matrix[picture == 1][:1], size)
                assert torch.equal(alone, got[picture == 1][:1]), "a face depends on its neighbours"


def compare_shown(device: str, changes: tuple[tuple[int, int, int, int], ...]) -> None:
    from gpupipe.faces.shown_triton import shown  # noqa: PLC0415

    kinds = cycle(((torch.float16, True), (torch.float32, False)))
    for (width, height, wide, high), (dtype, packed) in zip(changes, kinds, strict=False):
        full = (high + -high % 32, wide + -wide % 32)
        rgb = pictures(2, width, height, dtype, packed=packed).to(device)
        exact = torch.nn.functional.interpolate(
            rgb.to(torch.float64).clamp(0, 1) * 255, size=(high, wide), mode="bilinear", antialias=True
        )
        got = shown(rgb, (high, wide), full)
        assert got.dtype == torch.float32
        assert got.shape == (2, 3, *full)
        torch.testing.assert_close(got[..., :high, :wide].to(torch.float64), exact, atol=5e-4, rtol=0)
        assert not got[..., high:, :].any()
        assert not got[..., wide:].any()


def compare_paste(
    device: str,
    frames: tuple[tuple[int, int], ...],
    sizes: tuple[int, ...],
    places: int,
    looks: tuple[Mask, ...] = LOOKS,
) -> None:
    from gpupipe.faces.paste_triton import paste as pasted  # noqa: PLC0415

    for (width, height), size, (number, look) in (
        (frame, size, look) for frame in frames for size in sizes for look in enumerate(looks)
    ):
        random = torch.Generator().manual_seed(size + number)
        count, dtype = 2, (torch.float16, torch.float32)[number % 2]
        at = points(count * places, width, height, number).view(count, places, 5, 2).to(device)
        matrix = similarity(at, torch.from_numpy(template("ffhq512", size)).to(device))
        valid = (torch.rand((count, places), generator=random) < 0.7).to(device)
        rank = (valid.flatten().cumsum(0) - 1).clamp(min=0).view(valid.shape)
        faces = torch.rand((int(valid.sum()), 3, size, size), generator=random).to(device)
        rgb = pictures(count, width, height, dtype).to(device)
        rgb[:, :, ::9, ::11] = float("nan")
        wanted, got, lie = rgb.clone(), rgb.clone(), Places(matrix, at, valid, rank)
        span = int(extent(matrix, size).max()) + 2
        region = Region(min(width, span), min(height, span))
        for k in range(places):
            paste(wanted, faces[rank[:, k]], lie.at(k), look, region)
        pasted(got, pyramid_of(faces), lie, look, _FINE)
        seen = ~rgb.isnan()
        assert torch.equal(got.isnan(), wanted.isnan())
        changed, ours = (wanted != rgb) & seen, (got != rgb) & seen
        assert bool(changed.any()), (width, size, look)
        assert int((changed != ours).sum()) <= 0.001 * int(changed.sum()) + 1, "pixels outside the mask keep every bit"
        most = 2**-10 if dtype == torch.float16 else 1e-4
        # Where the mask has no feather, a pixel at its edge may lie on the other side of one of several faces.
        beyond = 0 if look.feather else 1 + int(changed.sum()) // 100_000
        assert int(((got - wanted).abs() > most)[seen].sum()) <= beyond, look


def _tall_tiles() -> None:
    """For the interpreter, which takes as long for a small tile as for a large one: few, and several side by side."""
    from gpupipe.faces import paste_triton, sampling_triton, shown_triton  # noqa: PLC0415

    paste_triton._STRIPS, paste_triton._ROWS, paste_triton._COLUMNS = 2, 16, 32
    for module in (sampling_triton, shown_triton):
        module._ROWS, module._COLUMNS = 32, 32


def compare(device: str) -> None:
    if device == "cpu":
        _tall_tiles()
        compare_crops(device, ((61, 45),), (20,), 7)
        compare_crops(device, ((40, 31),), (33,), 4)
        compare_shown(device, ((61, 45, 33, 24), (9, 7, 19, 11), (64, 32, 32, 16), (33, 9, 7, 2), (21, 17, 21, 17)))
        compare_paste(device, ((70, 30),), (16,), 3)
        compare_paste(device, ((40, 37),), (128,), 3, LOOKS[-2:])
        return
    compare_crops(device, ((1920, 1080), (61, 45)), (192, 256, 41), 28)
    compare_shown(
        device, ((1920, 1080, 960, 540), (1920, 1080, 640, 360), (1080, 1920, 1000, 1777), (64, 32, 640, 320))
    )
    compare_paste(device, ((1920, 1080), (93, 61)), (64, 256), 9)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed; the gpu tests run the kernels")
def test_kernels_in_the_interpreter(by_the_interpreter: Callable[[], None]) -> None:
    by_the_interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernels_compile_for_a_gpu(by_the_compiler: Callable[[str], None]) -> None:
    """To machine code of compute capability 9.0, which needs no GPU: what the interpreter lets pass may not compile."""
    program = """
from gpupipe.faces.paste_triton import _paste
from gpupipe.faces.sampling_triton import _crops
from gpupipe.faces.shown_triton import _shown
kinds = dict(
    in_ptr="*fp16", out_ptr="*fp32", picture_ptr="*i64", rank_ptr="*i64", matrix_ptr="*fp64", points_ptr="*fp32",
    valid_ptr="*u8", whole_ptr="*fp32", half_ptr="*fp32", quarter_ptr="*fp32", eighth_ptr="*fp32",
    feather="fp32", opacity="fp32",
)
def make(kernel, warps, constants, **other):
    assert {p.name for p in kernel.params if not p.do_not_specialize} == set(constants), "compiled anew in mid-run"
    compiled(kernel, constants, kinds | other, warps=warps)
make(_crops, 4, dict(CHANNELS=3, ROWS=8, COLUMNS=32))
make(_shown, 4, dict(AT_ONCE=4, ROWS=8, COLUMNS=32))
for shape in (0, 1, 2):
    constants = dict(SHAPE=shape, FINE=1.6, PLACES=16, STRIPS=8, ROWS=4, COLUMNS=64)
    make(_paste, 8, constants, out_ptr="*fp16")
"""
    by_the_compiler(program)


@pytest.mark.gpu
def test_kernels_on_the_gpu() -> None:
    compare("cuda")


@pytest.mark.gpu
def test_what_calls_them_gives_the_same_without_and_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    rgb = pictures(4, 640, 360, torch.float16).cuda()
    at = points(12, 640, 360, 5).view(4, 3, 5, 2).cuda()
    matrix = similarity(at, torch.from_numpy(template("ffhq512", 128)).cuda())
    picture = torch.arange(12, device="cuda") // 3
    valid = torch.ones((4, 3), dtype=torch.bool, device="cuda")
    lie = Places(matrix, at, valid, torch.arange(12, device="cuda").view(4, 3))

    def done() -> tuple[torch.Tensor, ...]:
        small, cut, out = (
            seen_by_detector(rgb, Look(320, 180, 0.5)),
            align.crops(rgb, picture, matrix.flatten(0, 1), 128),
            rgb.clone(),
        )
        paste_all(out, 1 - cut, lie, Mask("hull", 0.2), Region(640, 360), deepest=3)
        return small, cut, out

    ours = done()
    graph = torch.cuda.CUDAGraph()
    with no_collection(), torch.cuda.graph(graph):
        captured = done()
    graph.replay()
    assert all(torch.equal(a, b) for a, b in zip(ours, captured, strict=True))
    for module in (align, detect, laying):
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    for a, b, most in zip(ours, done(), (1e-2, 1e-5, 2**-10), strict=True):
        torch.testing.assert_close(a, b, atol=most, rtol=0)


@pytest.mark.gpu
def test_nothing_is_compiled_when_faces_come() -> None:
    from gpupipe.faces.paste_triton import _paste  # noqa: PLC0415
    from gpupipe.faces.sampling_triton import _crops  # noqa: PLC0415

    def compiled() -> int:
        return sum(len(cache[0]) for kernel in (_paste, _crops) for cache in kernel.device_caches.values())

    mask = Mask("hull", 0.2)
    rehearse(torch.zeros(1, 3, 8, 8, dtype=torch.float16, device="cuda"), 3, mask)
    known = compiled()
    assert known >= 2
    for width, height, size in ((640, 360, 128), (61, 45, 33), (1920, 1080, 256)):
        rgb = pictures(2, width, height, torch.float16).cuda()
        at = points(6, width, height, 5).cuda()
        matrix = similarity(at, torch.from_numpy(template("ffhq512", size)).cuda())
        rank = torch.arange(6, device="cuda").view(2, 3)
        cut = align.crops(rgb, (rank.flatten() // 3)[1:], matrix[1:], size)
        lie = Places(matrix.view(2, 3, 2, 3), at.view(2, 3, 5, 2), rank >= 0, (rank - 1).clamp(min=0))
        paste_all(rgb, cut, lie, mask, Region(width, height), deepest=3)
    assert compiled() == known


if __name__ == "__main__":
    compare("cpu")
