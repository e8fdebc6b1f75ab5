"""Short moving clips made from stills, with the place of every point known in every picture."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from stills_of_faces import still

from gpupipe.faces.align import apply, inverse
from gpupipe.faces.sampling import sample


class Move(NamedTuple):
    """Where the still is in picture t of T."""

    matrix: torch.Tensor
    """(T, 2, 3) float64, still to picture."""
    gain: torch.Tensor
    """(T,)."""


def path(count: int, size: tuple[int, int], centre: tuple[float, float], scale: float, *, pan: float = 0.0, zoom: float = 0.0,
         roll: float = 0.0, light: float = 0.0) -> Move:  # fmt: skip
    """The still's `centre` in the middle of the picture, then moved: pan in pixels and roll in degrees a picture,
    zoom as a factor over the clip, light as a gain that goes up and down once."""
    t = torch.arange(count, dtype=torch.float64)
    swing = torch.sin(2 * math.pi * t / max(count, 2))
    factor = scale * (1 + zoom) ** (t / count)
    angle = torch.deg2rad(roll * count / (2 * math.pi) * swing)
    turn = torch.stack((factor * angle.cos(), -factor * angle.sin(), factor * angle.sin(), factor * angle.cos()), -1)
    turn = turn.view(-1, 2, 2)
    middle = torch.tensor([(size[0] - 1) / 2, (size[1] - 1) / 2], dtype=torch.float64)
    shift = torch.stack(
        (
            pan * count / (2 * math.pi) * swing,
            0.5 * pan * count / (2 * math.pi) * (1 - (2 * math.pi * t / count).cos()),
        ),
        -1,
    )
    moved = middle + shift - turn @ torch.tensor(centre, dtype=torch.float64)
    return Move(torch.cat((turn, moved[..., None]), -1), 1 + light * swing)


def frames(name: str, move: Move, size: tuple[int, int]) -> torch.Tensor:
    """(T, 3, H, W) float32, 0..1, in steps of 1/255 as a decoder gives them."""
    rgb, (width, height) = still(name), size
    y, x = torch.meshgrid(
        torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64), indexing="ij"
    )
    back = inverse(move.matrix)
    places = apply(back, torch.stack((x, y), -1).view(1, -1, 2)).view(-1, height, width, 2)
    shrink = torch.hypot(back[:, 0, 0], back[:, 1, 0])
    moving = (
        sample(rgb, torch.zeros(len(back), dtype=torch.int64), places, shrink) * move.gain.view(-1, 1, 1, 1).float()
    )
    return (moving.clamp(0, 1) * 255).round() / 255


def truth(points: torch.Tensor, move: Move) -> torch.Tensor:
    """(T, P, 2): points of the still in every picture."""
    return apply(move.matrix, points)
