"""The command line in this process."""

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
class Shown:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Shown]:
    def run(*words: object) -> Shown:
        code = execute([str(word) for word in words], Console())
        captured = capsys.readouterr()
        return Shown(code, captured.out, captured.err)

    return run


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a config and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return path

    return write
