"""What is recorded for replays gives what is called; on the CPU a replay does the work again, from the same memory."""

from __future__ import annotations

import pytest
import torch
from clips import frames, path

from gpupipe import stages
from gpupipe.device.cpu import CpuLane
from gpupipe.device.replay import Recorder
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal

ROWS, SIZE = 3, (320, 180)


@pytest.fixture(autouse=True)
def _weights(weights) -> None:
    weights("centerface")


def made(every: int):
    kind = stages.load("face")
    settings = {"detect": {"every": every}, "operate": ["pixelate"], "smooth": {"window": 4}, "align": {"size": 64}}
    stage = kind(kind.Settings.model_validate(settings, strict=False))
    stage.attend(Journal(), ROWS)
    stage.prepare(FrameFormat(PIXEL_FORMATS["rgbf32"], *SIZE, device="cpu"))
    line = stage._line
    line._rework._together = line._sight._refine._together = 2  # as on a GPU: crops come in calls of so many
    return stage


def run(stage, rgb: torch.Tensor) -> torch.Tensor:
    memory, out = stage.remember(), []
    with torch.inference_mode():
        for part in rgb.split(ROWS):
            out.append(stage.follow((part,), memory)[0].clone())
            memory.number += len(part)
    return torch.cat(out)


@pytest.mark.parametrize("every", [1, 3])
def test_a_recorded_line_is_the_line(every: int) -> None:
    moving = frames("astronaut_512.png", path(2 * ROWS, SIZE, (120.0, 80.0), 0.6, pan=3.0), SIZE)
    rgb = torch.cat((moving, torch.full((ROWS, 3, *SIZE[::-1]), 0.4), moving[: ROWS + 2]))  # the last batch is short
    wanted = run(made(every), rgb)
    stage = made(every)
    static = torch.zeros(ROWS, 3, *SIZE[::-1])
    with torch.inference_mode():
        stage._line.record(Recorder(CpuLane()), static)
    ours = run(stage, rgb)
    assert (wanted != rgb).any((1, 2, 3)).sum() > ROWS, "faces were found"
    assert static.any(), "pictures come through the memory that replays read"
    assert torch.equal(ours, wanted)
