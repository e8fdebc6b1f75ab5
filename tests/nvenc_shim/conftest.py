"""The shim, built once, and the real PyNvVideoCodec, which runs over it without a GPU."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PINNED = "pynvvideocodec==2.2.4"


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with `shim`, `fake` and `drive`: made here, or carried along where there is no compiler."""
    if shutil.which("gcc") is None or not Path("/usr/include/ffnvcodec/nvEncodeAPI.h").exists():
        if (HERE / "build" / "drive").exists():
            return HERE / "build"
        pytest.skip("needs gcc and Debian's libffmpeg-nvenc-dev, libx264-dev, libx265-dev")
    folder = tmp_path_factory.mktemp("nvenc_shim")
    subprocess.run(["make", "-s", "-C", HERE, "harness", f"BUILD={folder}"], check=True, timeout=240)
    return folder


@pytest.fixture(scope="session")
def wheel(request: pytest.FixtureRequest) -> Path:
    """The folder to import PyNvVideoCodec from: the installed one's, else that of a wheel from pip, kept between runs."""
    found = importlib.util.find_spec("PyNvVideoCodec")  # looks, and imports nothing
    if found is not None and found.origin is not None:
        return Path(found.origin).parents[1]
    kept = request.config.cache.mkdir("wheels") / f"{PINNED}-cp3{sys.version_info.minor}"
    if not kept.is_dir():
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            _unpack(Path(scratch))
            with contextlib.suppress(OSError):  # another worker was first
                (Path(scratch) / "site").rename(kept)
    return kept


def _unpack(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder, PINNED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"pip has no {PINNED} for this machine: {done.stderr[-200:]}")
    with zipfile.ZipFile(wheels[0]) as archive:
        wanted = [n for n in archive.namelist() if n.lower().startswith("pynvvideocodec") and ".data/" not in n]
        archive.extractall(folder / "site", wanted)


class Host(NamedTuple):
    """Runs Python with the real wheel over the shim, and the CPU in place of a GPU."""

    build: Path
    wheel: Path

    def environment(self, faults: str = "") -> dict[str, str]:
        libraries = f"{self.build / 'shim'}:{self.build / 'fake'}"
        paths = f"{self.wheel}:{ROOT}"
        return {**os.environ, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": paths, "NVENC_SHIM": faults}

    def run(
        self, *command: object, faults: str = "", timeout: int = 240, stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *map(str, command)], input=stdin, capture_output=True, text=True, errors="replace",
            env={**self.environment(faults), **variables}, cwd=ROOT, check=False, timeout=timeout,
        )  # fmt: skip


@pytest.fixture(scope="session")
def host(build: Path, wheel: Path) -> Host:
    return Host(build, wheel)
