"""What this machine can do, and what is missing to do more. Works without any of it."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import shutil
import subprocess
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gpupipe
from gpupipe.codecs import nvjpeg_library
from gpupipe.codecs.capability import DecoderTable, EncoderTable, nvdec_table, nvenc_table
from gpupipe.device.driver import Driver, Gpu, driver
from gpupipe.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Library:
    """One piece of software, as found here."""

    name: str
    version: str | None
    """None where it is not installed."""
    detail: str = ""
    """Builds and libraries inside it."""
    problem: str | None = None
    """Why it cannot be used."""
    hint: str | None = None
    """What to do about the problem, and what for."""


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU and its video engines."""

    gpu: Gpu
    nvdec: DecoderTable
    nvenc: EncoderTable


@dataclass(frozen=True, slots=True)
class Report:
    """Everything `gpupipe doctor` knows."""

    gpupipe: str
    python: str
    platform: str
    driver: Driver
    driver_hint: str | None
    gpus: tuple[GpuReport, ...]
    libraries: tuple[Library, ...]


@dataclass(frozen=True, slots=True)
class _Wanted:
    name: str
    module: str
    distributions: tuple[str, ...]
    hint: str
    detail: Callable[[Any], str] = lambda _: ""


def _torch_detail(torch: Any) -> str:
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
    return f"{built}, {'sees' if torch.cuda.is_available() else 'sees no'} CUDA device"


def _av_detail(av: Any) -> str:
    found = av.library_versions
    return ", ".join(f"{name} {'.'.join(map(str, found[name]))}" for name in ("libavcodec", "libavformat"))


_TESTS_ONLY = "only tests and benchmarks need it (Debian: apt-get install ffmpeg)"
_GPU_EXTRA = "pip install 'gpupipe[gpu]'"
_WANTED = (
    _Wanted("PyAV", "av", ("av",), "pip install av: without it no file can be read or written", _av_detail),
    _Wanted("numpy", "numpy", ("numpy",), "pip install numpy"),
    _Wanted(
        "torch",
        "torch",
        ("torch",),
        "pip install torch: without it only plain transcodes on the CPU run",
        _torch_detail,
    ),
    _Wanted("triton", "triton", ("triton",), "comes with torch for CUDA; without it, torch converts, slower"),
    _Wanted("PyNvVideoCodec", "PyNvVideoCodec", ("PyNvVideoCodec",), f"{_GPU_EXTRA}: NVDEC and NVENC need it"),
    _Wanted("kornia", "kornia", ("kornia",), f"{_GPU_EXTRA}: optional"),
    _Wanted("CV-CUDA", "cvcuda", ("cvcuda-cu13", "cvcuda-cu12"), f"{_GPU_EXTRA}: optional"),
    _Wanted(
        "Torch-TensorRT",
        "torch_tensorrt",
        ("torch-tensorrt", "torch-tensorrt-rtx"),
        "pip install 'gpupipe[tensorrt]': optional, for networks",
    ),
)


def examine() -> Report:
    """Looks at everything; takes seconds, because libraries that are installed are also imported. Never raises."""
    found = driver()
    gpus = tuple(GpuReport(gpu, nvdec_table(gpu.index), nvenc_table(gpu.index)) for gpu in found.gpus)
    hint = None
    if not found.gpus:
        hint = "all runs on the CPU; install the driver (docker: --gpus all)"
    return Report(
        gpupipe=gpupipe.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        driver=found,
        driver_hint=hint,
        gpus=gpus,
        libraries=(*map(_library, _WANTED), _nvjpeg(), _ffmpeg()),
    )


def _library(wanted: _Wanted) -> Library:
    """Installed, and does it import? Packages of the GPU world are often the one but not the other."""
    version = next(filter(None, map(_version, wanted.distributions)), None)
    if version is None:
        return Library(wanted.name, None, problem="not installed", hint=wanted.hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            detail = wanted.detail(importlib.import_module(wanted.module))
    except Exception as error:  # noqa: BLE001  anything at all happens where driver libraries are missing
        return Library(wanted.name, version, problem=f"cannot be imported: {first_line(error)}", hint=wanted.hint)
    return Library(wanted.name, version, detail)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _nvjpeg() -> Library:
    """A bare C library, wherever it was found."""
    reason, hint = nvjpeg_library.missing(), f"{nvjpeg_library.HINT}: MJPEG on the GPU needs it"
    if reason is not None:
        problem = "not installed" if "not installed" in reason else reason
        return Library("nvJPEG", None, problem=problem, hint=hint)
    library = nvjpeg_library.load()
    return Library("nvJPEG", library.version, library.path)


def _ffmpeg() -> Library:
    """The ffmpeg program: gpupipe does not use it, its tests and benchmarks do."""
    path = shutil.which("ffmpeg")
    if path is None:
        return Library("ffmpeg", None, problem="not installed", hint=_TESTS_ONLY)
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        return Library("ffmpeg", None, problem=f"does not run: {error}", hint=_TESTS_ONLY)
    words = done.stdout.split()
    return Library("ffmpeg", words[2] if len(words) > 2 else "unknown")
