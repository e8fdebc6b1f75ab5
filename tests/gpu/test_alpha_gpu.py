"""Alpha on a GPU: decoded on the CPU, uploaded, moved by the stages there, and what comes out is the CPU's."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
import torch

from gpupipe.codecs.native import new_frame
from gpupipe.config import parse_config
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.gpu

LOGO = "configs/assets/logo.png"
STAGES = {
    "none": ([], 0),
    "planes": ([{"crop": {"width": 60, "height": 40, "x": 3, "y": 5}}, {"pad": {"width": 81, "height": 50}}], 0),
    "lut": ([{"lut3d": {"file": "configs/assets/warm.cube"}}], 0),
    "resize": ([{"resize": {"width": 150, "height": 70}}], 1),
    "warp": ([{"warp": {"rotate": 9, "scale": 0.9, "border": "constant"}}], 1),
    "overlay": ([{"overlay": {"image": LOGO, "scale": 0.2, "opacity": 0.6}}], 1),
}
"""Stages, and by how many codes alpha may differ."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FFV1 with 10-bit alpha of an odd size."""
    path = tmp_path_factory.mktemp("alpha") / "source.mkv"
    picture = FrameFormat(PIXEL_FORMATS["yuv444p10le"], 99, 67, alpha=10)
    random = np.random.default_rng(5)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", 25)
        stream.width, stream.height, stream.pix_fmt = 99, 67, "yuva444p10le"
        for n in range(5):
            planes = random.integers(0, 1024, (4, 1, 67, 99)).astype(np.uint16)
            planes[3, :, :, : 10 + n], planes[3, :, :, 60 + n :] = 0, 1023
            frame = new_frame(picture, "yuva444p10le", tuple(torch.from_numpy(p) for p in planes), 0)
            frame.pts = n
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def run(source: Path, output: Path, stages: list[dict], encoder: str, device: str) -> None:
    video = {"encoder": encoder, "alpha": "keep"}
    plan = make_plan(parse_config({"stages": stages, "output": {"video": video}}), probe(source), output, device=device)
    render(plan, overwrite=False, journal=Journal(), stop=threading.Event())


def planes(path: Path) -> list[np.ndarray]:
    """(4, H, W) of every picture."""
    with av.open(str(path)) as container:
        return [
            np.stack([np.frombuffer(bytes(p), np.uint16).reshape(p.height, -1)[:, : p.width] for p in f.planes])
            for f in container.decode(video=0)
        ]


@pytest.mark.parametrize("encoder", ["ffv1", "prores_torch"])
@pytest.mark.parametrize("name", STAGES)
def test_alpha_is_that_of_the_cpu(source: Path, tmp_path: Path, name: str, encoder: str) -> None:
    stages, allowed = STAGES[name]
    for device in ("cpu", "cuda"):
        run(source, tmp_path / f"{device}.mkv", stages, encoder, device)
    cpu, cuda = planes(tmp_path / "cpu.mkv"), planes(tmp_path / "cuda.mkv")
    assert len(cpu) == len(cuda) == 5
    if encoder == "prores_torch":
        allowed *= 4  # two bits more
    for a, b in zip(cpu, cuda, strict=True):
        assert a.shape == b.shape
        assert np.abs(a[3].astype(int) - b[3]).max() <= allowed
        assert len(np.unique(a[3])) > 100
        if encoder == "ffv1":
            seen = a[3] > 20  # where there is next to nothing, colours are next to anything
            assert np.abs(a[:3].astype(int) - b[:3])[:, seen].max() <= 3
