"""Engines and reference faces that are kept belong to what made them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import numpy as np
import onnx
import torch
from generators import swap_generator

from gpupipe import stages
from gpupipe.faces.found import nothing
from gpupipe.faces.identity import reference
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.models import folder
from gpupipe.stages import _face_build, _face_networks

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_two_files_of_the_same_weights_are_two_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine is found by its weights, layers and origin; what a function does shows in neither of the first two."""
    origins: list[str] = []

    def batched(*_: object, origin: str, **__: object) -> SimpleNamespace:
        origins.append(origin)
        return SimpleNamespace(engine="eager")

    monkeypatch.setattr(_face_networks, "Batched", batched)
    place = swap_generator(tmp_path, (1, 3, 128, 128), (1, 512))
    kind = stages.load("face")
    generate = {"onnx": str(place), "vector": [0.5] * 512}
    stage = kind(kind.Settings.model_validate({"operate": [{"generate": generate}]}))
    for operator in ("Add", "Sub", "Sub"):
        model = onnx.load(str(place))
        model.graph.node[-1].op_type = operator
        onnx.save(model, str(place))
        _face_build._work(stage, 128, FrameFormat(PIXEL_FORMATS["rgbf32"], 224, 168))
    assert origins[0] != origins[1] == origins[2]


def test_a_reference_is_found_anew_by_other_networks_and_where_it_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with av.open(str(tmp_path / "person.png"), "w", format="image2") as file:
        stream = file.add_stream("png", 1)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "rgb24"
        file.mux(stream.encode(av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")))
        file.mux(stream.encode())
    faces = nothing(1, 1, "cpu")
    faces.valid[:] = True
    found = [0]

    def identity(*_: object) -> torch.Tensor:
        found[0] += 1
        return torch.full((1, 1, 4), float(found[0]))

    def ask(networks: str) -> float:
        return float(reference(tmp_path / "person.png", lambda _: faces, identity, networks, "here")[0])

    monkeypatch.setattr(folder, "weights", lambda: tmp_path / "cache" / "models")
    assert [ask("one"), ask("one"), ask("two"), ask("two")] == [1, 1, 2, 2]
    assert len(list((tmp_path / "cache" / "identities").iterdir())) == 2
    (tmp_path / "file").touch()
    monkeypatch.setattr(folder, "weights", lambda: tmp_path / "file" / "models")
    assert [ask("one"), ask("one")] == [3, 4]
