"""Stages that know nothing of alpha: it goes past them, whatever they remember; and how it crosses to a device."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from gpupipe.config import parse_config
from gpupipe.device.cpu import CpuLane
from gpupipe.device.cuda import PinnedRing
from gpupipe.errors import PlanError
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.frame import FrameBatch
from gpupipe.plan.chain import ChainBuilder
from gpupipe.plan.model import Step
from gpupipe.render.chain import Beside, Chain, FollowedBeside
from gpupipe.stages import base
from gpupipe.stages.base import Memory, Temporal

RGB = FrameFormat(PIXEL_FORMATS["rgbf32"], 6, 4, alpha=16)
PLANES = (torch.full((2, 3, 4, 6), 0.25), torch.full((2, 4, 6), 7, dtype=torch.uint16))


class Sum(base.Stage):
    """Adds up all pictures so far; not a stage that a plan could cut, but one that must be given its memory."""

    working = "rgb"
    lead = 3

    def __init__(self, *, larger: bool = False) -> None:
        self._larger = larger

    def output_format(self, source: FrameFormat) -> FrameFormat:
        assert source.alpha == 0
        return source.with_(width=source.width * 2) if self._larger else source

    def remember(self) -> Memory:
        return Memory((torch.zeros(()),))

    def __call__(self, planes: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        (rgb,) = planes
        return (rgb * 2,)

    def follow(self, planes: tuple[torch.Tensor, ...], memory: Memory) -> tuple[torch.Tensor, ...]:
        (rgb,) = planes
        memory.tensors[0].add_(rgb.sum())
        return (rgb * 0 + memory.tensors[0],)


def test_a_stage_gets_its_planes_alone() -> None:
    rgb, alpha = Beside(Sum())(PLANES)
    assert (rgb == 0.5).all()
    assert alpha is PLANES[1]


def test_a_stage_that_remembers_goes_on_remembering() -> None:
    beside = FollowedBeside(Sum())
    assert isinstance(beside, Temporal)
    assert beside.lead == 3
    memory = beside.remember()
    for total in (36, 72):
        rgb, alpha = beside.follow(PLANES, memory)
        assert (rgb == total).all()
        assert alpha is PLANES[1]


def test_a_plan_refuses_a_stage_that_would_leave_alpha_at_the_old_size() -> None:
    builder = ChainBuilder(RGB)
    builder.stage("sum", {}, "stages[0].sum", Sum())
    assert builder.format.alpha == 16
    with pytest.raises(PlanError, match="sum changes the size and does not know of alpha"):
        builder.stage("sum", {}, "stages[1].sum", Sum(larger=True))


def test_a_real_chain_of_both_kinds(tmp_path) -> None:
    cube = tmp_path / "half.cube"
    cube.write_text("LUT_1D_SIZE 2\n0 0 0\n0.5 0.5 0.5\n")
    stages = ({"lut3d": {"file": str(cube)}}, {"pad": {"width": 8, "x": 1, "opacity": 1.0}})
    builder = ChainBuilder(RGB)
    for entry in parse_config({"stages": list(stages)}).stages:
        from gpupipe.stages import load  # noqa: PLC0415

        made = load(entry.name)(entry.settings)
        builder.stage(entry.name, entry.settings.model_dump(mode="json"), f"stages.{entry.name}", made)
    rgb, alpha = Chain(builder.steps, CpuLane()).transform(PLANES)
    assert torch.allclose(rgb[:, :, :, 1:7], torch.tensor(0.125))
    assert [int(v) for v in alpha[0, 0]] == [65535, 7, 7, 7, 7, 7, 7, 65535]


def test_odd_sizes_grow_alpha_too() -> None:
    odd = FrameFormat(PIXEL_FORMATS["yuv420p"], 5, 3, alpha=8)
    step = Step("even", "even", odd, odd.with_(width=6, height=4))
    planes = tuple(torch.arange(h * w, dtype=torch.uint8).view(1, h, w) for h, w in odd.plane_shapes)
    alpha = Chain([step], CpuLane()).transform(planes)[3]
    assert alpha[0].tolist() == [
        [0, 1, 2, 3, 4, 4],
        [5, 6, 7, 8, 9, 9],
        [10, 11, 12, 13, 14, 14],
        [10, 11, 12, 13, 14, 14],
    ]


@pytest.mark.parametrize("bits", [8, 16])
def test_alpha_crosses_beside_planes_of_another_depth(bits: int) -> None:
    source = FrameFormat(PIXEL_FORMATS["yuv444p10le" if bits == 8 else "gray"], 6, 4, alpha=bits)
    kinds = [torch.uint16 if bits == 8 else torch.uint8] * (len(source.plane_shapes) - 1)
    kinds.append(torch.uint8 if bits == 8 else torch.uint16)
    planes = tuple(
        torch.full((1, *shape), 200 + n, dtype=kind)
        for n, (shape, kind) in enumerate(zip(source.plane_shapes, kinds, strict=True))
    )
    ring = PinnedRing(source, CpuLane())
    there = ring.upload(FrameBatch(source, (0,), Fraction(1), planes))
    back = PinnedRing(there.format, CpuLane()).download(there)
    for ours, theirs in zip(back.planes, planes, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    assert back.format.alpha == bits
