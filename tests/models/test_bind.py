"""Values on their way to a network and back."""

from __future__ import annotations

import pytest
import torch

from gpupipe.errors import ConfigError
from gpupipe.models.bind import Picture, bind
from gpupipe.models.card import Value, find
from gpupipe.models.extras import pictures_taken
from gpupipe.models.rife import Rife


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({}, [0.0, 0.25, 1.0]),
        ({"high": 255.0}, [0.0, 63.75, 255.0]),
        ({"low": -1.0}, [-1.0, -0.5, 1.0]),
        ({"high": 255.0, "mean": [127.5], "deviation": [127.5]}, [-1.0, -0.5, 1.0]),
        ({"mean": [0.1, 0.2, 0.3], "deviation": [0.5, 0.25, 0.1]}, [-0.2, 0.2, 7.0]),
        ({"colour": "bgr", "mean": [0.3, 0.2, 0.1], "deviation": [0.1, 0.25, 0.5]}, [7.0, 0.2, -0.2]),
    ],
)
def test_a_picture_is_brought_to_what_the_card_says_and_back(value, seen):
    card = Value.model_validate({"name": "x", "kind": "picture", "shape": ["N", 3, "H", "W"], **value})
    rgb = torch.tensor([0.0, 0.25, 1.0]).view(1, 3, 1, 1).expand(2, 3, 4, 5)
    there = Picture(card)(rgb)
    assert torch.allclose(there[0, :, 0, 0], torch.tensor(seen), atol=1e-5)
    assert torch.allclose(Picture(card, back=True)(there), rgb, atol=1e-6)


def test_a_network_between_two_pictures_takes_them_as_six_channels():
    torch.manual_seed(1)
    before, after = torch.rand(2, 2, 3, 64, 96).unbind()
    between = Rife().eval()
    with torch.inference_mode():
        wanted = between(before, after, torch.full((2, 1, 1, 1), 0.25))
        ours = bind(find("rife-3.9"), between, {"time": 0.25})(torch.cat((before, after), 1))
    assert torch.equal(ours, wanted)


@pytest.mark.parametrize(
    ("name", "count"), [("span-ch48-x2", 1), ("rife-3.9", 2), ("animesr-v2", 0), ("centerface", 0)]
)
def test_how_many_pictures_give_one(name, count):
    if count:
        assert pictures_taken(find(name)) == count
    else:
        with pytest.raises(ConfigError, match=f"{name} .* does not give a picture"):
            pictures_taken(find(name))
