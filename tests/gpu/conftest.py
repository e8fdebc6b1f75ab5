"""Media for GPU tests: a folder `.clips` in the repository where one was carried along, else the corpus. NVENC's double."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpupipe.codecs import capability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def clips(request: pytest.FixtureRequest) -> Path:
    """The folder of real files."""
    carried = ROOT / ".clips"
    return carried if carried.is_dir() else request.getfixturevalue("corpus") / "files"


HOST = os.environ.get("GPUPIPE_NVENC_HOST") == "1"
"""Set by tests/nvenc_shim/test_gpu_tests_on_host.py: NVENC's tests run on the CPU, with libcuda a test double too."""


def shim() -> ctypes.CDLL | None:
    """The test double of NVENC's driver library, where that is what the loader finds."""
    try:
        library = ctypes.CDLL("libnvidia-encode.so.1")
    except OSError:
        return None
    return library if hasattr(library, "nvenc_shim_copies") else None


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where runs with NVENC take place."""
    if not HOST:
        return "cuda"
    sys.path.insert(0, str(ROOT / "tests" / "codecs"))
    import nvenc_on_cpu  # noqa: PLC0415

    nvenc_on_cpu.allow(monkeypatch)
    return "cpu"


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Asks the double for faults; the GPU is then asked anew what it can do, as a new process would."""
    if shim() is None:
        pytest.skip("faults need the double: make -C tests/nvenc_shim")

    def ask(text: str) -> None:
        monkeypatch.setenv("NVENC_SHIM", text)
        capability._encoder_row.cache_clear()

    yield ask
    capability._encoder_row.cache_clear()
