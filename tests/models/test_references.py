"""Every network that faces go through, on the faces of the corpus as the stage cuts them out, against its reference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from references import by_dlib, by_litert, by_litert_without_its_last, by_ncnn, by_onnxruntime
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faces"))

from stills_of_faces import still

from gpupipe.faces.align import crops, similarity
from gpupipe.faces.detect import Wanted, faces_of, look, shown
from gpupipe.faces.templates import template
from gpupipe.models.card import find
from gpupipe.models.fetch import fetch
from gpupipe.models.load import load

STILLS = ("astronaut_512.png", "dali_face_1.jpeg", "portrait_pd.jpg", "portrait_exif_orientation6.jpg")
LONGEST = 320


class Seen(NamedTuple):
    """One still, and the faces in it."""

    rgb: torch.Tensor
    """(1, 3, H, W), 0..1."""
    whole: torch.Tensor
    """As CenterFace is shown it."""
    points: torch.Tensor
    """(F, 5, 2)."""

    def cut(self, name: str, size: int, extent: float = 1.0) -> torch.Tensor:
        """(F, 3, size, size), 0..1."""
        matrix = similarity(self.points, torch.from_numpy(template(name, size, extent)))
        return crops(self.rgb, torch.zeros(len(matrix), dtype=torch.int64), matrix, size).clamp(0, 1)


@pytest.fixture(scope="module")
def seen(cache) -> list[Seen]:
    card = find("centerface")
    detector, found = load(card, fetch(card, cache)), []
    for name in STILLS:
        rgb = still(name)
        rgb = torch.rot90(rgb, -1, (2, 3)) if "orientation" in name else rgb
        how = look(rgb.shape[3], rgb.shape[2], LONGEST)
        whole = shown(rgb, how)
        faces = faces_of(detector(whole), how, Wanted(0.4, 0, 4))
        found.append(Seen(rgb, whole, faces.points[faces.valid]))
    assert [len(one.points) for one in found] == [1, 1, 2, 2]
    return found


def _centerface(files, one, _):
    yield (one.whole,), by_onnxruntime(files["onnx"], one.whole)


def _blazeface(files, one, _):
    for crop in one.cut("ffhq512", 128, 1.5).split(1):
        yield (crop * 2 - 1,), by_litert(files["tflite"], crop * 2 - 1)


def _mesh(files, one, _):
    for crop in one.cut("ffhq512", 192).split(1):
        yield (crop,), by_litert(files["tflite"], crop)


def _embedding(files, one, _):
    for crop in one.cut("dlib150", 150).split(1):
        yield ((crop * 255).round(),), by_dlib(files["dat"], (crop * 255).round())


def _style(files, one, _):
    for number, crop in enumerate(one.cut("ffhq512", 128).split(1)):
        style = torch.eye(26)[5 * number + 3]
        yield (crop, style), by_onnxruntime(files["onnx"], crop, style)


def _enhance(files, one, _):
    for crop in one.cut("ffhq512", 64).split(1):
        yield (crop,), by_ncnn(files, crop)


def _person(files, one, scratch):
    small = functional.interpolate(one.rgb, (256, 256), mode="bilinear", antialias=True)
    yield (small,), by_litert_without_its_last(files["tflite"], small, scratch)


CHAIN = {
    "centerface": _centerface,
    "blazeface-short": _blazeface,
    "face-mesh-468": _mesh,
    "dlib-face-embedding": _embedding,
    "multistyle26": _style,
    "realesr-animevideov3-x2": _enhance,
    "span-ch48-x2": _enhance,
    "selfie-segmentation": _person,
}


@pytest.mark.parametrize("name", CHAIN)
def test_every_face_gives_what_its_reference_gives(name, seen, cache, tmp_path) -> None:
    card = find(name)
    files = fetch(card, cache)
    model = load(card, files)
    both: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}  # by output, of all faces
    for one in seen:
        for inputs, theirs in CHAIN[name](files, one, tmp_path):
            ours = model(*inputs)
            ours = ours if isinstance(ours, tuple) else (ours,)
            for number, (mine, reference) in enumerate(zip(ours, theirs, strict=True)):
                assert mine.shape == reference.shape
                both.setdefault(number, []).append((mine.numpy().ravel(), reference.ravel()))
    for number, pairs in both.items():
        mine, reference = (np.concatenate(side) for side in zip(*pairs, strict=True))
        span = float(np.ptp(reference))
        assert span > 0.05, "what is flat shows nothing"
        worst = float(np.abs(mine - reference).max()) / span
        sys.stdout.write(f"{name:24} output {number}: {worst:.1e} of {span:.3g}\n")  # pytest -rP shows the table
        assert worst < 1e-4
