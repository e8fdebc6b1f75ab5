"""Gradient-domain blending against a sparse float64 solve of the same equations, written down pixel by pixel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import lil_matrix
from scipy.sparse.linalg import spsolve
from stills_of_faces import still

from gpupipe.faces.colour import matched
from gpupipe.faces.poisson import blend


def sparse(face: np.ndarray, target: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Equation (7) of Perez et al. for one channel; the guidance is mixed by the mask's mean over each pair."""
    size = face.shape[0]
    inner = [(y, x) for y in range(1, size - 1) for x in range(1, size - 1)]
    number = {place: n for n, place in enumerate(inner)}
    matrix, right = lil_matrix((len(inner), len(inner))), np.zeros(len(inner))
    for n, (y, x) in enumerate(inner):
        matrix[n, n] = 4
        for q in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
            part = (mask[y, x] + mask[q]) / 2
            right[n] += part * (face[y, x] - face[q]) + (1 - part) * (target[y, x] - target[q])
            if q in number:
                matrix[n, number[q]] = -1
            else:
                right[n] += target[q]
    out = target.copy()
    out[1:-1, 1:-1] = spsolve(matrix.tocsr(), right).reshape(size - 2, size - 2)
    return out


@pytest.mark.parametrize("size", [31, 64])
def test_equals_a_sparse_solve(size: int) -> None:
    torch.manual_seed(5)
    face, target = torch.rand(2, 3, size, size), torch.rand(2, 3, size, size)
    soft = torch.nn.functional.avg_pool2d((torch.rand(2, 1, size, size) > 0.5).float(), 5, 1, 2)[:, 0].clamp(0, 1)
    ours = blend(face, target, soft).double().numpy()
    for f, c in np.ndindex(2, 3):
        theirs = sparse(face[f, c].double().numpy(), target[f, c].double().numpy(), soft[f].double().numpy())
        assert np.abs(ours[f, c] - theirs).max() < 1e-3


def test_a_large_crop_stays_exact_in_single_precision() -> None:
    rgb = still("astronaut_512.png")
    face, target = rgb[..., :256, 100:356], rgb[..., 200:456, 200:456]
    mask = torch.zeros(1, 256, 256)
    mask[:, 40:200, 50:210] = 1
    theirs = blend(face.double(), target.double(), mask.double())
    assert float((blend(face, target, mask).double() - theirs).abs().max()) < 1e-3


def test_a_face_of_another_brightness_leaves_no_seam() -> None:
    target = still("astronaut_512.png")[..., 60:188, 160:288]
    mask = torch.zeros(1, 128, 128)
    mask[:, 30:98, 30:98] = 1
    out = blend(target * 0.8 + 0.15, target, mask)
    seam = (out[..., 29, 30:98] - out[..., 30, 30:98]) - (target[..., 29, 30:98] - target[..., 30, 30:98])
    assert float(seam.abs().max()) < 0.05  # pasted as it is it would be 0.15
    assert torch.equal(out[..., 0, :], target[..., 0, :])


def test_colours_are_those_of_the_target() -> None:
    torch.manual_seed(6)
    face, target, mask = torch.rand(2, 3, 40, 40) * 0.3, torch.rand(2, 3, 40, 40) * 0.5 + 0.3, torch.ones(2, 40, 40)
    out = matched(face, target, mask)
    torch.testing.assert_close(out.mean((2, 3)), target.mean((2, 3)))
    torch.testing.assert_close(out.std((2, 3)), target.std((2, 3)), rtol=0.01, atol=0)


def test_a_flat_face_is_not_blown_up_into_noise() -> None:
    out = matched(torch.full((1, 3, 20, 20), 0.5), torch.rand(1, 3, 20, 20), torch.ones(1, 20, 20))
    assert float(out.std()) < 0.05
    assert torch.isfinite(matched(torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8), torch.zeros(1, 8, 8))).all()
