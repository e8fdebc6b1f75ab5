"""The Triton kernel against grid_sample: on the GPU, and by Triton's interpreter where there is none."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from gpupipe.ops import warp

if TYPE_CHECKING:
    from collections.abc import Callable

MAPS = {
    "turned": [[0.9, 0.3, -2.0], [-0.2, 1.1, 3.0], [0.0, 0.0, 1.0]],
    "shrunk": [[0.2, 0.0, 9.0], [0.0, 0.3, 5.0], [0.0, 0.0, 1.0]],
    "pinned": [[1.0, 0.1, 1.0], [0.0, 1.0, 0.0], [0.004, 0.002, 1.0]],
    "identity": np.eye(3).tolist(),
    "far": [[0.001, 0.0, 500.0], [0.0, 0.001, 0.0], [0.0, 0.0, 1.0]],
}
SIZES = ((37, 6), (1, 1), (321, 241), (1920, 1080))


def compare(device: str, sizes: tuple[tuple[int, int], ...] = SIZES, count: int = 2) -> None:
    """Every map, border, dtype and size; at most one step of the result's precision apart."""
    from gpupipe.ops.warp_triton import BORDERS, bilinear  # noqa: PLC0415  (reads the environment)

    random = torch.Generator().manual_seed(3)
    for width, height in sizes:
        for matrix in MAPS.values():
            grid = warp.sampling_grid(np.array(matrix), width, height, torch.device(device))
            # Places are float32 too: at 1920 pixels they are out by some ten-thousandths, and so is noise sampled there.
            for dtype, most in ((torch.float16, 2**-10), (torch.float32, 3e-5 + 4e-7 * width)):
                channels = 4 if dtype == torch.float32 else 3  # with alpha
                rgb = (torch.rand((count, channels, height, width + 5), generator=random) * 1.2 - 0.1).to(
                    device, dtype
                )[..., 2:-3]
                for border in BORDERS:
                    wanted = torch.nn.functional.grid_sample(
                        rgb.float(),
                        grid.expand(count, -1, -1, -1),
                        padding_mode=warp._PADDING[border],
                        align_corners=False,
                    )
                    got = bilinear(rgb, grid, border)
                    assert got.dtype == dtype
                    assert got.shape == rgb.shape
                    assert (got.float() - wanted.to(dtype).float()).abs().max() <= most, (width, matrix, dtype, border)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed; the gpu tests run the kernel")
def test_kernel_in_the_interpreter(by_the_interpreter: Callable[[], None]) -> None:
    by_the_interpreter()


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_kernel_compiles_for_a_gpu(by_the_compiler: Callable[[str], None]) -> None:
    """To machine code of compute capability 9.0, which needs no GPU: what the interpreter lets pass may not compile."""
    program = """
from gpupipe.ops.warp_triton import _bilinear
for border in (0, 1, 2):
    compiled(_bilinear, dict(BORDER=border, CHANNELS=3 + border % 2, ROWS=4, COLUMNS=128, EACH=1 + 7 * (border % 2)), dict(grid_ptr="*fp32"))
"""
    by_the_compiler(program)


@pytest.mark.gpu
def test_kernel_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    compare("cuda")
    several()
    rgb = torch.rand((2, 3, 90, 160), device="cuda")
    grid = warp.sampling_grid(np.array(MAPS["turned"]), 160, 90, torch.device("cuda"))
    ours = warp.sample(rgb, grid, "bilinear", "edge")
    with monkeypatch.context() as patch:
        patch.setattr(warp, "find_spec", lambda _: None)
        theirs = warp.sample(rgb, grid, "bilinear", "edge")
    assert float((ours - theirs).abs().max()) < 1e-4


def several(device: str = "cuda") -> None:
    """Pictures that one program takes, as many as there are and fewer."""
    from gpupipe.ops import warp_triton  # noqa: PLC0415  (reads the environment)

    before = warp_triton._PROGRAMS
    for programs in (1, 5):
        warp_triton._PROGRAMS = programs
        compare(device, SIZES[:1], 5)
    warp_triton._PROGRAMS = before


if __name__ == "__main__":
    compare("cpu", SIZES[:2])
    several("cpu")
