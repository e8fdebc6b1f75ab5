"""From five points to a similarity transform, and from transforms to the crops of all faces in one call."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from gpupipe.faces.sampling import sample

if TYPE_CHECKING:
    from torch import Tensor

_SMALLEST = 1e-6
"""Square pixels that the points must spread over; less is no face, and its transform is the identity."""


def similarity(points: Tensor, target: Tensor) -> Tensor:
    """The turn, scale and shift that takes `points` to `target` with the least sum of squares.

    Umeyama (1991), IEEE PAMI 13(4), equations 34 to 42, in the plane and without mirroring: there the singular values
    have a closed form. With points as complex numbers about their means, z and w, the factor is
    sum(conj(z) w) / sum(|z|^2).

    Args:
        points: (..., 5, 2).
        target: (5, 2), or of the same shape.

    Returns:
        (..., 2, 3) float64: (x, y, 1) of the picture to (x, y) of the crop.
    """
    source, wanted = points.to(torch.float64), target.to(torch.float64)
    mean, goal = source.mean(-2, keepdim=True), wanted.mean(-2, keepdim=True)
    z, w = source - mean, wanted - goal
    spread = z.square().sum((-1, -2))
    a = (z * w).sum((-1, -2))
    b = (z[..., 0] * w[..., 1] - z[..., 1] * w[..., 0]).sum(-1)
    flat = spread < _SMALLEST
    spread = spread.clamp(min=_SMALLEST)
    a, b = torch.where(flat, 1.0, a / spread), torch.where(flat, 0.0, b / spread)
    (x, y), (u, v) = mean[..., 0, :].unbind(-1), goal[..., 0, :].unbind(-1)
    return torch.stack((a, -b, u - a * x + b * y, b, a, v - b * x - a * y), -1).unflatten(-1, (2, 3))  # type: ignore[no-any-return,no-untyped-call]


def inverse(matrix: Tensor) -> Tensor:
    """The way back: (..., 2, 3) float64, of a similarity."""
    a, b = matrix[..., 0, 0], matrix[..., 1, 0]
    square = (a * a + b * b).clamp(min=1e-12)
    a, b, (x, y) = a / square, b / square, matrix[..., 2].unbind(-1)
    return torch.stack((a, b, -a * x - b * y, -b, a, b * x - a * y), -1).unflatten(-1, (2, 3))  # type: ignore[no-any-return,no-untyped-call]


def scale(matrix: Tensor) -> Tensor:
    """(...): pixels of the crop for each pixel of the picture."""
    return torch.hypot(matrix[..., 0, 0], matrix[..., 1, 0])


def apply(matrix: Tensor, points: Tensor) -> Tensor:
    """Points (..., P, 2) through (..., 2, 3); float64.

    No product of matrices: which kernel of a library does that, and so the last bit, hangs on how many there are.
    """
    across, down, shift = matrix[..., None, :, :].unbind(-1)
    x, y = points.to(torch.float64)[..., None].unbind(-2)
    return torch.addcmul(torch.addcmul(shift, x, across), y, down)


def pixels(size: int, device: torch.device) -> Tensor:
    """(size, size, 2) float64: x and y of every pixel of a crop."""
    line = torch.arange(size, dtype=torch.float64, device=device)
    return torch.stack(torch.meshgrid(line, line, indexing="xy"), -1)


def crops(rgb_nchw: Tensor, picture: Tensor, matrix: Tensor, size: int) -> Tensor:
    """The faces, upright and in place; the frames themselves are not resampled.

    On a GPU one kernel of our own where triton is installed, which gives the same to some hundred-thousandths.

    Args:
        rgb_nchw: (N, 3, H, W) floats.
        picture: (F,) int64, the picture of each face.
        matrix: (F, 2, 3) float64, picture to crop.
        size: pixels of a side.

    Returns:
        (F, 3, size, size) float32; see `sampling.sample`.
    """
    if rgb_nchw.is_cuda and find_spec("triton") is not None:
        from gpupipe.faces import sampling_triton  # noqa: PLC0415  machines without a GPU have no triton

        return sampling_triton.crops(rgb_nchw, picture, matrix, size)
    back = inverse(matrix)
    places = apply(back, pixels(size, rgb_nchw.device).view(1, -1, 2))
    return sample(rgb_nchw, picture, places.view(-1, size, size, 2), scale(back))
