"""The phases of bench/device.py: what each runs, how long it may take, what it shows; in the order of their worth."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench import verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from bench.verdicts import Found, Verdict

GPU_TESTS = (
    "tests/gpu",
    "tests/ops/test_color_triton.py",
    "tests/ops/test_warp_triton.py",
    "tests/ops/test_halve.py",
    "tests/engines/test_fused.py",
    "tests/faces/test_face_kernels.py",
    "tests/stages/test_on_cuda.py",
    "tests/cli/test_doctor.py",
)
"""Other files of tests import what a GPU machine may lack."""
NETWORKS = tuple(f"tests/gpu/test_{name}_gpu.py" for name in ("tensorrt", "model", "networks", "face"))
"""Once more, where TensorRT and all weights are there."""
ALONE = (
    "tests/gpu/test_memory_gpu.py",
    "tests/gpu/test_nvjpeg_gpu.py::test_a_lane_takes_no_more_memory_than_is_planned",
    "tests/gpu/test_stalls_gpu.py::test_a_stalled_encoder_stops_the_decoders_and_loses_nothing",
    "tests/gpu/test_capability_gpu.py::test_asking_leaves_torchs_context_and_memory_alone",
    "tests/gpu/test_guard_gpu.py",
    "tests/gpu/test_model_gpu.py::test_a_run_from_a_warm_cache_begins_within_5_seconds",
)
"""Look at the memory of the whole GPU or take all of it, or, the last, at the time that a whole program needs, which
beside many others is theirs too. The first wants no other process there either; the last wants weights."""
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


def _pytest(name: str, *paths: str, workers: int = 0, only: str = "") -> Callable[[Setting], list[str]]:
    def command(setting: Setting) -> list[str]:
        count = min(workers, setting.workers)
        side = ["-n", str(count), "--dist", "worksteal"] if count > 1 else []
        left_out = [] if paths == ALONE else [word for one in ALONE for word in ("--deselect", one)]
        told = ["-p", "bench.told", "--told", str(setting.work / f"{name}.json")]
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:benchmark",
            "-m",
            "gpu and not nvenc",
            "--timeout",
            "150",
            "--durations",
            "15",
        ]
        chosen = ["-k", only] if only else []
        return [PYTHON, "-m", "pytest", *options, *left_out, *chosen, *side, *told, *paths]

    return command


def _script(
    name: str, *words: str, quick: tuple[str, ...] = (), device: str = "cuda", result: str = "", entry: str = ""
) -> Callable[[Setting], list[str]]:
    """bench/NAME.py with `--json`, and other words where it is only tried.

    Args:
        name: of the script.
        words: for it; CACHE and STILL stand for paths.
        quick: instead of those.
        device: what it calls CUDA; empty where it takes no `--device`.
        result: its JSON is called so, else as the script is.
        entry: its first word, either way.
    """

    def command(setting: Setting) -> list[str]:
        places = {"CACHE": str(setting.cache), "STILL": str(setting.still)}
        told = [places.get(word, word) for word in (quick if setting.quick else words)]
        if device:
            told += ["--device", "cpu" if setting.device == "cpu" else device]
        json = ["--json", str(setting.work / f"{result or name}.json")]
        return [PYTHON, f"bench/{name}.py", *filter(None, [entry]), *told, *json]

    return command


def _nvenc(setting: Setting) -> list[str]:
    return ["env", f"OUT={setting.work}", "LIMIT=200", f"WORKERS={min(5, setting.workers)}",
            "bash", "bench/nvenc_device.sh", ".bundle/base"]  # fmt: skip


def _matrix(name: str, seconds: int) -> Phase:
    quick = ("--frames", "60", "--runs", "1", "--only", "all", "--small")
    return Phase(seconds, _script("matrix", quick=quick, result=name, entry=name), verdicts.matrix(name))


def _profile(name: str, encode: str) -> Phase:
    quick = ("--encode", encode, "--frames", "60", "--seconds", "1", "--small")
    words = ("--encode", encode)
    return Phase(60, _script("pipeline_profile", *words, quick=quick, result=name), lambda _: ())


_MODELS = ("--cache", "CACHE", "--engines", "eager", "tensorrt", "inductor", "--cards")
"""In the order of how long each takes to build."""
_SR = ("--cache", "CACHE", "--engines", "eager", "triton", "tensorrt", "inductor", "--cards")
_SMALL = ("--size", "64x48", "--engines", "eager", "--precision", "fp32")
_FACES = ("--cache", "CACHE", "--face", "STILL")
_FEW = ("--size", "320x180", "--every", "1", "--engines", "eager", "--batch", "2", "--pipeline", "4")
PHASES: dict[str, Phase] = {
    "tests": Phase(240, _pytest("tests", *GPU_TESTS, workers=16, only="not 8_bits"), verdicts.tests),
    "nvenc": Phase(205, _nvenc, verdicts.tests, on_cpu=False),
    "prores": Phase(
        105,
        _script("prores", "--seconds", "0.7", "--rows", "1080p hq", "2160p hq", "1080p 4444", device=""),
        verdicts.prores,
        on_cpu=False,
    ),
    "profile-prores": _profile("profile-prores", "prores_torch"),
    "h264": _matrix("h264", 175),
    "hevc": _matrix("hevc", 200),
    "writing": Phase(
        110, _script("writing", quick=("--frames", "60", "--sessions", "2", "--rounds", "1", "--small")),
        verdicts.writing,
    ),
    "growth": Phase(140, _pytest("growth", *ALONE), verdicts.tests),
    "profile-mjpeg": _profile("profile-mjpeg", "mjpeg"),
    "hevc10-4k": _matrix("hevc10-4k", 95),
    "x264": _matrix("x264", 90),
    "models": Phase(
        180,
        _script("models", *_SR, "realesr-animevideov3-x2", "--pipeline", "2400", device="cuda:0",
                quick=(*_SR, "realesr-animevideov3-x2", *_SMALL, "--pipeline", "12", "--small")),
        verdicts.models,
    ),
    "faces": Phase(
        180,
        _script("faces", *_FACES, "--faces", "1", "--engines", "tensorrt", "eager", "--pipeline", "9000",
                quick=(*_FACES, "--faces", "1", *_FEW), device="cuda:0"),
        verdicts.faces,
    ),
    "models-others": Phase(
        300,
        _script("models", *_MODELS, "span-ch48-x2", "ffdnet-color", "multistyle26", "rife-3.9",
                device="cuda:0", result="models-others", quick=(*_MODELS, "ffdnet-color", "multistyle26", *_SMALL)),
        verdicts.engines,
    ),
    "faces-more": Phase(
        300,
        _script("faces", *_FACES, "--faces", "4", "8", "0", "--engines", "tensorrt", "eager", "--pipeline", "3000",
                quick=(*_FACES, "--faces", "0", "4", *_FEW), result="faces-more", device="cuda:0"),
        verdicts.faces_more,
    ),
    "faces-inductor": Phase(
        200,
        _script("faces", *_FACES, "--faces", "1", "4", "8", "--engines", "inductor", result="faces-inductor",
                quick=(*_FACES, "--faces", "1", *_FEW), device="cuda:0"),
        verdicts.faces_more,
    ),
    "faces-cpu": Phase(
        90,
        _script("faces", *_FACES, "--faces", "1", "4", "8", "--engines", "eager", "--batch", "1", "--pipeline", "60",
                "--device", "cpu", quick=(*_FACES, "--faces", "1", *_FEW, "--device", "cpu"), result="faces-cpu",
                device=""),
        verdicts.faces_more,
    ),
    "observers": Phase(
        80,
        _script("observers", "--rounds", "3", "--shares", "1", "--frames", "9000",
                quick=("--rounds", "1", "--shares", "1", "--frames", "50")),
        verdicts.observers,
    ),
    "warp": Phase(25, _script("warp", quick=("--size", "64x48")), verdicts.warp),
    "two-gpus": Phase(
        185,
        _script("two_gpus", "--frames", "60000", "--seconds", "2", device="", result="two-gpus"),
        verdicts.two_gpus,
        on_cpu=False,
    ),
    "tests-networks": Phase(
        90, _pytest("tests-networks", *NETWORKS, workers=8, only="tensorrt or rife or 8_bits"), verdicts.tests
    ),
    "tests-two": Phase(100, _pytest("tests-two", "tests/gpu/test_devices_gpu.py"), verdicts.tests),
}  # fmt: skip
"""By name."""
