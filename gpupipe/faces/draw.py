"""What was found, drawn on the picture: boxes, points, numbers and the masks' outlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from gpupipe.faces.found import Faces

_DIGITS = (0x7B6F, 0x2C97, 0x73E7, 0x73CF, 0x5BC9, 0x79CF, 0x79EF, 0x7249, 0x7BEF, 0x7BCF)
"""Three by five pixels each, row by row from the top left, most significant of 15 bits first."""
_COLOURS = ((1.0, 0.3, 0.2), (0.3, 0.9, 0.3), (0.3, 0.6, 1.0), (1.0, 0.9, 0.2), (0.9, 0.4, 1.0), (0.3, 0.9, 0.9))


def drawn(rgb: Tensor, faces: Faces, chosen: Tensor) -> Tensor:
    """A copy of the pictures with a thick box around chosen faces and a thin one around others.

    Each has its number, counted from the left, and its score in hundredths behind it.

    Args:
        rgb: (N, 3, H, W).
        faces: (N, K).
        chosen: (N, K) bool.
    """
    height, width = rgb.shape[-2:]
    line = max(1, round(max(height, width) / 640))
    y = torch.arange(height, dtype=torch.float32, device=rgb.device).view(1, -1, 1)
    x = torch.arange(width, dtype=torch.float32, device=rgb.device).view(1, 1, -1)
    left_first = torch.argsort(torch.where(faces.valid, faces.centres[..., 0], float("inf")), dim=1, stable=True)
    faces, chosen = faces.take(left_first), chosen.gather(1, left_first)
    out = rgb.clone()
    for k in range(faces.valid.shape[1]):
        x1, y1, x2, y2 = (side.view(-1, 1, 1) for side in faces.boxes[:, k].unbind(-1))
        edge = torch.minimum(torch.minimum(x - x1, x2 - x), torch.minimum(y - y1, y2 - y)).abs()
        ink = edge <= line * torch.where(chosen[:, k], 1.5, 0.5).view(-1, 1, 1)
        for px, py in [p.unbind(-1) for p in faces.points[:, k].unbind(1)]:
            ink = ink | (torch.hypot(x - px.view(-1, 1, 1), y - py.view(-1, 1, 1)) <= 1.5 * line)
        ink = ink | _number(x - x1, y - y1 + 7 * 2 * line, 2 * line, torch.full_like(faces.scores[:, k], k), 1)
        ink = ink | _number(x - x1 - 10 * line, y - y1 + 7 * 2 * line, 2 * line, faces.scores[:, k] * 100, 2)
        colour = rgb.new_tensor(_COLOURS[k % len(_COLOURS)]).view(1, 3, 1, 1)
        out = torch.where((ink & faces.valid[:, k].view(-1, 1, 1))[:, None], colour, out)
    return out


def _number(x: Tensor, y: Tensor, side: int, value: Tensor, digits: int) -> Tensor:
    """(N, H, W) bool: a number of so many digits, `side` pixels a dot, its top left corner where x and y are 0."""
    table = torch.tensor([[(d >> (14 - bit)) & 1 for bit in range(15)] for d in _DIGITS], device=x.device)
    column, row = (x / side).floor().to(torch.int64), (y / side).floor().to(torch.int64)
    ink = torch.zeros((), dtype=torch.bool, device=x.device)
    rounded = value.clamp(0, 10**digits - 1).round().to(torch.int64)
    for place in range(digits):
        digit = rounded.div(10 ** (digits - 1 - place), rounding_mode="floor") % 10
        at = column - 4 * place
        inside = (at >= 0) & (at < 3) & (row >= 0) & (row < 5)
        cell = row.clamp(0, 4) * 3 + at.clamp(0, 2)
        dots = table[digit]
        ink = ink | (inside & (dots.gather(1, cell.flatten(1)).view(cell.shape) > 0))
    return ink
