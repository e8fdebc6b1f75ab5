"""Networks that tests of the stage `face` share."""

from __future__ import annotations

import functools

import pytest

from gpupipe.faces.networks import card_of
from gpupipe.models.load import load
from gpupipe.stages import _face_build, _face_networks


@pytest.fixture(scope="module")
def face_networks(weights):
    for card in ("centerface", "dlib-face-embedding", "multistyle26", "realesr-animevideov3-x2"):
        weights(card)
    once = pytest.MonkeyPatch()
    known = functools.cache(lambda name: load(*card_of(name, "", "")))
    for module in (_face_build, _face_networks):
        once.setattr(module, "card_of", functools.cache(card_of))
        once.setattr(module, "load", lambda card, _: known(card.name))  # networks are read, never written
    yield
    once.undo()
