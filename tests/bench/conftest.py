"""A small clip, a config on it, and a bench of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from bench_clips import MJPEG, SMALL, STAGES

from gpupipe.bench import Report, Request, bench
from gpupipe.bench.clip import make_clip
from gpupipe.bench.subject import Subject, open_subject
from gpupipe.config import parse_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def small_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "small.mp4"
    make_clip(path, SMALL, 90)
    return path


@pytest.fixture
def subject(small_clip: Path, tmp_path: Path) -> Callable[..., Subject]:
    def make(frames: int | None = 40, **config: object) -> Subject:
        settings = parse_config({"stages": STAGES, "output": MJPEG, **config})
        return open_subject(settings, small_clip, tmp_path, device="cpu", frames=frames)

    return make


@pytest.fixture(scope="session")
def report(small_clip: Path) -> Report:
    """Of the small clip on the CPU."""
    config = parse_config({"stages": STAGES, "output": MJPEG})
    request = Request("gpupipe bench x.yaml", config, source=small_clip, device="cpu", frames=40, runs=2)
    return bench(request, say=lambda _: None, stop=threading.Event())
