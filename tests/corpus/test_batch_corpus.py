"""The corpus as one batch: each file done, or failed for the reason that the manifest gives; then nothing is left to do."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpupipe.cli import execute
from gpupipe.cli.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable

SLOW = "long_6min_1080p30_aac.mp4"


@pytest.fixture
def batch(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[int, dict, str]]:
    config, names = tmp_path / "c.yaml", tmp_path / "files.txt"
    config.write_text("output: {video: {codec: h264, preset: ultrafast, quality: 40}}\nstages: [{resize: {width: 64, height: 64}}]\n")  # fmt: skip
    rows = csv.DictReader((corpus / "manifest.csv").read_text().splitlines())
    names.write_text("\n".join(str(corpus / row["file"]) for row in rows if not row["file"].endswith(SLOW)))

    def run() -> tuple[int, dict, str]:
        words = ["batch", config, "--list", names, "--output-dir", tmp_path / "out", "--name", "{stem}.mkv"]
        code = execute([*map(str, words), "--device", "cpu", "--json"], Console())
        told = capsys.readouterr()
        return code, {Path(one["source"]).name: one for one in json.loads(told.out)}, told.err

    return run


def test_each_file_is_done_or_failed_for_its_reason(corpus: Path, batch, monkeypatch) -> None:
    rows = list(csv.DictReader((corpus / "manifest.csv").read_text().splitlines()))
    code, found, err = batch()
    assert code == 1
    bad = {name for name, one in found.items() if one["outcome"] == "failed"}
    assert bad == {"zero_length.mov"}
    assert "is empty (0 bytes)" in found["zero_length.mov"]["reason"]
    assert err.rstrip().endswith(f"{len(rows) - 1} files: {len(rows) - 2} done, 1 failed")
    monkeypatch.setattr("gpupipe.batch.run.OutputFile", None)  # nothing is planned, decoded or written again:
    monkeypatch.setattr("gpupipe.cli.batch.plan_of", None)  # with 38 files that takes a second, not minutes
    code, again, err = batch()
    assert code == 1
    assert {one["outcome"] for one in again.values()} == {"done before", "failed before"}
    assert err.rstrip().endswith(f"{len(rows) - 1} files: {len(rows) - 2} done before, 1 failed before")
