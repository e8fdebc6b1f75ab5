"""Names of colour tags beside those that ffprobe prints."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from gpupipe.color import ColorSpec
from gpupipe.media.probe import probe

if TYPE_CHECKING:
    from pathlib import Path

SHOW = "stream=color_transfer,color_primaries"
FILES = (
    "hlg_hevc_1080p_cropped_aac.mp4",
    "hdr10plus_hevc_sei_mastering.mkv",
    "rot_plus90_h264_aac.mp4",
    "bt601_full_range.mp4",
)


@pytest.mark.parametrize("name", FILES)
def test_as_ffprobe_says_them(corpus: Path, name: str) -> None:
    path = corpus / "files" / name
    command = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", SHOW, "-of", "json", str(path)]
    (shown,) = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=240).stdout)["streams"]
    _, transfer, primaries = probe(path).video.format.color.words()
    assert transfer.split()[1] == shown.get("color_transfer", "unspecified")
    assert primaries.split()[1] == shown.get("color_primaries", "unspecified")


def test_everyday_names_and_numbers_without_a_meaning() -> None:
    assert ColorSpec(transfer=16).words()[1] == "transfer smpte2084 (PQ)"
    assert ColorSpec(transfer=18).words()[1] == "transfer arib-std-b67 (HLG)"
    assert ColorSpec(transfer=77, primaries=99).words()[1:] == ("transfer 77", "primaries 99")
