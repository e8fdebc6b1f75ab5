"""bench/device.py's parts: programs that end in time, tests that are told of as they run, verdicts of what there is."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from patience import LIMIT, until

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench import verdicts
from bench.ended import Program, all_of
from bench.phases import PHASES, Setting

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def program(tmp_path: Path, name: str, code: str, seconds: float) -> Program:
    return Program([sys.executable, "-c", code], tmp_path, tmp_path / name, seconds, os.environ)


def test_a_program_ends_in_time_with_all_that_it_started(tmp_path: Path) -> None:
    late = program(tmp_path, "late", PARENT, LIMIT)
    programs = [
        late,
        program(tmp_path, "fails", "raise SystemExit(3)", LIMIT),
        program(tmp_path, "works", "print('so')", LIMIT),
    ]

    def look() -> None:
        if (tmp_path / "late").read_text():
            late.seconds = 0.0  # its time is up as soon as it has a child

    all_of(programs, look, every=0.3)
    assert [p.status for p in programs] == ["out of time", "failed (3)", "done"]
    assert (tmp_path / "works").read_text() == "so\n"
    status = Path(f"/proc/{int((tmp_path / 'late').read_text())}/status")

    def gone() -> bool:
        try:
            return "\nState:\tZ" in status.read_text()
        except OSError:
            return True

    until(gone)


TESTS = """
import pytest
@pytest.mark.parametrize("n", range(4))
def test_fails(n): assert n < 3, "the " + "reason"
def test_prints(): print("42 frames a second")
def test_skips(): pytest.skip("no GPU")
@pytest.fixture
def broken(): raise ValueError("set up")
def test_broken(broken): pass
"""


@pytest.mark.parametrize("side", [[], ["-n", "2"]], ids=["alone", "beside"])
def test_tests_are_told_of(tmp_path: Path, side: list[str]) -> None:
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "bench.told", "--told", str(tmp_path / "told.json")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = Program([sys.executable, *words, *side, "test_them.py"], tmp_path, tmp_path / "log", LIMIT, environment)
    all_of([ran], lambda: None)
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["whole"], told["passed"], told["failed"], told["skipped"]) == (True, 4, 2, 1)
    assert told["failures"] == ["test_them.py::test_broken", "test_them.py::test_fails[3]"]
    assert told["printed"] == {"test_them.py::test_prints": "42 frames a second"}
    text = (tmp_path / "told.txt").read_text()
    assert "the reason" in text
    assert 'ValueError("set up")' in text
    (one, *_) = verdicts.tests(told)
    assert (one.value, one.met) == (2, False)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", PHASES)
def test_every_phase_calls_what_there_is(tmp_path: Path, name: str, quick: bool) -> None:
    setting = Setting("cuda", quick, tmp_path, tmp_path, tmp_path, 2, ROOT)
    command = PHASES[name].command(setting)
    script = next((ROOT / word for word in command if word.startswith("bench/")), None)
    if script is None:  # pytest
        assert all((ROOT / word.partition("::")[0]).exists() for word in command if word.startswith("tests/"))
        return
    text = script.read_text(encoding="utf-8")
    assert all(f'"{word}"' in text for word in command if word.startswith("--"))
    assert list(PHASES[name].judge({})) is not None


def test_a_bench_that_was_ended_is_judged_by_what_it_said() -> None:
    said = {
        "decode only": [100.0, 102.0, 98.0], "+ rgbf16 to yuv420p": [99.0], "whole, to mov": [80.0],
        "nvjpeg from memory": [90.0, 92.0], "through numpy": [4.0],
    }  # fmt: skip
    found = {v.what: v for v in verdicts.matrix("h264")({"partial": said})}
    steps = found["h264: warp, overlay, dropped over decode only"]
    assert (steps.value, steps.met) == (0.99, True)
    jpeg = found["h264: nvJPEG to MOV over the slower of decode, nvJPEG"]
    assert (jpeg.value, jpeg.met) == (pytest.approx(80 / 91), False)
    assert found["h264: nvJPEG to MOV over host-pipe"].value == 20
    assert found["h264: one session over one session's decode only"].met is None


def test_a_whole_report_is_judged_alike() -> None:
    report = json.loads((ROOT / "bench/results/bench_cpu.json").read_text(encoding="utf-8"))
    rate = {row["name"]: row["rate"]["median"] for row in report["rows"] if row["rate"]}
    found = {v.what: v.value for v in verdicts.matrix("hevc")(report)}
    assert found["hevc: decode only, frames a second (3,790, HEVC 6,650 seen)"] == rate["decode"]
    slower = min(rate["decode"], rate["encoder-alone"])
    assert found["hevc: nvJPEG to MOV over the slower of decode, nvJPEG"] == pytest.approx(rate["whole"] / slower)
