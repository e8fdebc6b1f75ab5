"""A stage writes into what it is given only where nobody else knows of it, and pixels are the same either way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from stills import dtype_of, picture

from gpupipe import stages
from gpupipe.device.cpu import CpuLane
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.ops import blend
from gpupipe.plan.chain import ChainBuilder
from gpupipe.render import chain
from gpupipe.render.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Sequence

LOGO = Path(__file__).resolve().parents[2] / "configs/assets/logo.png"
OVERLAY = ("overlay", {"image": str(LOGO), "scale": 0.2, "opacity": 0.5})
WARP = ("warp", {"rotate": 5})


def chain_of(source: FrameFormat, listed: Sequence[tuple[str, dict]], target: str) -> Chain:
    builder = ChainBuilder(source)
    for name, settings in listed:
        kind = stages.load(name)
        chosen = kind.Settings.model_validate(settings)
        builder.stage(name, chosen.model_dump(mode="json"), "stages", kind(chosen))
    builder.convert(builder.format.with_(pixels=PIXEL_FORMATS[target]), "the encoder")
    return Chain(builder.steps, CpuLane())


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each overlay wrote in place."""
    seen: list[bool] = []
    over = blend.alpha_over

    def noted(*args, in_place: bool = False):
        seen.append(in_place)
        return over(*args, in_place=in_place)

    monkeypatch.setattr(blend, "alpha_over", noted)
    return seen


def planes_of(source: FrameFormat) -> tuple[torch.Tensor, ...]:
    random = torch.Generator().manual_seed(1)
    return tuple(
        torch.rand((2, *shape), generator=random)
        if source.pixels.layout == "float"
        else torch.randint(16, 236, (2, *shape), generator=random).to(dtype_of(source))
        for shape in source.plane_shapes
    )


@pytest.mark.parametrize(
    ("pixels", "listed", "own"),
    [
        ("yuv420p", [OVERLAY], [True]),
        ("yuv420p", [WARP, OVERLAY], [True]),
        ("yuv420p", [OVERLAY, OVERLAY], [True, True]),
        ("rgbf32", [OVERLAY], [False]),
        ("rgbf32", [OVERLAY, OVERLAY], [False, True]),
    ],
)
def test_where_a_picture_is_a_stages_own(pixels, listed, own, copies, monkeypatch: pytest.MonkeyPatch) -> None:
    source = picture(pixels, 160, 96)
    given = planes_of(source)
    before = [plane.clone() for plane in given]
    target = "yuv420p" if pixels == "yuv420p" else "rgbf32"
    ours = chain_of(source, listed, target).transform(given)
    assert copies == own
    assert all(torch.equal(a, b) for a, b in zip(given, before, strict=True)), "what came in is not ours"
    monkeypatch.setattr(chain, "_fresh", lambda _: False)
    theirs = chain_of(source, listed, target).transform(given)
    assert copies[len(own) :] == [False] * len(own)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
