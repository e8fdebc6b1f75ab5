"""The command line in this process, as fixtures for the folders whose tests want it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gpupipe.cli import execute
from gpupipe.cli.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def run(*words: object) -> Outcome:
        code = execute([str(word) for word in words], Console())
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Writes a config and returns its path."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "c.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
