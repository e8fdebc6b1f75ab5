"""Faces on the GPU: what the CPU finds, copies counted, parts captured in a CUDA Graph, runs in segments, nobody left.

The still comes from a folder `.faces` in the repository where one was carried along.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import av
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faces"))

import stills_of_faces
from clips import frames, path

from bench.faces import write_clip
from gpupipe import stages
from gpupipe.config import parse_config
from gpupipe.device.copies import CopyWatch
from gpupipe.engines.select import named
from gpupipe.faces.detect import Wanted, faces_of, look, shown
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.render.one_thread import OneThread

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
if (ROOT / ".faces").is_dir():
    stills_of_faces.FACES = ROOT / ".faces"
SIZE, CENTRE = (640, 360), (225.0, 120.0)
ANONYMISE = {
    "detect": {"score": 0.3},
    "operate": [{"pixelate": {"blocks": 6}}],
    "blend": {"mask": "box", "feather": 0.02},
    "engine": "eager",
}
RESTYLE = {
    "operate": [{"generate": {"card": "multistyle26"}}], "align": {"size": 128}, "engine": "eager",
    "blend": {"mask": "hull", "method": "poisson", "match_color": True},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _weights(fetched) -> None:
    fetched("centerface", "multistyle26")


@pytest.fixture(scope="module")
def moving() -> torch.Tensor:
    return frames("astronaut_512.png", path(32, SIZE, CENTRE, 1.0, pan=4.0, zoom=0.4, roll=2.0, light=0.2), SIZE)


@pytest.fixture(scope="module")
def clip(moving, tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("clip") / "clip.mp4"
    write_clip(place, moving, 150)
    return place


def made(settings: dict, device: str, pixels: str, rows: int, *, graphs: bool = False):
    kind = stages.load("face")
    stage = kind(kind.Settings.model_validate(settings, strict=False))
    stage.attend(Journal(), rows, graphs=graphs)
    stage.prepare(FrameFormat(PIXEL_FORMATS[pixels], *SIZE, device=device))
    return stage


def run(stage, rgb: torch.Tensor, rows: int, number: int = 0) -> torch.Tensor:
    memory = stage.remember()
    memory.number = number
    out = []
    with torch.inference_mode():
        for part in rgb.split(rows):
            out.append(stage.follow((part,), memory)[0].float().cpu())
            memory.number += len(part)
    return torch.cat(out)


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("settings", [ANONYMISE, RESTYLE])
def test_the_gpu_makes_what_the_cpu_makes(settings, every, moving) -> None:
    wanted = {**settings, "detect": {**settings.get("detect", {}), "every": every}}
    ours = run(made(wanted, "cuda:0", "rgbf16", 16), moving.half().cuda(), 16)
    theirs = run(made(wanted, "cpu", "rgbf32", 1), moving, 1)
    assert float(-10 * torch.log10((ours - theirs).square().mean())) > 38
    untouched = (theirs == moving).all(1) & (ours == moving.half().float()).all(1)
    assert float(untouched.float().mean()) > 0.3


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("settings", [ANONYMISE, RESTYLE])
def test_a_picture_comes_out_the_same_wherever_it_stands(settings, every, moving) -> None:
    """In another batch, at another place, from another thread, to the last bit."""
    short = {**settings, "detect": {"score": 0.3, "every": every}, "smooth": {"window": 3}, "track": {"hold": 1}}
    rgb = moving.half().cuda()
    stage = made(short, "cuda:0", "rgbf16", 16)
    whole, first = run(stage, rgb, 16), 7
    other = OneThread(lambda: None)
    part = other(lambda: run(made(short, "cuda:0", "rgbf16", 16), rgb[first : first + 16], 16, first))
    assert torch.equal(part[stage.lead :], whole[first + stage.lead : first + 16])


@pytest.mark.parametrize("graphs", [False, True])
def test_a_batch_copies_a_few_bytes_only(graphs, moving) -> None:
    stage, rgb = made(RESTYLE, "cuda:0", "rgbf16", 16, graphs=graphs), moving[:16].half().cuda()
    memory = stage.remember()
    with torch.inference_mode():
        for _ in range(3):
            stage.follow((rgb,), memory)
        torch.cuda.synchronize()
        watch = CopyWatch()
        watch.start()
        stage.follow((rgb,), memory)
        torch.cuda.synchronize()
        found = watch.stop()
    assert found.to_host <= 64, "whether there is a face; how many, and how large"
    assert found.to_device == 0


@pytest.mark.parametrize("every", [1, 4])
@pytest.mark.parametrize("settings", [ANONYMISE, RESTYLE])
def test_replayed_is_as_called(settings, every, moving) -> None:
    """To the last bit: with people and without, twice over, and with one memory after another as runners have them."""
    wanted = {**settings, "detect": {**settings.get("detect", {}), "every": every}}
    called, replayed = (made(wanted, "cuda:0", "rgbf16", 16, graphs=graphs) for graphs in (False, True))
    rgb = torch.cat((moving.half().cuda(), torch.full((16, 3, *SIZE[::-1]), 0.4).half().cuda(), moving.half().cuda()))
    theirs = [run(called, rgb[first:], 16) for first in (0, 32)]
    for _ in range(2):
        ours = [run(replayed, rgb[first:], 16) for first in (0, 32)]
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    between = [replayed.remember() for _ in range(2)]
    with torch.inference_mode():
        for part in rgb.split(16):
            a, b = (replayed.follow((part,), memory)[0].clone() for memory in between)
            assert torch.equal(a, b)
            for memory in between:
                memory.number += 16


def rendered(source: Path, output: Path, settings: dict, codec: str, **more: object) -> tuple[int, list[np.ndarray]]:
    config = {"stages": [{"face": settings}], "output": {"video": {"codec": codec}, "audio": "none"}, **more}
    plan = make_plan(parse_config(config), probe(source), output, device="cuda")
    render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    with av.open(str(output)) as container:
        return len(plan.segments), [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize("every", [1, 4])
def test_segmented_equals_one_session(every, clip, tmp_path) -> None:
    """To the last bit: every network and sum has one shape, and nothing is measured, see `faces.engine.Batched`."""
    settings = {**ANONYMISE, "detect": {"every": every}}
    one, whole = rendered(clip, tmp_path / "whole.mkv", settings, "ffv1", segments="off")
    many, cut = rendered(clip, tmp_path / "cut.mkv", settings, "ffv1", segments={"seconds": 1})
    assert (one, len(whole)) == (1, 150)
    assert many > 3
    worst = [int(np.abs(a.astype(int) - b).max()) for a, b in zip(whole, cut, strict=True)]
    assert max(worst) == 0, worst


def again(out: list[np.ndarray], score: float) -> list[tuple[int, float, list[int]]]:
    """Frame, score and box of each face that the detector finds."""
    stage, how = made(ANONYMISE, "cuda:0", "rgbf16", 16), look(*SIZE, max(SIZE))
    hits: list[tuple[int, float, list[int]]] = []
    with torch.inference_mode():
        for first in range(0, len(out), 16):
            rgb = torch.from_numpy(np.stack(out[first : first + 16])).permute(0, 3, 1, 2).cuda().float() / 255
            faces = faces_of(stage._line._sight._detector(shown(rgb, how)), how, Wanted(score, 0, 8))
            for n, k in faces.valid.nonzero().tolist():
                box = faces.boxes[n, k].round().int().tolist()
                hits.append((first + n, round(float(faces.scores[n, k]), 3), box))
    return hits


def test_nobody_is_known_from_nvdec_to_nvjpeg(clip, tmp_path) -> None:
    """In all frames."""
    _, out = rendered(clip, tmp_path / "out.mov", ANONYMISE, "mjpeg")
    assert len(out) == 150
    assert again(out, 0.3) == []


@pytest.mark.parametrize("engine", ["inductor", "tensorrt", "auto"])
def test_engines_find_the_same_faces(engine, moving) -> None:
    if engine != "auto" and (why := named(engine).absent("cuda:0")) is not None:
        pytest.skip(why)
    rgb = moving[:16].half().cuda()
    ours, theirs = (run(made({**ANONYMISE, "engine": e}, "cuda:0", "rgbf16", 16), rgb, 16) for e in (engine, "eager"))
    assert float(-10 * torch.log10((ours - theirs).square().mean().clamp(min=1e-12))) > 40
