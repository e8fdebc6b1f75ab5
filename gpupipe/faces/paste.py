"""Crops back into their frames: only pixels under the mask change, all others keep every bit."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from gpupipe.faces.align import apply, crops, inverse, scale
from gpupipe.faces.masks import Shape, cover, unit_of

if TYPE_CHECKING:
    from torch import Tensor

_LEVELS = 4
_FINE = 1.6
"""Crop pixels from one frame pixel to the next that need no averaging: cubic weights reach that far."""


class Mask(NamedTuple):
    """How faces are laid over the picture."""

    shape: Shape
    feather: float
    opacity: float = 1.0


class Place(NamedTuple):
    """Where one face of each of N pictures lies."""

    matrix: Tensor
    """(N, 2, 3) float64, frame to crop."""
    points: Tensor
    """(N, 5, 2) in the frame; a hull is made of them."""
    valid: Tensor
    """(N,) bool; other pictures stay as they are."""


class Places(NamedTuple):
    """Where K faces of each of N pictures lie, those further back first."""

    matrix: Tensor
    """(N, K, 2, 3) float64, frame to crop."""
    points: Tensor
    """(N, K, 5, 2)."""
    valid: Tensor
    """(N, K) bool."""
    rank: Tensor
    """(N, K) int64, which face it is that lies there; any where none does."""

    def at(self, k: int) -> Place:
        """The k-th of every picture."""
        return Place(self.matrix[:, k], self.points[:, k], self.valid[:, k])


class Region(NamedTuple):
    """Width and height of the piece of a frame that holds any face of the batch; at most the frame's."""

    width: int
    height: int


def extent(matrix: Tensor, size: int) -> Tensor:
    """(...): pixels of the frame that a crop spans along either axis, its turn included."""
    return (matrix[..., 0, 0].abs() + matrix[..., 0, 1].abs()) / scale(matrix).clamp(min=1e-9).square() * size


def paste_all(frame: Tensor, faces: Tensor, places: Places, mask: Mask, region: Region, *, deepest: int) -> None:
    """Lays all faces of a batch over its pictures, in place; see `paste`.

    On a GPU one kernel of our own where triton is installed: the same, but for the last bits of a float.

    Args:
        frame: (N, 3, H, W) contiguous; changed.
        faces: (F, 3, S, S) float32.
        places: where they lie.
        mask: see `masks.cover`.
        region: at least `extent` of every face; the kernel does not look at it.
        deepest: at least the most faces of one picture; likewise.
    """
    if frame.is_cuda and find_spec("triton") is not None:
        from gpupipe.faces import paste_triton  # noqa: PLC0415  machines without a GPU have no triton

        paste_triton.paste(frame, pyramid_of(faces), places, mask, _FINE)
        return
    for k in range(deepest):
        paste(frame, faces[places.rank[:, k]], places.at(k), mask, region)


def rehearse(like: Tensor, places: int, mask: Mask) -> None:
    """Cuts out and lays back nobody, so that on a GPU no kernel is compiled when the first face comes.

    Args:
        like: (n, 3, h, w) of the frames' dtype and device; any size does.
        places: of a picture.
        mask: as it will be.
    """
    picture, side = torch.zeros_like(like, memory_format=torch.contiguous_format), 8
    matrix = torch.eye(2, 3, dtype=torch.float64, device=like.device).repeat(len(like), places, 1, 1)
    none = torch.zeros(len(like), places, dtype=torch.int64, device=like.device)
    cut = crops(picture, none[0, :1], matrix[0, :1], side)
    points = torch.zeros(len(like), places, 5, 2, device=like.device)
    paste_all(picture, cut, Places(matrix, points, none != 0, none), mask, Region(1, 1), deepest=1)


def paste(frame: Tensor, faces: Tensor, place: Place, mask: Mask, region: Region) -> None:
    """Lays one face over each picture, in place.

    Sixteen pixels of the crop make one of the frame (cubic), from a pyramid of means where the crop is much finer.
    Each pixel of the frame is written once and depends on its own face alone, so it is the same in any batch.

    Args:
        frame: (N, 3, H, W) contiguous; changed.
        faces: (N, 3, S, S) float32.
        place: where they lie.
        mask: see `masks.cover`.
        region: at least `extent` of every face.
    """
    count, _, height, width = frame.shape
    size = faces.shape[-1]
    rows, columns = _places(place.matrix, size, region, width, height)
    shape = (count, region.height, region.width)
    xy = torch.stack((columns[:, None, :].expand(shape), rows[:, :, None].expand(shape)), -1)
    unit = unit_of(apply(place.matrix, xy.flatten(1, 2)).view(*shape, 2), size)
    outline = unit_of(apply(place.matrix, place.points), size)
    alpha = cover(mask.shape, unit, outline, mask.feather) * mask.opacity * place.valid.view(-1, 1, 1)
    alpha = alpha.flatten(1)[:, None]
    index = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)[:, None].expand(-1, 3, -1)
    flat = frame.view(count, 3, height * width)
    before = flat.gather(2, index)
    ours = _lookup(faces, unit, scale(place.matrix)).flatten(2)
    mixed = torch.lerp(before.to(torch.float32), ours, alpha).to(frame.dtype)
    flat.scatter_(2, index, torch.where(alpha > 0, mixed, before))


def _places(matrix: Tensor, size: int, region: Region, width: int, height: int) -> tuple[Tensor, Tensor]:
    """Rows (N, h) and columns (N, w) of the frame around the crop's centre, moved so that all lie inside."""
    middle = torch.full((1, 2), (size - 1) / 2, dtype=torch.float64, device=matrix.device)
    centre = apply(inverse(matrix), middle)[:, 0]
    lines = []
    for axis, wide, whole in ((1, region.height, height), (0, region.width, width)):
        first = (centre[:, axis] - (wide - 1) / 2).round().clamp(0, whole - wide).to(torch.int64)
        lines.append(first[:, None] + torch.arange(wide, device=matrix.device))
    return lines[0], lines[1]


def _lookup(faces: Tensor, unit: Tensor, fineness: Tensor) -> Tensor:
    """(N, 3, h, w): the crops at places -1..1, from the level of the pyramid that is as fine as the frame."""
    level = torch.log2(fineness / _FINE).floor().clamp(0, _LEVELS - 1).to(torch.int64)
    grid = unit.to(torch.float32).clamp(-4, 4)
    out = None
    for step, small in enumerate(pyramid_of(faces)):
        fit = functional.grid_sample(small, grid, mode="bicubic", padding_mode="border", align_corners=False)
        out = fit if out is None else torch.where((level >= step).view(-1, 1, 1, 1), fit, out)
    return out  # type: ignore[return-value]  # the first level is there


def pyramid_of(faces: Tensor) -> list[Tensor]:
    """The faces, then means of four of their pixels and so on, as long as halves of them have whole pixels."""
    levels = [faces]
    while len(levels) < _LEVELS and levels[-1].shape[-1] % 2 == 0 and levels[-1].shape[-1] >= 32:
        levels.append(functional.avg_pool2d(levels[-1], 2))
    return levels
