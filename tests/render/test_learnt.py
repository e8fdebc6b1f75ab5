"""A network in 8 bits in a whole run: calibrated once on the clip, the recipe part of the plan, pixels the same again."""

from __future__ import annotations

import json
import math
import threading
from fractions import Fraction
from typing import TYPE_CHECKING

import av
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from gpupipe.cli.job import plan_of as planned
from gpupipe.config import parse_config
from gpupipe.errors import EngineError, PlanError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.models import folder
from gpupipe.models.srvgg import Srvgg
from gpupipe.plan import make_plan
from gpupipe.plan.stored import dump, load
from gpupipe.render import render
from gpupipe.render.learnt import learnt

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 16


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "engines", lambda: tmp_path / "engines")


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    """A network that enlarges otherwise than by repeating pixels."""
    torch.manual_seed(4)
    net = Srvgg(16, 4, 2)
    with torch.no_grad():
        net.body[-1].weight *= 55
    path = tmp_path_factory.mktemp("weights") / "net.safetensors"
    save_file(net.state_dict(), path)
    return path


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("clip") / "clip.mkv"
    y, x = np.mgrid[0:40, 0:56]
    with av.open(str(place), "w") as file:
        stream = file.add_stream("ffv1", 10)
        stream.width, stream.height, stream.pix_fmt = 56, 40, "yuv420p"
        for n in range(COUNT):
            picture = 127 + 100 * np.sin((x * (n + 1) + 3 * y) / 15)
            rgb = np.stack([picture, picture[::-1], 255 - picture], -1).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            frame.pts, frame.time_base = n, Fraction(1, 10)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return place


def plan_of(clip, weights, output, **more):
    model = {"path": str(weights), "architecture": "srvgg", "tile": "off", **more}
    config = {"stages": [{"model": model}], "output": {"video": {"codec": "ffv1", "pixel_format": "gbrp10le"}}}
    return make_plan(parse_config(config), probe(clip), output, device="cpu")


def made(plan):
    render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    with av.open(str(plan.output)) as file:
        return np.stack([frame.to_ndarray(format="gbrp10le") for frame in file.decode(video=0)])


def test_a_run_in_8_bits(clip, weights, tmp_path):
    floats = made(plan_of(clip, weights, tmp_path / "floats.mkv"))
    said: list[str] = []
    plan = learnt(plan_of(clip, weights, tmp_path / "int8.mkv", precision="int8"), said.append)
    assert said == ["model: looking at 10 pictures of clip.mkv"]
    (step,) = (step for step in plan.steps if step.kind == "stage")
    assert "int8 in 4 of 6 convolutions, " in step.reason
    assert "4 pictures held out, " in step.reason
    assert step.reason.endswith("contrast is highest; no faster here, as only TensorRT computes in 8 bits")
    (line,) = (line for line in plan.lines() if "int8 in 4 of 6" in line)
    assert ", precision=int8, tile=off -> " in line, "the recipe itself is thousands of numbers"
    ours = made(plan)
    error = np.square(ours.astype(float) - floats).mean((1, 2, 3))
    assert error.min() > 0
    assert 10 * math.log10(1023**2 / error.max()) >= 38, "in every picture of the clip"

    stored = load(json.loads(json.dumps(dump(plan))), "the plan")  # as another process or machine gets it
    again = made(load(dump(plan) | {"output": str(tmp_path / "again.mkv"), "digest": plan.digest()}, "the plan"))
    assert stored.digest() == plan.digest()
    assert np.array_equal(again, ours)


def test_it_is_the_same_without_the_cache(clip, weights, tmp_path, monkeypatch):
    first = learnt(plan_of(clip, weights, tmp_path / "out.mkv", precision="int8"))
    monkeypatch.setattr(folder, "engines", lambda: tmp_path / "elsewhere")
    assert learnt(plan_of(clip, weights, tmp_path / "out.mkv", precision="int8")).digest() == first.digest()
    assert learnt(first) is first, "nothing is left to learn"
    assert plan_of(clip, weights, tmp_path / "out.mkv").digest() != first.digest()


def test_where_it_loses_too_much_floats_go_on_with_a_warning(clip, weights, tmp_path):
    asked = {"precision": "int8", "accuracy": 60.0}
    plan = learnt(plan_of(clip, weights, tmp_path / "out.mkv", **asked))
    (notice,) = (one for one in plan.warnings if one.code == "model-precision")
    assert notice.message.startswith("net goes on in fp32: int8 gives ")
    assert "of 60, and " in notice.message
    assert np.array_equal(made(plan), made(plan_of(clip, weights, tmp_path / "floats.mkv")))
    with pytest.raises(EngineError) as told:
        learnt(plan_of(clip, weights, tmp_path / "named.mkv", engine="eager", **asked))
    assert str(told.value).startswith("model net: int8 gives ")
    assert str(told.value).endswith("(use `engine: auto`, which goes on in floats, or less `accuracy`)")


def test_a_plan_that_has_not_looked_does_not_run(clip, weights, tmp_path):
    with pytest.raises(EngineError, match=r"model net: fp8 was not calibrated \(make the plan by `gpupipe run`"):
        made(plan_of(clip, weights, tmp_path / "out.mkv", precision="fp8"))


def test_under_strict_floats_instead_of_8_bits_are_an_error(clip, weights, tmp_path):
    """As any other warning that is known before work."""
    model = {"path": str(weights), "architecture": "srvgg", "precision": "int8", "tile": "off", "accuracy": 60.0}
    video = {"codec": "ffv1", "pixel_format": "gbrp10le"}
    config = parse_config({"stages": [{"model": model}], "output": {"video": video}})
    arguments = (tmp_path / "c.yaml", config, clip, tmp_path / "out.mkv")
    with pytest.raises(PlanError, match=r"--strict: net goes on in fp32: int8 gives .* \(drop --strict"):
        planned(*arguments, device="cpu", strict=True)
    assert len(planned(*arguments, device="cpu", strict=False).warnings) == 1
