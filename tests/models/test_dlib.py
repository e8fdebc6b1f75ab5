"""dlib's face embedding against dlib."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from references import by_dlib
from torch.nn import functional

from gpupipe.errors import MediaError
from gpupipe.faces.templates import Template
from gpupipe.models.card import Crop, find
from gpupipe.models.fetch import fetch
from gpupipe.models.load import load


@pytest.fixture(scope="module")
def files(cache):
    return fetch(find("dlib-face-embedding"), cache)


@pytest.fixture(scope="module")
def model(files):
    return load(find("dlib-face-embedding"), files)


def _crops(face):
    """Upright crops around the face, 0..255 in whole numbers: as it is, moved and mirrored, and no face at all."""
    boxes = [face[..., 60:240, 130:310], face[..., 50:250, 120:320].flip(-1), face[..., 300:500, 20:220]]
    sized = [functional.interpolate(box, (150, 150), mode="bilinear", antialias=True) for box in boxes]
    return torch.cat(sized).mul(255).round()


def test_embedding_is_dlibs(model, files, face):
    crops = _crops(face)
    ours = model(crops).numpy()
    for mine, crop in zip(ours, crops.split(1), strict=True):
        (reference,) = by_dlib(files["dat"], crop)
        assert np.abs(mine - reference[0]).max() < 2e-6
    assert np.linalg.norm(ours[0] - ours[1]) < 0.6 < np.linalg.norm(ours[0] - ours[2])


def test_torch_exports_the_embedding(model, face):
    crops = _crops(face)
    program = torch.export.export(model, (crops,), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert torch.allclose(program.module()(crops[:2]), model(crops[:2]), atol=1e-6)


def test_other_files_are_told(files, tmp_path):
    whole = files["dat"].read_bytes()
    path = tmp_path / "net.dat"
    for damaged in (
        b"",
        b"something else",
        whole[:2000],
        whole[: len(whole) // 2],
        whole[:-100_000],
        whole[:400] + whole[9000:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(MediaError, match=r"net\.dat: is not dlib's face recognition network: ") as told:
            load(find("dlib-face-embedding"), {"dat": path})
        assert "\n" not in str(told.value)


def test_every_template_can_be_named_by_a_card():
    for name in ("box", *get_args(Template)):
        assert Crop(size=128, align=name).align == name
