"""Batches coded by work that is captured once: the bytes of the coder, whatever was coded before, and nothing that waits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from prores_pictures import picture, settings

from gpupipe.codecs.prores.coder import Coder
from gpupipe.codecs.prores.encoder import ProresEncoder
from gpupipe.codecs.prores.layout import layout_of
from gpupipe.codecs.prores.profile import PROFILES
from gpupipe.codecs.prores.rate import Cost
from gpupipe.codecs.prores.repeated import Repeated
from gpupipe.device.cpu import CpuLane
from gpupipe.frame import FrameBatch

KINDS = ("grain", "noise", "text", "gradient", "smooth")
WIDTH, HEIGHT = 66, 34


def planes_of(kinds: tuple[str, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(np.stack(p)) for p in zip(*(picture(k, WIDTH, HEIGHT) for k in kinds), strict=True))


@pytest.mark.parametrize("quantiser", [None, 1])
def test_the_bytes_are_those_of_the_coder(quantiser: int | None) -> None:
    """Full batches, short ones that leave older frames behind them, and, of noise at the finest, more than there is room."""
    source = settings(WIDTH, HEIGHT).input_format
    coder = Coder(source, PROFILES[3], quantiser)
    repeated = Repeated(coder, source, 3, CpuLane())
    crowded = 0
    for kinds in (KINDS[:3], KINDS[3:], KINDS[2:3], KINDS[1:2] * 3, KINDS[4:]):
        planes = planes_of(kinds)
        assert repeated.takes(planes)
        ours, theirs = repeated.code(planes), coder.write(coder.choose(planes))
        assert (ours.frames, ours.sizes) == (theirs.frames, theirs.sizes)
        for at, size in zip(theirs.frames, theirs.sizes, strict=True):
            assert torch.equal(ours.data[at : at + size], theirs.data[at : at + size])
        crowded += theirs.frames[-1] + theirs.sizes[-1] > repeated._room
    assert (crowded > 0) == (quantiser == 1)
    assert not repeated.takes(planes_of(KINDS[:4]))
    assert not repeated.takes((*planes, planes[0]))


class Shapes:
    """Stands in for the kernels where there is no GPU: results without values, as the device would not tell them."""

    graphable = True

    def __init__(self, coefficients: int) -> None:
        self._coefficients = coefficients

    def coefficients(self, planes: tuple[torch.Tensor, ...]) -> torch.Tensor:
        return torch.empty((len(planes[0]), self._coefficients), dtype=torch.int16, device="meta")

    def cost(self, _: torch.Tensor, quantisers: torch.Tensor) -> Cost:
        return Cost(torch.empty((*quantisers.shape, 3), dtype=torch.int64, device="meta"), torch.empty_like(quantisers))

    def write(self, _: torch.Tensor, __: torch.Tensor, starts: torch.Tensor, size: int) -> torch.Tensor:
        assert starts.device.type == "meta"
        return torch.empty(size, dtype=torch.uint8, device="meta")


def test_nothing_asks_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device there are no values: whatever would wait for one raises. Both halves can thus be captured."""
    source = settings(WIDTH, HEIGHT).input_format.with_(device="meta")
    layout = layout_of(source)
    coder = Coder(source, PROFILES[3], rate=Fraction(25), arithmetic=Shapes(layout.coefficients))
    shapes = source.pixels.plane_shapes(WIDTH, HEIGHT)
    planes = tuple(torch.empty((4, *shape), dtype=torch.uint16, device="meta") for shape in shapes)
    coder.code(coder.choose(planes), 1 << 20)  # makes the header, which is brought to the device once
    with monkeypatch.context() as patch:
        patch.setattr(torch, "tensor", None)
        patch.setattr(torch.Tensor, "to", _only_dtypes(torch.Tensor.to))
        chosen = coder.choose(planes)
        assert coder.code(chosen, 1 << 20).shape == (1 << 20,)
    with pytest.raises((NotImplementedError, RuntimeError)):
        coder.extents(chosen)


def _only_dtypes(to):
    """`Tensor.to` that brings nothing to another device."""

    def checked(tensor: torch.Tensor, target: object, *more: object, **named: object) -> torch.Tensor:
        assert isinstance(target, torch.dtype), f"a copy to {target} for each batch"
        return to(tensor, target, *more, **named)

    return checked


def test_an_encoder_that_may_not_wait_codes_as_one_that_may(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, planes = settings(WIDTH, HEIGHT), planes_of(KINDS[:3])
    batch = FrameBatch(asked.input_format, (0, 1, 2), asked.time_base, planes)
    plain = ProresEncoder(asked, CpuLane(), 4)
    assert plain._repeated is None, "the torch path waits"
    expected = [bytes(p) for p in plain.encode(batch)]
    monkeypatch.setattr("gpupipe.codecs.prores.coder.TorchArithmetic.graphable", True)
    graphed = ProresEncoder(asked, CpuLane(), 4)
    assert graphed._repeated is not None
    for _ in range(2):
        assert [bytes(p) for p in graphed.encode(batch)] == expected
