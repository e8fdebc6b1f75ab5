"""Networks of the stage `face` run as they were chosen where the run began."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from generators import swap_generator

from gpupipe import stages
from gpupipe.engines.choice import Choice
from gpupipe.errors import CapabilityError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal
from gpupipe.stages import _face_build, _face_networks

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.engines.base import Profile
    from gpupipe.stages.face import Face


@pytest.fixture
def stage(tmp_path: Path) -> Face:
    place = swap_generator(tmp_path, ("n", 3, 128, 128), (1, 512))
    kind = stages.load("face")
    return kind(kind.Settings.model_validate({"operate": [{"generate": {"onnx": str(place), "vector": [0.5] * 512}}]}))


def work(stage: Face, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """(name, batch, engine) of what is made."""
    made: list[tuple[str, int, str]] = []

    def batched(_: object, name: str, profile: Profile, engine: str, **__: object) -> SimpleNamespace:
        made.append((name, profile.batch, engine))
        return SimpleNamespace(engine="eager" if engine == "auto" else engine)

    monkeypatch.setattr(_face_networks, "Batched", batched)
    _face_build._work(stage, 128, FrameFormat(PIXEL_FORMATS["rgbf32"], 224, 168))
    return made


def test_what_was_chosen_is_taken(stage: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    ((name, batch, engine),) = work(stage, monkeypatch)
    assert engine == "auto"
    (choice,) = stage.choices()
    assert (choice.network, choice.engine, choice.batch, choice.tile) == (name, "eager", batch, None)
    other = type(stage)(stage.settings)
    other.hold((Choice(name, "eager", "fp32", 3, None, choice.versions),))
    assert work(other, monkeypatch) == [(name, 3, "eager")]


@pytest.mark.parametrize(("engine", "versions", "says"), [
    ("gone", (), "there is none of that name"), ("eager", (("torch", "0.1"),), "it was 0.1"),
    ("tensorrt", (), "it runs on a GPU only"),
])  # fmt: skip
def test_what_cannot_be_is_refused(stage: Face, monkeypatch, engine: str, versions: tuple, says: str) -> None:
    ((name, *_),) = work(stage, monkeypatch)
    stage.hold((Choice(name, engine, "fp32", 3, None, versions),))
    with pytest.raises(CapabilityError, match=rf"the run was begun on engine {engine}, and here .*{says} \(install it"):
        work(stage, monkeypatch)


@pytest.mark.parametrize("refine", [False, True])
def test_what_is_foreseen_is_what_preparing_comes_to(weights, refine: bool) -> None:
    """Eager needs no caches; which engine caches name is `select`'s."""
    for card in ("centerface", "multistyle26"):
        weights(card)
    kind = stages.load("face")
    settings = {"detect": {"refine": refine}, "operate": [{"pixelate": {}}, {"generate": {"card": "multistyle26"}}]}
    stage, other = (kind(kind.Settings.model_validate(settings, strict=False)) for _ in range(2))
    source = FrameFormat(PIXEL_FORMATS["rgbf32"], 224, 168)
    for one in (stage, other):
        one.attend(Journal(), 4)
    other.prepare(source)
    assert len(other.choices()) == 2 + refine
    assert stage.foreseen(source) == other.choices()


def test_what_caches_do_not_know_is_not_foreseen(stage: Face, monkeypatch, weights) -> None:
    weights("centerface")
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(_face_networks, "foreseen", lambda _, profile, *__: asked.append(profile.shape))
    assert stage.foreseen(FrameFormat(PIXEL_FORMATS["rgbf32"], 224, 168)) is None
    assert len(asked) == 1
