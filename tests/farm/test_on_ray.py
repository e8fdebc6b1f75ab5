"""`gpupipe farm run`: the bytes of a run on this machine, whatever becomes of the nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import until

from gpupipe.cli import execute
from gpupipe.cli.console import Console

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "device: cpu\nsegments: {seconds: 1}\noutput: {video: {encoder: libx264, preset: veryfast}}\n"
LIMIT = 600
"""Seconds after which a cluster that does not end is ended; it takes about 30 on two idle cores."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, ffmpeg) -> Path:
    """A folder with a config, a source of twelve segments, and whole.mp4, made here."""
    folder = tmp_path_factory.mktemp("farm")
    (folder / "c.yaml").write_text(CONFIG)
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=192x108:r=25:d=12", "-f", "lavfi", "-i", "sine=d=12", "-c:v", "libx264",
           "-g", "25", "-preset", "ultrafast", "-c:a", "aac", folder / "s.mkv")  # fmt: skip
    assert ours("run", "--quiet", folder / "c.yaml", folder / "s.mkv", folder / "whole.mp4") == 0
    return folder


def ours(*words: object) -> int:
    return execute([str(word) for word in words], Console())


@pytest.mark.timeout(LIMIT + 60)
def test_two_nodes_one_killed_all_killed(work: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("cluster.py"), work / "c.yaml", work / "s.mkv", tmp_path],
        capture_output=True, text=True, timeout=LIMIT, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    sent, killed, lost, headless = map(json.loads, done.stdout.splitlines())  # and nothing of Ray's
    whole = (work / "whole.mp4").read_bytes()
    assert (sent["code"], sent["seats"], sent["segments"], sent["sent"]) == (0, 2, 12, 12)
    assert (tmp_path / "sent.mp4").read_bytes() == whole
    assert (killed["code"], killed["segments"], killed["sent"]) == (0, 12, 0)  # those nodes see the ledger
    assert (tmp_path / "killed.mp4").read_bytes() == whole
    assert " is lost: " in done.stderr
    assert lost["code"] == 8
    assert "the farm has no node left" in done.stderr
    assert "of 12 segments are kept, the same command goes on" in done.stderr
    assert headless["code"] == 8
    assert "the cluster's head does not answer" in done.stderr or "the cluster is gone" in done.stderr
    kept = len(list((tmp_path / "lost.mp4.gpupipe" / "segments").glob("*.seg")))
    assert 3 <= kept < 12
    (tmp_path / "c.yaml").write_text(CONFIG + "resume: keep\n")
    assert ours("run", "--quiet", tmp_path / "c.yaml", work / "s.mkv", tmp_path / "lost.mp4") == 0  # the same ledger
    assert (tmp_path / "lost.mp4").read_bytes() == whole


@pytest.mark.timeout(3 * LIMIT)
def test_here_from_a_url_and_stopped(tmp_path: Path, ffmpeg) -> None:
    """Without an address; SIGTERM while segments are rendered; the same command ends with the same bytes."""
    source = tmp_path / "long.mkv"
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=640x360:r=25:d=12", "-c:v", "libx264", "-g", "25", "-preset", "ultrafast",
           source)  # fmt: skip
    (tmp_path / "c.yaml").write_text(CONFIG.replace("veryfast", "veryslow"))
    output = tmp_path / "out.mp4"
    command = [sys.executable, "-m", "gpupipe", "farm", "run", "--cache", tmp_path / "cache", tmp_path / "c.yaml",
               f"file://{source}", output]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        until(lambda: any(tmp_path.glob("out.mp4.gpupipe/segments/0*.seg")), process)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "segments are kept, the same command goes on" in err
    assert not output.exists()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "from earlier runs" in done.stderr
    assert len(list((tmp_path / "cache").glob("*.mkv"))) == 1
    assert ours("run", "--quiet", tmp_path / "c.yaml", source, tmp_path / "whole.mp4") == 0
    assert output.read_bytes() == (tmp_path / "whole.mp4").read_bytes()


def test_without_ray(cli, job, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    shown = cli("farm", "run", job(CONFIG), tmp_path / "s.mkv", tmp_path / "o.mp4")
    assert shown.code == 6
    assert "pip install 'gpupipe[farm]'" in shown.err


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("address", ["ray://127.0.0.1:9", "127.0.0.1:9", "no-such-host.invalid:6379"])
def test_no_cluster_there(work: Path, tmp_path: Path, address: str) -> None:
    command = [sys.executable, "-m", "gpupipe", "farm", "run", "--address", address, work / "c.yaml",
               work / "s.mkv", tmp_path / "o.mp4"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment)
    assert done.returncode == 8
    assert "Ray cannot be reached" in done.stderr
    assert list(tmp_path.iterdir()) == []
