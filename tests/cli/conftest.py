"""The command line in this process (`cli`) and as a program of its own (`program`)."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from command_line import Outcome, cli, job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["cli", "job"]
PROGRAM = [sys.executable, "-m", "gpupipe"]


@pytest.fixture(scope="session")
def program() -> Callable[..., Outcome]:
    def run(*arguments: object, **options: object) -> Outcome:
        command = [*PROGRAM, *(a if isinstance(a, bytes) else str(a) for a in arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=240, check=False, **options
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def refused(cli, tmp_path: Path) -> Callable[..., str]:
    """Runs a command line that must fail, and returns the one line of its error.

    Nothing may be left: neither under the final name nor a temporary beside it, and what was there stays as it was.
    """

    def run(*arguments: object, verb: str = "run") -> str:
        before = contents(tmp_path)
        options = ["--quiet", "--device", "cpu"]
        shown = cli(verb, *options, *([] if "--" in arguments else ["--"]), *arguments)
        assert shown.code in (1, 5, 6)  # the job, the volume or GPU, no capability: see test_exit_codes
        assert not shown.out
        assert shown.err.startswith("error: ")
        assert shown.err.count("\n") == 1
        for word in ("Traceback", "a bug in gpupipe", "Errno", ".part", "avcodec_"):
            assert word not in shown.err
        assert contents(tmp_path) == before
        return shown.err.removeprefix("error: ").rstrip("\n")

    return run


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Every name in a folder, with what changes when a file is touched."""
    return {path.name: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.iterdir()}


@pytest.fixture(scope="session")
def clip(sample_clip) -> Path:
    """Two seconds of the sample, small."""
    return sample_clip(2)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("output: {video: {codec: h264, encoder: libx264, preset: ultrafast}}\n")
    return path
