"""PSNR, SSIM and VMAF of a run against ffmpeg's own filters on the files."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from typing import TYPE_CHECKING

import imageio_ffmpeg
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import ConfigError, MediaError, PlanError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from pathlib import Path

STAGES = [{"warp": {"rotate": 3}}, {"crop": {"width": 304, "height": 176}}]
CODED = {"audio": "none", "video": {"encoder": "libx264", "preset": "ultrafast", "quality": 34}}
LOSSLESS = {"audio": "none", "video": {"codec": "ffv1"}}


@pytest.fixture(scope="module")
def clip(sample_clip) -> Path:
    return sample_clip(2)


def run(clip: Path, out: Path, **config: object):
    plan = make_plan(parse_config(config), probe(clip), out, device="cpu")
    return render(plan, overwrite=True, journal=Journal(), stop=threading.Event())


def compare(ffmpeg, made: Path, reference: Path, name: str, pattern: str) -> float:
    graph = f"[0:v]settb=1/25,setpts=N[a];[1:v]settb=1/25,setpts=N[b];[a][b]{name}"
    said = ffmpeg("-i", made, "-i", reference, "-lavfi", graph, "-f", "null", "-")
    return float(re.search(pattern, said)[1])


@pytest.mark.parametrize("against", ["stages", "input"])
def test_equal_to_ffmpeg(clip, tmp_path, ffmpeg, against):
    stages = STAGES if against == "stages" else [{"lut3d": {"file": "configs/assets/warm.cube"}}]
    quality = {"metrics": ["psnr", "ssim", "vmaf"], "frames": "all", "against": against}
    psnr, ssim, vmaf = run(clip, tmp_path / "o.mp4", stages=stages, output=CODED, quality=quality).quality
    reference = clip
    if against == "stages":
        reference = tmp_path / "reference.mkv"
        run(clip, reference, stages=stages, output=LOSSLESS)
    assert psnr.mean == pytest.approx(
        compare(ffmpeg, tmp_path / "o.mp4", reference, "psnr", r"average:([\d.]+)"), abs=0.01
    )
    assert ssim.mean == pytest.approx(compare(ffmpeg, tmp_path / "o.mp4", reference, "ssim", r"All:([\d.]+)"), abs=1e-4)
    graph = (
        f"[0:v]settb=1/25,setpts=N[a];[1:v]settb=1/25,setpts=N[b];[a][b]libvmaf=log_fmt=json:log_path={tmp_path}/v.json"
    )
    words = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", tmp_path / "o.mp4", "-i", reference, "-lavfi", graph]
    subprocess.run([*words, "-f", "null", "-"], check=True)
    theirs = json.loads((tmp_path / "v.json").read_text())["pooled_metrics"]["vmaf"]
    assert vmaf.mean == pytest.approx(theirs["mean"], abs=0.01)
    assert vmaf.least == pytest.approx(theirs["min"], abs=0.01)
    assert vmaf.mean < 99
    assert {score.frames for score in (psnr, ssim, vmaf)} == {50}


@pytest.mark.parametrize("pixels", ["yuv420p10le", "yuv422p10le", "yuv444p10le", "yuv422p"])
def test_vmaf_of_other_formats(clip, tmp_path, pixels):
    output = {"audio": "none", "video": {"codec": "ffv1", "pixel_format": pixels}}
    (vmaf,) = run(clip, tmp_path / "o.mkv", output=output, quality={"metrics": ["vmaf"], "frames": 10}).quality
    assert vmaf.frames == 10
    assert vmaf.least > 94  # nothing is lost, and without motion libvmaf says no more of this clip


def test_ten_bits(corpus, tmp_path, ffmpeg):
    clip = corpus / "files" / "h264_high10.mp4"
    scores = run(clip, tmp_path / "o.mp4", output=CODED, quality={"frames": "all"}).quality
    assert scores[0].mean == pytest.approx(
        compare(ffmpeg, tmp_path / "o.mp4", clip, "psnr", r"average:([\d.]+)"), abs=0.01
    )
    assert scores[1].mean == pytest.approx(compare(ffmpeg, tmp_path / "o.mp4", clip, "ssim", r"All:([\d.]+)"), abs=1e-4)


def test_lossless_is_perfect_and_a_sample_is_smaller(clip, tmp_path):
    scores = run(clip, tmp_path / "o.mkv", stages=STAGES, output=LOSSLESS, quality={"frames": 10}).quality
    assert [(s.name, s.mean, s.frames) for s in scores] == [("psnr", float("inf"), 10), ("ssim", 1.0, 10)]


def test_a_missed_threshold_fails_the_run(clip, tmp_path):
    quality = {"metrics": ["psnr"], "frames": 5, "minimum": {"psnr": 60}}
    with pytest.raises(MediaError, match=r"psnr is [\d.]+ dB, less than 60"):
        run(clip, tmp_path / "o.mp4", output=CODED, quality=quality)
    assert not list(tmp_path.iterdir())


def test_refused(clip, tmp_path, monkeypatch):
    with pytest.raises(PlanError, match="320x180 cannot be compared with 304x176"):
        run(clip, tmp_path / "o.mp4", stages=STAGES, output=CODED, quality={"against": "input"})
    with pytest.raises(ConfigError, match="needs it among the metrics"):
        parse_config({"quality": {"metrics": ["psnr"], "minimum": {"vmaf": 90}}})
    monkeypatch.setattr("gpupipe.render.quality.vmaf_program", lambda: None)
    with pytest.raises(PlanError, match="no libvmaf here"):
        run(clip, tmp_path / "o.mp4", output=CODED, quality={"metrics": ["vmaf"]})
    assert not list(tmp_path.iterdir())
