"""Media for GPU tests: a folder `.clips` in the repository where one was carried along, else the corpus. NVENC's double."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nvenc_place import HOST, shim

from gpupipe.codecs import capability

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def clips(request: pytest.FixtureRequest) -> Path:
    """The folder of real files."""
    carried = ROOT / ".clips"
    return carried if carried.is_dir() else request.getfixturevalue("corpus") / "files"


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
