"""The corpus checker, which is not ours, on every real file: the program is run as its users run it.

`make corpus` runs the checker itself over all files. Here x264 may hurry, and the six-minute 1080p file is left to it, since that one takes
as long as all other tests together, and the row that the checker cannot read is mended: it writes the frame counts of
two video streams as `325+390` and then takes that for a number; the first is that of the main video, which it looks at.
"""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

LONG = "long_6min_1080p30_aac.mp4"
FOLDER = Path(__file__).resolve().parents[3] / "shared" / "corpus"


def rows() -> list[dict[str, str]]:
    """The manifest; empty where it is missing, which `test_the_corpus_is_there` turns into a failure."""
    manifest = FOLDER / "manifest.csv"
    if not manifest.is_file():
        return []
    found = list(csv.DictReader(manifest.read_text(encoding="utf-8").splitlines()))
    return [row for row in found if LONG not in row["file"]]


@pytest.fixture(scope="module")
def checker(corpus: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("corpus_check", corpus / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.CONFIG.count("quality: 10") == 1
    module.CONFIG = module.CONFIG.replace("quality: 10", "quality: 10, preset: superfast")  # the encoder is not tested
    return module


def test_the_corpus_is_there(corpus: Path) -> None:
    assert (corpus / "manifest.csv").is_file()
    assert len(rows()) >= 38


@pytest.mark.parametrize("row", rows(), ids=lambda row: Path(row["file"]).stem)
def test_a_file_passes_the_checker(checker: ModuleType, corpus: Path, tmp_path: Path, row: dict[str, str]) -> None:
    mended = {**row, "nb_frames_counted": row["nb_frames_counted"].split("+")[0]}
    command = f"{sys.executable} -m gpupipe run"
    assert checker.check(mended, corpus, command, "cpu", tmp_path) == []
