"""Weights fetched once a checkout, and a real picture."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def cache(pytestconfig) -> Path:
    """Where fetched weights stay from run to run; `fetch` checks their sha256 each time."""
    return Path(pytestconfig.cache.mkdir("weights"))


@pytest.fixture(scope="session")
def picture(corpus) -> np.ndarray:
    with av.open(str(corpus / "files" / "bt601_full_range.mp4")) as source:
        rgb = next(source.decode(video=0)).to_ndarray(format="rgb24")
    part = np.ascontiguousarray(rgb[40:111, 60:157])  # odd sides
    assert part.shape == (71, 97, 3)
    assert part.std() > 5, "a flat picture shows nothing"
    return part


@pytest.fixture(scope="session")
def face(corpus) -> torch.Tensor:
    """1 x 3 x 512 x 512 in 0..1, R'G'B': a portrait in the public domain."""
    with av.open(str(corpus / "faces" / "astronaut_512.png")) as source:
        rgb = next(source.decode(video=0)).to_ndarray(format="rgb24")
    assert rgb.shape == (512, 512, 3)
    return torch.from_numpy(rgb).permute(2, 0, 1)[None].float() / 255
