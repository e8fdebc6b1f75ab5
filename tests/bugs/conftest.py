"""Inputs of the reports in ../shared/corpus/bugs.md, and the two ways to run them: in this process and as a program."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import pytest
import yaml
from oracle import told

from gpupipe.config import parse_config
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import Plan, make_plan
from gpupipe.render import RenderResult, render

if TYPE_CHECKING:
    from collections.abc import Callable

LOSSLESS = {
    "codec": "h264", "encoder": "libx264", "quality": 0, "preset": "ultrafast", "options": {"x264-params": "qp=0"}
}  # fmt: skip
"""x264 at QP 0 keeps every code at every depth, so pictures can be compared by their hashes."""
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """A finished job."""

    path: Path
    plan: Plan
    journal: Journal
    result: RenderResult

    @property
    def warned(self) -> set[str]:
        """Codes of everything that was warned of, before and during the work."""
        return {n.code for n in self.plan.warnings} | set(self.journal.entries)


def config_of(**keys: object) -> dict[str, object]:
    """A config: `stages`, `range` and other keys of the top, and `video`, `audio` ... of the output."""
    output = {k: keys.pop(k) for k in ("audio", "subtitles", "metadata") if k in keys}
    video = keys.pop("video", {})
    named = isinstance(video, dict) and "codec" in video
    return {**keys, "output": {**output, "video": video if named else {**LOSSLESS, **video}}}


@pytest.fixture(scope="session")
def job() -> Callable[..., Done]:
    """`job(source, output, stages=[...], video={...}, range={...}, ...)` on the CPU, in this process."""

    def run(source: Path, output: Path, *, strict: bool = False, overwrite: bool = False, **keys: object) -> Done:
        plan = make_plan(parse_config(config_of(**keys)), probe(source), output, device="cpu", strict=strict)
        journal = Journal()
        return Done(output, plan, journal, render(plan, overwrite=overwrite, journal=journal, stop=Event()))

    return run


@dataclass(frozen=True)
class Ended:
    """A program that ended."""

    code: int
    err: str


@dataclass(frozen=True)
class Program:
    """`gpupipe run` as a program of its own; `folder` gets the config."""

    folder: Path

    def command(self, source: object, output: object, *options: str, **keys: object) -> list[str]:
        """The words to start it with."""
        config = self.folder / "job.yaml"
        config.write_text(yaml.safe_dump(config_of(**keys)))
        words = ["run", "--device", "cpu", *options, "--", config, source, output]
        return [sys.executable, "-m", "gpupipe", *map(str, words)]

    def __call__(
        self,
        source: object,
        output: object,
        *options: str,
        env: dict[str, str] | None = None,
        cwd: Path = ROOT,
        **keys: object,
    ) -> Ended:
        """Runs it to its end."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        command = self.command(source, output, *options, **keys)
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=240,
            check=False,
        )
        return Ended(done.returncode, done.stderr)

    def start(self, source: object, output: object, *options: str, **keys: object) -> subprocess.Popen[str]:
        """Starts it and returns at once."""
        return subprocess.Popen(
            self.command(source, output, *options, **keys),
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The real command line, for exit codes, signals and what is said on stderr."""
    return Program(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`made(name, *arguments)`: an input made by ffmpeg once in this session."""
    folder = tmp_path_factory.mktemp("inputs")

    def make(name: str, *arguments: object) -> Path:
        path = folder / name
        if not path.exists():
            told("ffmpeg", *arguments, path)
        return path

    return make
