"""What a queue can decide by: each kind of failure has a code of its own, and the README names it."""

from __future__ import annotations

import re
from pathlib import Path

from gpupipe import errors

ROOT = Path(__file__).resolve().parents[2]


def test_a_bad_source(cli, job, tmp_path) -> None:
    config = job("device: cpu\n")
    (tmp_path / "noise.mov").write_bytes(bytes(range(256)) * 40)
    for name in ("missing.mov", "noise.mov"):
        assert cli("run", config, tmp_path / name, tmp_path / "o.mp4").code == 1


def test_no_capability(cli, job, clip, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cli("run", "--device", "cuda:63", job(""), clip, tmp_path / "o.mp4").code == 6
    config = job("device: cpu\noutput: {video: {encoder: nvenc}}\n")
    assert cli("run", config, clip, tmp_path / "o.mp4").code == 6


def test_what_the_user_can_mend_is_1(cli, job, clip, tmp_path) -> None:
    assert cli("run", job("devise: cpu\n"), clip, tmp_path / "o.mp4").code == 1
    assert cli("run", job("device: cpu\n"), clip, tmp_path / "none" / "o.mp4").code == 1


def test_what_libraries_say_of_memory() -> None:
    for words in ("CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "nvJPEG failed: ALLOCATOR_FAILURE in x"):
        assert errors.device_failure(words).exit_code == 7, words
    assert errors.device_failure("CUDA error: an illegal memory access was encountered").exit_code == 5


def test_the_readme_names_every_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    _, _, table = (ROOT / "README.md").read_text().partition("| code | meaning |\n")
    told = {int(code) for code in re.findall(r"^\| (\d+) \| ", table.partition("\n\n")[0], re.MULTILINE)}
    assert {kind.exit_code for kind in kinds} | {0, 2, 3, 4} == told
