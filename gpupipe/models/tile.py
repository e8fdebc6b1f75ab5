"""A picture through a network piece by piece, without a seam."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def tiled(
    network: Callable[[torch.Tensor], torch.Tensor],
    x: torch.Tensor,
    *,
    tile: int,
    halo: int,
    scale: int = 1,
    multiple: int = 1,
) -> torch.Tensor:
    """What `network(x)` gives, from tiles with `halo` pixels around them that are computed and cut away.

    Args:
        network: N x C x H x W to N x C' x (scale * H) x (scale * W).
        x: the picture.
        tile: side of a tile in input pixels, without its halo.
        halo: input pixels on each side that an output pixel depends on; fewer show as seams.
        scale: output pixels for each input pixel along one side.
        multiple: tiles begin and end on multiples of it, as the network's own grid (pixel unshuffling) does.
    """
    if tile < 1:
        raise ValueError(f"a tile of {tile} pixels")
    height, width = x.shape[-2:]
    out: torch.Tensor | None = None
    for top, bottom, y0, y1 in _spans(height, tile, halo, multiple):
        for left, right, x0, x1 in _spans(width, tile, halo, multiple):
            piece = network(x[..., y0:y1, x0:x1])
            if out is None:
                out = piece.new_empty((*piece.shape[:-2], height * scale, width * scale))
            out[..., top * scale : bottom * scale, left * scale : right * scale] = piece[
                ..., (top - y0) * scale : (bottom - y0) * scale, (left - x0) * scale : (right - x0) * scale
            ]
    assert out is not None, "a picture has pixels"
    return out


def _spans(length: int, tile: int, halo: int, multiple: int) -> list[tuple[int, int, int, int]]:
    """Begin and end of each tile, and of what it is computed from."""
    spans = []
    for begin in range(0, length, tile):
        end = min(begin + tile, length)
        low = max(begin - halo, 0) // multiple * multiple
        high = min(-(-(end + halo) // multiple) * multiple, length)
        spans.append((begin, end, low, high))
    return spans
