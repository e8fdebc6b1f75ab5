"""Whoever asks how far a run is gets an answer or one line, whatever was done to the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpupipe.errors import MediaError
from gpupipe.render.folder import LOG, PLAN
from gpupipe.render.status import status

if TYPE_CHECKING:
    from pathlib import Path

FRAMES = '{"segments": [{"frames": %s}]}'


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    folder = tmp_path / "out.mp4.gpupipe"
    folder.mkdir()
    (folder / PLAN).write_text(FRAMES % 25, encoding="utf-8")
    return folder


def test_whole(ledger: Path) -> None:
    assert status(ledger.with_name("out.mp4")).expected == 25


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "[]", "5", "", *(FRAMES % frames for frames in ("null", '"x"', "[]", "1e999", "NaN"))]
)
def test_plan(ledger: Path, text: str) -> None:
    (ledger / PLAN).write_text(text, encoding="utf-8")
    with pytest.raises(MediaError, match="its plan cannot be read"):
        status(ledger.with_name("out.mp4"))


def test_log(ledger: Path) -> None:
    lines = ["[" * 200_000, "[1]", "5", "{", '{"event": "failed", "why": {"a": 1}}', '{"event": ["x"]}']
    (ledger / LOG).write_text("\n".join(lines), encoding="utf-8")
    assert status(ledger.with_name("out.mp4")).failures == ("None failed: {'a': 1}",)
