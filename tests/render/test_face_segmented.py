"""Faces over segment borders: a cut run gives the pictures of a run in one go, frame for frame, smoothing on."""

from __future__ import annotations

import sys
import threading
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faces"))

from clips import frames, path

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render
from gpupipe.stages.face import Face

SIZE = (160, 128)


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    """20 pictures of a moving face, a key frame in every sixth, a cut in the 16th."""
    torch.manual_seed(2)
    rgb = frames("astronaut_512.png", path(20, SIZE, (225.0, 120.0), 0.55, pan=3.0, zoom=0.3, roll=2.0), SIZE)
    rgb[16:] = rgb[16:].flip(-1)
    rgb = (rgb + 0.02 * torch.randn(rgb.shape)).clamp(0, 1)
    place = tmp_path_factory.mktemp("faces") / "clip.mkv"
    with av.open(str(place), "w") as file:
        stream = file.add_stream(
            "libx264", 10, options={"crf": "12", "x264-params": "keyint=6:min-keyint=6:scenecut=0"}
        )
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for n, picture in enumerate(rgb.permute(0, 2, 3, 1)):
            frame = av.VideoFrame.from_ndarray((picture.numpy() * 255).round().astype(np.uint8), format="rgb24")
            frame.pts, frame.time_base = n, Fraction(1, 10)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return place


def run(source: Path, output: Path, settings: dict, **more: object) -> tuple[list[bytes], int]:
    config = {"stages": [{"face": settings}], "output": {"video": {"codec": "ffv1"}}, **more}
    plan = make_plan(parse_config(config), probe(source), output, device="cpu")
    render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    with av.open(str(output)) as made:
        return [b"".join(bytes(p) for p in frame.planes) for frame in made.decode(video=0)], len(plan.segments)


@pytest.mark.parametrize("every", [1, 3])
def test_frame_for_frame(every, clip, tmp_path, weights) -> None:
    weights("centerface")
    settings = {
        "detect": {"every": every, "most": 2, "refine": False},
        "track": {"hold": 2},
        "smooth": {"window": 5},
        "operate": ["pixelate"],
        "blend": {"steady": 0.2},
    }
    whole, one = run(clip, tmp_path / "whole.mkv", settings, segments="off")
    cut, many = run(clip, tmp_path / "cut.mkv", settings, segments={"seconds": 0.5}, sessions=2)
    assert (one, many) == (1, 4)
    assert len(whole) == len(cut) == 20
    assert [a == b for a, b in zip(whole, cut, strict=True)] == [True] * 20
    with av.open(str(clip)) as source:
        plain = [b"".join(bytes(p) for p in frame.planes) for frame in source.decode(video=0)]
    assert all(a != b for a, b in zip(plain, whole, strict=True)), "every picture has a face"


def test_lead_in_is_what_makes_it_so(clip, tmp_path, weights, monkeypatch) -> None:
    """Without it the same run differs, so the test above sees what it should."""
    weights("centerface")
    settings = {"detect": {"most": 2, "refine": False}, "smooth": {"window": 5}, "operate": ["pixelate"]}
    whole, _ = run(clip, tmp_path / "whole.mkv", settings, segments="off", range={"end": 1.2})
    monkeypatch.setattr(Face, "lead", 0)
    cut, _ = run(clip, tmp_path / "cut.mkv", settings, segments={"seconds": 0.5}, range={"end": 1.2})
    assert whole[:6] == cut[:6]
    assert whole[6:] != cut[6:]


def test_a_portrait_clip_is_turned_before_faces_are_looked_for(clip, tmp_path, ffmpeg, weights) -> None:
    """Pictures that lie on their side with a display matrix, as telephones write them."""
    weights("centerface")
    lying, turned = tmp_path / "lying.mp4", tmp_path / "turned.mp4"
    ffmpeg("-i", clip, "-frames:v", "3", "-vf", "transpose=2", lying)
    ffmpeg("-i", lying, "-c", "copy", "-metadata:s:v:0", "rotate=90", turned)
    shown = []
    for name, opacity in (("blurred", 1), ("plain", 0)):
        face = {"detect": {"most": 2}, "operate": ["blur"], "blend": {"opacity": opacity}}
        run(turned, tmp_path / f"{name}.mkv", face)
        with av.open(str(tmp_path / f"{name}.mkv")) as made:
            shown.append([frame.to_ndarray(format="gray").astype(int) for frame in made.decode(video=0)])
    assert [len(part) for part in shown] == [3, 3]
    for a, b in zip(*shown, strict=True):
        assert a.shape == (SIZE[1], SIZE[0])
        away = np.abs(a - b)
        assert away[SIZE[1] // 4 : SIZE[1] * 3 // 4, SIZE[0] // 3 : SIZE[0] * 2 // 3].mean() > 4
        assert away[:, :4].max() == 0
