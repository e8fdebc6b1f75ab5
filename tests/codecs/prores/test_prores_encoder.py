"""The encoder around the coder: what it hands out stays what it was."""

from __future__ import annotations

import numpy as np
import torch
from prores_pictures import picture, settings

from gpupipe.codecs.prores.encoder import ProresEncoder
from gpupipe.device.cpu import CpuLane
from gpupipe.frame import FrameBatch


class ReusedStaging:
    """Hands out one and the same memory for every batch, as pinned staging does on a GPU."""

    def __init__(self) -> None:
        self._buffer = torch.zeros(1 << 20, dtype=torch.uint8)

    def fetch(self, data: torch.Tensor) -> torch.Tensor:
        here = self._buffer[: data.numel()]
        here.copy_(data)
        return here


def test_packets_outlive_the_next_batch() -> None:
    """PyAV's packets keep the memory that they are given: it must not be the staging buffer."""
    asked = settings(64, 48)
    encoder = ProresEncoder(asked, CpuLane())
    encoder._staging = ReusedStaging()
    held, at_once = [], []
    for n, kind in enumerate(("grain", "noise", "text")):
        planes = tuple(torch.from_numpy(np.stack((p, p))) for p in picture(kind, 64, 48))
        packets = encoder.encode(FrameBatch(asked.input_format, (2 * n, 2 * n + 1), asked.time_base, planes))
        at_once += [bytes(p) for p in packets]
        held += packets
    assert [bytes(p) for p in held] == at_once
    assert len(set(at_once)) == 3
