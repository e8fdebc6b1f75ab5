"""`plan --save`, `segment`, `join`: other processes make the same bytes as one run."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from gpupipe.journal import Journal
from gpupipe.media.output import OutputFile
from gpupipe.plan.stored import read_plan
from gpupipe.render.ledger import Ledger
from gpupipe.render.pieced import segments
from gpupipe.render.pieces import BadPieceError, PieceWriter, take_in
from gpupipe.render.progress import Meter
from gpupipe.render.watch import Watch

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = "device: cpu\nsegments: {seconds: 1}\noutput: {video: {encoder: libx264, preset: veryfast}}\n"
PROGRAM = [sys.executable, "-m", "gpupipe"]


@pytest.fixture(scope="module")
def source(gop_clip) -> Path:
    return gop_clip(6, sound=True)


@pytest.fixture
def saved(cli, tmp_path: Path, source: Path) -> tuple[Path, Path]:
    """(plan, output)."""
    (tmp_path / "c.yaml").write_text(CONFIG)
    plan, output = tmp_path / "plan.json", tmp_path / "out.mp4"
    shown = cli("plan", "--quiet", "--save", plan, tmp_path / "c.yaml", source, output)
    assert shown.code == 0
    assert "resume   finished segments are kept in out.mp4.gpupipe" in shown.out
    return plan, output


def whole(cli, tmp_path: Path, source: Path) -> bytes:
    assert cli("run", "--quiet", tmp_path / "c.yaml", source, tmp_path / "whole.mp4").code == 0
    return (tmp_path / "whole.mp4").read_bytes()


def test_processes_side_by_side(cli, saved, tmp_path, source, monkeypatch) -> None:
    plan, output = saved
    other = tmp_path / "elsewhere"
    other.mkdir()
    started = [
        subprocess.Popen([*PROGRAM, "segment", "--quiet", plan, *numbers], cwd=other)
        for numbers in (("0", "1", "2"), ("3", "4"), ("5", "0"))
    ]
    assert [process.wait(timeout=240) for process in started] == [0, 0, 0]
    sealed: list[str] = []
    monkeypatch.setattr(PieceWriter, "seal", lambda *_: sealed.append("again"))
    shown = cli("segment", "--json", plan, 5, 4)
    assert (shown.code, sealed) == (0, [])  # they are there
    assert {n: piece["frames"] for n, piece in json.loads(shown.out).items()} == {"4": 25, "5": 25}
    assert cli("join", plan).code == 0
    assert output.read_bytes() == whole(cli, tmp_path, source)
    assert not (tmp_path / "out.mp4.gpupipe").exists()
    shown = cli("join", plan)
    assert shown.code == 0
    assert "it was joined before" in shown.err
    output.write_bytes(b"another")
    assert cli("join", plan).code == 1


def test_a_segment_made_elsewhere(saved, tmp_path, source, cli) -> None:
    """As a farm does it: rendered into a ledger of its own, carried over as bytes, taken in when it is whole."""
    plan = read_plan(saved[0])
    meter = Meter(plan, lambda _: None, Watch())
    segments(plan, [2], journal=Journal(), stop=threading.Event(), meter=meter, folder=tmp_path / "away")
    data = (tmp_path / "away" / "segments" / "000002.seg").read_bytes()
    with Ledger(plan) as ledger:
        ledger.begin()
        for wrong in (data[:-1], data[:500] + b"x" + data[501:], b""):
            with pytest.raises(BadPieceError):
                take_in(ledger.path(2), [wrong], ledger.digest)
        assert ledger.missing() == [0, 1, 2, 3, 4, 5]
        ledger.finished(2, take_in(ledger.path(2), [data[:700], data[700:]], ledger.digest))
        assert ledger.pieces[2].frames == 25
        assert ledger.missing() == [0, 1, 3, 4, 5]
    assert cli("segment", "--quiet", saved[1].with_name("out.mp4.gpupipe") / "plan.json", 0, 1, 3, 4, 5).code == 0
    assert cli("join", "--quiet", saved[0]).code == 0
    assert saved[1].read_bytes() == whole(cli, tmp_path, source)


def test_a_count_beyond_the_last_segment(cli, saved) -> None:
    plan, _ = saved
    last = len(read_plan(plan).segments) - 1
    assert f"done: segment {last}: " in cli("segment", plan, last, "--count", 10**12).err
    assert f"segments 0 to {last}" in cli("segment", plan, 10**30).err


def test_a_join_without_all_segments(cli, saved) -> None:
    plan, output = saved
    assert cli("segment", plan, 0, 2).code == 0
    shown = cli("join", plan)
    assert shown.code == 1
    assert "4 of 6 segments are missing: 1, 3, 4, 5 (render them by `gpupipe segment PLAN N`" in shown.err
    assert not output.exists()
    assert cli("segment", plan, 6).code == 1
    assert cli("segment", plan, -1).code == 2


def test_a_join_that_was_killed_before_it_could_say_so(cli, saved, monkeypatch, tmp_path, source) -> None:
    """Between the rename and the stamp: the same command finds its own output."""
    plan, output = saved
    assert cli("segment", "--quiet", plan, *range(6)).code == 0
    commit = OutputFile.commit

    def killed(self: OutputFile) -> None:
        commit(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OutputFile, "commit", killed)
        assert cli("join", plan).code == 130
    assert output.exists()
    assert cli("join", plan).code == 0
    assert output.read_bytes() == whole(cli, tmp_path, source)
    assert "it was joined before" in cli("join", plan).err


def test_a_source_that_changed(cli, tmp_path, source) -> None:
    mine = tmp_path / "mine.mkv"
    mine.write_bytes(source.read_bytes())
    (tmp_path / "c.yaml").write_text(CONFIG)
    plan = tmp_path / "plan.json"
    assert cli("plan", "--quiet", "--save", plan, tmp_path / "c.yaml", mine, tmp_path / "out.mp4").code == 0
    assert cli("segment", plan, 0).code == 0
    data = bytearray(mine.read_bytes())
    data[-1] ^= 1
    mine.write_bytes(data)
    told = cli("segment", plan, 1).err
    assert "mine.mkv.modified was " in told
    assert "`gpupipe clean` throws them away" in told  # `segment` has no --restart
    assert "same command" not in told  # it would end the same way
    mine.unlink()
    assert cli("segment", plan, 1).code == 1


def test_warnings_of_segments_reach_the_join(cli, tmp_path, ffmpeg) -> None:
    """Damage that one process met makes `join --strict` end with 4."""
    good, bad = tmp_path / "good.mkv", tmp_path / "bad.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=192x108:r=25:d=3", "-c:v", "mjpeg", "-q:v", "3", good)
    ffmpeg("-i", good, "-c", "copy", "-bsf:v", "noise=amount=40*eq(n\\,30)", bad)
    (tmp_path / "c.yaml").write_text(CONFIG)
    plan = tmp_path / "plan.json"
    assert cli("plan", "--quiet", "--save", plan, tmp_path / "c.yaml", bad, tmp_path / "out.mp4").code == 0
    shown = cli("segment", plan, 0, 1, 2)
    assert shown.code == 0
    assert "warning: damaged" in shown.err
    shown = cli("join", "--strict", plan)
    assert shown.code == 4
    assert "warning: damaged" in shown.err
