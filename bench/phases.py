"""The phases of bench/device.py: what each runs, how long it may take, what it shows; in the order of their worth."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import verdicts
from bench.matrix import MATRIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from bench.verdicts import Found, Verdict

GPU_TESTS = ("tests/gpu", "tests/ops/test_color_triton.py", "tests/stages/test_on_cuda.py", "tests/cli/test_doctor.py")
"""Other files of tests import what a GPU machine may lack."""
ALONE = "tests/gpu/test_memory_gpu.py"
"""Wants the GPU for itself."""
PYTHON = sys.executable


@dataclass(frozen=True, slots=True)
class Setting:
    """What phases are told."""

    device: str
    """`cuda` or `cpu`."""
    quick: bool
    """Few frames: it is only tried whether all of it runs."""
    work: Path
    """Takes NAME.json of each phase."""
    cache: Path
    """With weights in `models`."""
    still: Path
    """A picture with a face."""
    workers: int
    """Tests side by side."""
    root: Path


@dataclass(frozen=True, slots=True)
class Phase:
    """One part."""

    seconds: int
    """That it may take."""
    command: Callable[[Setting], list[str]]
    judge: Callable[[Found], Iterable[Verdict]]
    on_cpu: bool = True
    """Whether it can be tried without a GPU."""


def _pytest(name: str, *paths: str, workers: int = 0) -> Callable[[Setting], list[str]]:
    def command(setting: Setting) -> list[str]:
        count = min(workers, setting.workers)
        side = ["-n", str(count), "--dist", "worksteal"] if count > 1 else []
        left_out = [] if ALONE in paths else ["--ignore", ALONE]
        told = ["-p", "bench.told", "--told", str(setting.work / f"{name}.json")]
        options = ["-q", "-p", "no:cacheprovider", "-m", "gpu and not nvenc", "--timeout", "150", "--durations", "15"]
        return [PYTHON, "-m", "pytest", *options, *left_out, *side, *told, *paths]

    return command


def _script(
    name: str, *words: str, quick: tuple[str, ...] = (), device: str = "cuda"
) -> Callable[[Setting], list[str]]:
    """bench/NAME.py with `--json`, and other words where it is only tried. `device` is what CUDA is called there."""

    def command(setting: Setting) -> list[str]:
        script = name.partition(" ")[0]
        told = quick if setting.quick else words
        named = [setting.device if setting.device == "cpu" else device] if device else []
        places = {"CACHE": str(setting.cache), "STILL": str(setting.still)}
        return [PYTHON, f"bench/{script}.py", *name.split(" ")[1:], *(places.get(word, word) for word in told),
                *(["--device", *named] if named else []),
                "--json", str(setting.work / f"{name.replace(' ', '-')}.json")]  # fmt: skip

    return command


def _nvenc(setting: Setting) -> list[str]:
    return ["env", f"OUT={setting.work}", "LIMIT=200", f"WORKERS={min(5, setting.workers)}",
            "bash", "bench/nvenc_device.sh", ".bundle/base"]  # fmt: skip


def _matrix(name: str, seconds: int) -> Phase:
    quick = ("--frames", "12", "--runs", "1", "--only", "all")
    return Phase(seconds, _script(f"matrix {name}", quick=quick), verdicts.matrix(name))


def _profile(encode: str) -> Phase:
    quick = ("--encode", encode if encode == "mjpeg" else "prores", "--frames", "12", "--seconds", "0.5")
    words = ("--encode", encode, "--frames", "6000")
    return Phase(55, _script(f"pipeline_profile {encode}", *words, quick=quick), lambda _: ())


_MODELS = ("--cache", "CACHE", "--cards", "realesr-animevideov3-x2", "span-ch48-x2", "ffdnet-color", "multistyle26")
_FACES = ("--cache", "CACHE", "--face", "STILL")
PHASES: dict[str, Phase] = {
    "tests": Phase(190, _pytest("tests", *GPU_TESTS, workers=10), verdicts.tests),
    "nvenc": Phase(205, _nvenc, verdicts.tests, on_cpu=False),
    "prores": Phase(105, _script("prores", "--seconds", "0.8", device=""), verdicts.prores, on_cpu=False),
    "profile-prores": _profile("prores_torch"),
    "h264": _matrix("h264", 130),
    "hevc": _matrix("hevc", 100),
    "growth": Phase(80, _pytest("growth", ALONE), verdicts.tests),
    "profile-mjpeg": _profile("mjpeg"),
    "hevc10-4k": _matrix("hevc10-4k", 95),
    "x264": _matrix("x264", 60),
    "models": Phase(
        200,
        _script("models", *_MODELS, "--pipeline", "1200", quick=(*_MODELS[:4], "--size", "64x48", "--pipeline", "12",
                "--engines", "eager"), device="cuda:0"),
        verdicts.models,
    ),
    "faces": Phase(
        170,
        _script("faces", *_FACES, "--pipeline", "1800", quick=(*_FACES, "--size", "320x180", "--faces", "0", "1",
                "--every", "1", "--engines", "eager", "--batch", "2", "--pipeline", "4"), device="cuda:0"),
        verdicts.faces,
    ),
    "observers": Phase(95, _script("observers", "--rounds", "7", quick=("--rounds", "1", "--frames", "50")),
                       verdicts.observers),
    "warp": Phase(25, _script("warp", quick=("--size", "64x48")), verdicts.warp),
    "two-gpus": Phase(140, _script("two_gpus", "--frames", "24000", device=""), verdicts.two_gpus, on_cpu=False),
    "tests-two": Phase(100, _pytest("tests-two", "tests/gpu/test_devices_gpu.py"), verdicts.tests),
}  # fmt: skip
"""By name."""
RESULTS = {**{name: f"matrix-{name}.json" for name in MATRIX}, "two-gpus": "two_gpus.json",
           "profile-prores": "pipeline_profile-prores_torch.json",
           "profile-mjpeg": "pipeline_profile-mjpeg.json"}  # fmt: skip
"""Files of results that are not called as their phase is."""
