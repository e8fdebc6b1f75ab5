"""Blur against scipy's Gaussian, blocks against means by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

from gpupipe.faces.operate import blur, fill, pixelate


@pytest.mark.parametrize("radius", [0.02, 0.1, 0.4])
def test_blur_is_a_gaussian(radius: float) -> None:
    torch.manual_seed(7)
    faces = torch.rand(2, 3, 48, 48)
    sigma = radius * 48
    reach = min(int(3 * sigma) + 1, 48)
    theirs = gaussian_filter(faces.double().numpy(), (0, 0, sigma, sigma), mode="nearest", radius=(0, 0, reach, reach))
    np.testing.assert_allclose(blur(faces, radius).numpy(), theirs, atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 4, 8])
def test_blocks_are_means(blocks: int) -> None:
    faces = torch.rand(1, 3, 32, 32)
    out = pixelate(faces, blocks)
    side = 32 // blocks
    for y, x in np.ndindex(blocks, blocks):
        part = np.s_[..., y * side : (y + 1) * side, x * side : (x + 1) * side]
        torch.testing.assert_close(out[part], faces[part].mean((2, 3), keepdim=True).expand(1, 3, side, side))
    assert len(out[0, 0].unique()) <= blocks**2


def test_less_contrast_moves_squares_towards_their_mean() -> None:
    faces = torch.rand(2, 3, 32, 32)
    plain, mean = pixelate(faces, 4), faces.mean((2, 3), keepdim=True)
    torch.testing.assert_close(pixelate(faces, 4, 0.25), mean + (plain - mean) / 4)
    torch.testing.assert_close(pixelate(faces, 4, 0.0), fill(faces, None))


def test_blocks_that_do_not_divide_the_crop() -> None:
    assert pixelate(torch.rand(1, 3, 32, 32), 7).shape == (1, 3, 32, 32)


def test_fill() -> None:
    faces = torch.rand(2, 3, 8, 8)
    assert torch.equal(fill(faces, (0.1, 0.2, 0.3))[1, :, 3, 3], torch.tensor([0.1, 0.2, 0.3]))
    torch.testing.assert_close(fill(faces, None)[0, :, 0, 0], faces[0].mean((1, 2)))
