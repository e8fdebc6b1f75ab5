"""CUDA Graphs of an encoder are captured only where whole batches come and all encoders are open first: behind NVDEC."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpupipe.codecs.prores import encoder as prores
from gpupipe.device.cpu import CpuLane
from gpupipe.render.codecs import encoder_maker


@pytest.mark.parametrize(("decoder", "graphs", "graphed"), [
    ("nvdec", "whole", 12), ("nvdec", "parts", 12), ("nvdec", "off", 0), ("libav", "whole", 0), ("libav", "off", 0),
])  # fmt: skip
def test_graphs_are_for_nvdec(monkeypatch, decoder: str, graphs: str, graphed: int) -> None:
    monkeypatch.setattr(prores, "ProresEncoder", lambda settings, lane, rows: rows)
    plan = SimpleNamespace(encoder=SimpleNamespace(encoder="prores_torch"), batch=12, graphs=graphs, decoder=decoder)
    assert encoder_maker(plan)(CpuLane()) == graphed
