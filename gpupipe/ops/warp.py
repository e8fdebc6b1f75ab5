"""Sampling a picture along a projective map, through `grid_sample`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch.nn.functional import grid_sample

from gpupipe.ops.alpha import bounded, codes, unit, weighted

if TYPE_CHECKING:
    import numpy.typing as npt

Interpolation = Literal["nearest", "bilinear", "bicubic"]
Border = Literal["edge", "reflect", "constant"]

_PADDING = {"edge": "border", "reflect": "reflection", "constant": "zeros"}
_FAR = 64.0  # half widths of the picture: as far out as it matters where a point lies


def sampling_grid(matrix: npt.NDArray[np.float64], width: int, height: int, device: torch.device) -> torch.Tensor:
    """Where each output pixel takes its value from, for `sample`.

    Args:
        matrix: 3x3, takes input pixel coordinates (x, y, 1) to output ones; the centre of the top left pixel is (0, 0).
        width: of input and output.
        height: of input and output.
        device: where the grid is made.

    Returns:
        (1, H, W, 2) float32, x then y, -1 and 1 being the outer edges of the outermost pixels (align_corners=False).
        Computed in float64, so that it is off by less than a thousandth of a pixel up to 16384 pixels; on the device,
        since it is larger than a picture.
    """
    centre = matrix @ np.array([(width - 1) / 2, (height - 1) / 2, 1.0])
    inverse = np.linalg.inv(matrix if centre[2] > 0 else -matrix)
    x = torch.arange(width, dtype=torch.float64, device=device)
    y = torch.arange(height, dtype=torch.float64, device=device)[:, None]
    u, v, w = (float(row[0]) * x + float(row[1]) * y + float(row[2]) for row in inverse)
    seen = w > 0  # the rest lies behind the horizon of a perspective
    w = torch.where(seen, w, 1.0)
    grid = torch.stack(((2 * u / w + 1) / width - 1, (2 * v / w + 1) / height - 1), dim=-1)
    return torch.where(seen[..., None], grid, _FAR).clamp(-_FAR, _FAR).to(torch.float32)[None]


def sample(rgb_nchw: torch.Tensor, grid: torch.Tensor, filter_: Interpolation, border: Border) -> torch.Tensor:
    """Samples (N, C, H, W) along a grid; the result has the input's dtype.

    `grid_sample` wants one dtype for both, and a half precision grid is off by up to half a pixel at 1080p, so half
    precision pixels are sampled in float32. bicubic is Keys' with a = -0.75, as OpenCV's. On a GPU bilinear is a kernel
    of our own where triton is installed, which makes no float32 copies of the pictures.
    """
    if filter_ == "bilinear" and rgb_nchw.is_cuda and find_spec("triton") is not None:
        from gpupipe.ops.warp_triton import bilinear  # noqa: PLC0415  machines without a GPU have no triton

        return bilinear(rgb_nchw, grid, border)
    pictures = rgb_nchw.to(torch.float32)
    out = grid_sample(
        pictures,
        grid.expand(len(pictures), -1, -1, -1),
        mode=filter_,
        padding_mode=_PADDING[border],
        align_corners=False,
    )
    return out.to(rgb_nchw.dtype)


def weighted_sample(
    planes: tuple[torch.Tensor, ...], bits: int, grid: torch.Tensor, filter_: Interpolation, border: Border
) -> tuple[torch.Tensor, torch.Tensor]:
    """`sample` of planes (N, 3, H, W) and (N, H, W), alpha of `bits`: colours weighted by it, see `ops.alpha`.

    Beyond a constant border there is nothing: alpha is 0, and colours do not darken towards it.
    """
    rgb_nchw, alpha = planes
    pictures, full = rgb_nchw.to(torch.float32), unit(alpha, bits)[:, None]
    both = sample(torch.cat((pictures * full, full), dim=1), grid, filter_, border)
    plain = sample(pictures, grid, filter_, border)
    color = bounded(weighted(both[:, :3], both[:, 3:], plain, bits), both[:, 3:])
    return color.to(rgb_nchw.dtype), codes(both[:, 3] * ((1 << bits) - 1), bits)
