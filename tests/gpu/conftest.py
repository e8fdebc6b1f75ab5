"""Media for GPU tests: a folder `.clips` in the repository where one was carried along, else the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def clips(request: pytest.FixtureRequest) -> Path:
    """The folder of real files."""
    carried = ROOT / ".clips"
    return carried if carried.is_dir() else request.getfixturevalue("corpus") / "files"
