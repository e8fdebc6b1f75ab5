"""Networks in fp16 on the GPU beside fp32 on the CPU, which is what their reference runtimes were compared with."""

from __future__ import annotations

import math

import av
import numpy as np
import pytest
import torch
from torch.nn import functional

from gpupipe.models import folder
from gpupipe.models.card import catalogue, find
from gpupipe.models.fetch import verify
from gpupipe.models.load import examples, load

pytestmark = pytest.mark.gpu
NAMES = [card.name for card in catalogue() if card.half]


def _inputs(card, still):
    """The face for every picture, as large as the card wants it, in its values; the second picture moved."""
    with av.open(str(still)) as source:
        rgb = next(source.decode(video=0)).to_ndarray(format="rgb24")
    face = torch.from_numpy(np.ascontiguousarray(rgb[40:260, 110:330])).permute(2, 0, 1)[None].float() / 255
    given, moved = [], 0
    for value, example in zip(card.inputs, examples(card, 128, 128), strict=True):
        if value.kind == "picture":
            picture = functional.interpolate(face, tuple(example.shape[2:]), mode="bilinear", antialias=True)
            example = picture.roll((moved, moved), (2, 3)) * (value.high - value.low) + value.low  # noqa: PLW2901
            moved += 3
        given.append(example)
    return given


@pytest.mark.parametrize("name", NAMES)
def test_fp16_is_within_50_db_of_fp32(name, fetched, face):
    fetched(name)
    card = find(name)
    files, given = verify(card, folder.weights()), _inputs(card, face)
    with torch.inference_mode():
        exact = load(card, files)(*given)
        half = load(card, files).to("cuda", torch.float16)(*(one.to("cuda", torch.float16) for one in given))
    for value, a, b in zip(card.outputs, *(x if isinstance(x, tuple) else (x,) for x in (exact, half)), strict=True):
        reach = 1.0 if value.kind == "picture" else max(float(a.max() - a.min()), float(a.abs().max()))
        error = float((a - b.float().cpu()).square().mean())
        assert 20 * math.log10(reach) - 10 * math.log10(max(error, 1e-20)) >= 50, value.name
