"""Room on the disk is looked for before work, where the size is known: a bitrate says it."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gpupipe.config import parse_config
from gpupipe.errors import MediaError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import render

if TYPE_CHECKING:
    from pathlib import Path


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_bitrate_that_will_not_fit_is_refused_before_work(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = probe(corpus / "files" / "sar_2_1_640x360.mp4")  # five seconds
    plan = make_plan(parse_config({"output": {"video": {"bitrate": "8M"}}}), info, tmp_path / "x.mp4", device="cpu")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(MediaError, match="needed on the volume"):
        render(plan, overwrite=False, journal=Journal(), stop=threading.Event())
    assert not list(tmp_path.iterdir())
