"""Media and weights for GPU tests, carried along in the repository or taken from where they are; NVENC's double.

`.clips` stands for the corpus' files, `.faces` for its faces, `.weights` for what `gpupipe models fetch` makes.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nvenc_place import HOST, shim

from gpupipe.codecs import capability
from gpupipe.models import folder
from gpupipe.models.card import find
from gpupipe.models.fetch import fetch, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def clips(request: pytest.FixtureRequest) -> Path:
    """The folder of real files."""
    carried = ROOT / ".clips"
    return carried if carried.is_dir() else request.getfixturevalue("corpus") / "files"


@pytest.fixture(scope="session")
def face(request: pytest.FixtureRequest) -> Path:
    """A still with a face."""
    carried = ROOT / ".faces" / "astronaut_512.png"
    return carried if carried.exists() else request.getfixturevalue("corpus") / "faces" / carried.name


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where weights lie, and engines built by these tests."""
    made = tmp_path_factory.mktemp("xdg") / "gpupipe"
    if (carried := ROOT / ".weights").is_dir():
        shutil.copytree(carried, made / "models")
    return made


@pytest.fixture
def fetched(cache: Path) -> Callable[..., Path]:
    """Fetches cards by their names and makes this process look where they are; skips what was not carried along."""

    def get(*names: str) -> Path:
        folder.choose(cache)
        for name in names:
            if (ROOT / ".weights").is_dir() and not place(find(name), folder.weights()).is_dir():
                pytest.skip(f"the weights of {name} were not carried along")
            fetch(find(name), folder.weights(), allowed={name})
        return cache

    return get


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
