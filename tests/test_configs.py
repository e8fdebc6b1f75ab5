"""Every example in configs/ is planned on a generated sample, and the demo is run."""

from __future__ import annotations

import re
import shutil
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "faces"))

from generators import swap_generator

from gpupipe.cli import execute
from gpupipe.cli.console import Console
from gpupipe.config import load_config
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.sample import make_sample

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
SUFFIXES = {
    "archive": ".mkv",
    "transcode": ".mkv",
    "conform": ".mov",
    "mjpeg-gpu": ".mov",
    "element": ".mov",
    "restore": ".mov",
    "upscale": ".mkv",
}
CARDS = {
    "anonymise": ("centerface",), "own-generator": ("centerface",), "restyle": ("centerface", "multistyle26"),
    "restore": ("centerface", "realesr-animevideov3-x2"), "upscale": ("realesr-animevideov3-x2",),
}  # fmt: skip


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("configs") / "clip.mov"
    make_sample(path, seconds=4, size=(1280, 720), rate=Fraction(25))
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_planned(path, clip, tmp_path, monkeypatch, weights):
    monkeypatch.chdir(ROOT)  # their assets start from the top of the repository
    for card in CARDS.get(path.stem, ()):
        weights(card)
    if path.stem == "own-generator":
        swap_generator(tmp_path, (1, 3, 128, 128), (1, 512))
        np.save(tmp_path / "identity.npy", np.zeros((1, 512), dtype=np.float32))
        path = Path(shutil.copy(path, tmp_path))
        monkeypatch.chdir(tmp_path)
    config = load_config(path)
    output = tmp_path / f"out{SUFFIXES.get(path.stem, '.mp4')}"
    plan = make_plan(config, probe(clip), output, device="cpu", strict=True)
    assert [step.name for step in plan.steps if step.kind == "stage"] == [
        s.name for s in config.stages if s.name != "fps"
    ]
    assert plan.encoder.codec == config.output.video.codec
    assert plan.to_json()["output"] == str(output)
    shown = "\n".join(plan.lines())
    assert not any(odd in shown for odd in ("None", "{'", "True")), "a plan is no dump of Python"
    if path.stem == "anonymise":
        said = "detect={score: 0.3, size: 1280, refine: false, most: 40}, track={hold: 5}, operate=[pixelate], blend={mask: box"
        assert said in shown


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_explained(path):
    """An example says what it is for and how it is run."""
    text = path.read_text()
    assert text.startswith("# ")
    assert f"gpupipe run configs/{path.name} " in text
    fetched = re.search(r"gpupipe models fetch ([^&\n]+) &&", text)
    assert tuple(fetched[1].split() if fetched else ()) == CARDS.get(path.stem, ())


def test_the_demo_runs(tmp_path, monkeypatch, ffprobe):
    monkeypatch.chdir(ROOT)
    clip, out = tmp_path / "clip.mov", tmp_path / "demo.mp4"
    make_sample(clip, seconds=1, size=(1280, 720), rate=Fraction(5))
    assert execute(["run", "configs/demo.yaml", str(clip), str(out), "--device", "cpu"], Console()) == 0
    video = ffprobe(out, "-count_frames", "-show_streams")["streams"][0]
    assert (video["width"], video["height"], video["nb_read_frames"]) == (960, 540, "5")


def test_the_assets_are_what_their_script_makes(tmp_path):
    source = (ROOT / "configs" / "assets" / "make.py").read_text()
    script = tmp_path / "make.py"
    script.write_text(source)
    scope = {"__name__": "__main__", "__file__": str(script)}
    exec(compile(source, str(script), "exec"), scope)
    assert (tmp_path / "warm.cube").read_bytes() == (ROOT / "configs" / "assets" / "warm.cube").read_bytes()
    assert (tmp_path / "logo.png").stat().st_size > 1000
