"""Reports on names, disks, signals, crashes and drivers, on the real command line (bugs.md D21-D23, D25-D27).

Waiting for later issues: D21's resume from a checkpoint (here: a killed run leaves no half file, and the same command
again gives the whole result), D22's temporary folder that is checked, bounded and stated (here: next to nothing is
written there), D23's resume (here: starting again works once there is space), D27 on a machine with a GPU but without
NVENC or with an old driver (here: without a GPU; tests/gpu has the rest).
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from oracle import digest, names, pattern, payloads, pictures, shown, streams, tone
from patience import hold, until

SMALL = {"codec": "h264", "encoder": "libx264", "preset": "ultrafast", "quality": 20}
LARGE = {"codec": "h264", "encoder": "libx264", "preset": "ultrafast", "quality": 1}
SLOW = {"codec": "h264", "encoder": "libx264", "preset": "slow", "quality": 20}


def half_way(running, folder, size):
    """Waits until the unfinished output holds `size` bytes."""
    part = lambda: max((p.stat().st_size for p in folder.glob(".*.part")), default=-1)  # noqa: E731
    until(lambda: part() >= size, running)
    assert running.poll() is None, running.communicate()[1]


@pytest.fixture(scope="module")
def long_clip(made):
    """D26: so long that no machine is through with it before the signal comes; nobody waits for its end."""
    once = made(
        "d26_once.mp4",
        *pattern("1280x720", "30", 6),
        *tone(6),
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-c:a",
        "aac",
    )
    return made("d26.mp4", "-stream_loop", 50, "-i", once, "-c", "copy")


def test_d21_a_killed_run_leaves_no_half_file_and_can_be_done_again(made, program, tmp_path):
    source = made(
        "d21.mp4", *pattern("640x360", "30", 5), *tone(5), "-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac"
    )
    folder = tmp_path / "killed"
    folder.mkdir()
    running = program.start(source, folder / "o.mp4", video=SLOW)
    half_way(running, folder, 50_000)
    running.kill()
    running.communicate()
    assert not (folder / "o.mp4").exists()
    assert program(source, folder / "o.mp4", video=SLOW).code == 0
    assert program(source, tmp_path / "whole.mp4", video=SLOW).code == 0
    again, whole = folder / "o.mp4", tmp_path / "whole.mp4"
    assert pictures(again) == pictures(whole)
    assert len(pictures(again)) == 150
    assert shown(again) == shown(whole)
    assert payloads(again, "a:0") == payloads(whole, "a:0") == payloads(source, "a:0")


def test_d22_pictures_are_streamed_not_unpacked(made, program, tmp_path):
    """60 pictures of 3 MB each; the temporary folder may hold a log, no more."""
    source = made("d22.mp4", *pattern("1920x1080", "30", 2), "-c:v", "libx264", "-preset", "ultrafast")
    scratch, out = tmp_path / "tmp", tmp_path / "out"
    scratch.mkdir()
    out.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    running = subprocess.Popen(
        program.command(source, out / "o.mp4", video=SMALL, stages=[{"crop": {"width": 1920, "height": 1080}}]),
        env=environment, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    most = 0
    while running.poll() is None:
        most = max(most, held_in(scratch))
        time.sleep(0.01)
    assert running.returncode == 0, running.communicate()[1]
    running.communicate()
    assert most < 1 << 20
    assert names(scratch) == []
    assert names(out) == ["o.mp4"]


def held_in(folder):
    """Bytes of its files, of which some may go while they are counted."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


@pytest.fixture
def small_volume(tmp_path):
    """A volume of 4 MB, or None where nothing may be mounted."""
    folder = tmp_path / "volume"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield None
        return
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def d23(made):
    return made("d23.mp4", *pattern("1280x720", "30", 6), "-c:v", "libx264", "-preset", "ultrafast", "-qp", 10)


@pytest.mark.parametrize("container", ["mp4", "mkv"])
def test_d23_a_full_disk_is_a_failure(d23, program, small_volume, tmp_path, container):
    if small_volume is None:
        limited(d23, program, tmp_path / f"o.{container}")
        return
    before = digest(d23)
    ended = program(d23, small_volume / f"o.{container}", video=LARGE)
    assert ended.code == 5
    last = ended.err.splitlines()[-1]
    assert f"no space left on the volume of {small_volume}" in last
    assert "MB free" in last
    assert names(small_volume) == []
    assert digest(d23) == before
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_volume)], check=True)
    assert program(d23, small_volume / f"o.{container}", video=LARGE).code == 0
    assert len(pictures(small_volume / f"o.{container}")) == 180


def limited(source, program, output):
    """Where mounting is not allowed, a limit on the file's size fails in the same place."""
    before = digest(source)
    ended = subprocess.run(
        program.command(source, output, video=LARGE), stderr=subprocess.PIPE, text=True, check=False,
        cwd=Path(__file__).parents[2], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20)),
    )  # fmt: skip
    assert ended.returncode == 5
    assert "grew beyond" in ended.stderr.splitlines()[-1]
    assert not output.exists()
    assert digest(source) == before


def test_d23_an_older_output_survives_a_full_disk(d23, program, small_volume):
    if small_volume is None:
        pytest.skip("mounting a small volume is not allowed here")
    old = small_volume / "o.mp4"
    old.write_bytes(b"the last good one")
    ended = program(d23, old, "--overwrite", video=LARGE)
    assert ended.code == 5
    assert old.read_bytes() == b"the last good one"
    assert names(small_volume) == ["o.mp4"]


NAME = "it's 100% #1, été 漢字"


@pytest.fixture(scope="module")
def d25(made):
    return made("d25.mp4", *pattern("320x180", "30", 1), "-c:v", "libx264", "-preset", "ultrafast")


def test_d25_any_legal_path(d25, program, tmp_path):
    folder = tmp_path / "d25 o'dir [x]"
    folder.mkdir()
    source, out = folder / f"{NAME}.mp4", folder / f'%d "{NAME}" \n*?.mkv'
    shutil.copy(d25, source)
    ended = program(source, out)
    assert ended.code == 0, ended.err
    assert names(folder) == sorted([source.name, out.name])
    assert pictures(out) == pictures(d25)
    scratch = folder / "t%d 'x'"
    scratch.mkdir()
    again = program(source, out, "--overwrite", env={"TMPDIR": str(scratch)})
    assert again.code == 0, again.err


@pytest.mark.parametrize("name", ["-d25.mp4", "%03d.mp4", "a:b.mp4"])
def test_d25_relative_names_that_look_like_something_else(d25, program, tmp_path, name):
    shutil.copy(d25, tmp_path / name)
    ended = program(name, f"{name}.out.mp4", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert names(tmp_path) == sorted([name, f"{name}.out.mp4"])
    assert pictures(tmp_path / f"{name}.out.mp4") == pictures(d25)


def test_d25_the_output_is_tried_before_the_first_frame(d25, program, tmp_path):
    """A file of which no frame can be decoded is not even looked at where the output cannot be opened."""
    ended = program(d25, tmp_path / "no such folder" / f"{NAME}.mp4")
    assert ended.code == 1
    assert "no such folder" in ended.err.splitlines()[-1]
    assert "frames" not in ended.err.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("container", ["mp4", "mkv"])
def test_d26_one_signal_stops_cleanly(long_clip, program, tmp_path, number, container):
    old = tmp_path / f"o.{container}"
    old.write_bytes(b"the last good one")
    running = program.start(long_clip, old, "--overwrite", video=SLOW)
    half_way(running, tmp_path, 200_000 if container == "mp4" else 0)
    time.sleep(0 if container == "mp4" else 0.6)  # Matroska is written in clusters, the first after 5 s
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    running.send_signal(number)
    _, err = running.communicate(timeout=240)
    assert running.returncode == 130
    assert "stopped" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert names(tmp_path) == [old.name]
    assert old.read_bytes() == b"the last good one"
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_d26_a_second_signal_stops_at_once(long_clip, program, tmp_path):
    running = program.start(long_clip, tmp_path / "o.mp4", video=SLOW)
    half_way(running, tmp_path, 200_000)
    hold(running)  # so that both lie there before the first is looked at
    running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGTERM)
    running.send_signal(signal.SIGCONT)
    running.communicate(timeout=240)
    assert running.returncode == 130
    assert not (tmp_path / "o.mp4").exists()


@pytest.fixture(scope="module")
def d27(made):
    return made("d27.mp4", *pattern("640x360", "30", 1), "-c:v", "libx264", "-preset", "ultrafast")


NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def test_d27_an_encoder_that_is_not_there_is_told_before_any_work(d27, program, tmp_path):
    ended = program(d27, tmp_path / "o.mp4", env=NO_GPU, video={"codec": "h264", "encoder": "nvenc"})
    assert ended.code == 6
    (line,) = ended.err.splitlines()
    assert line.startswith("error: ")
    assert "output.video.encoder: nvenc cannot encode h264 here" in line
    assert "encoder: auto" in line
    assert names(tmp_path) == []


def test_d27_a_device_that_is_not_there_is_told_before_any_work(d27, program, tmp_path):
    command = program.command(d27, tmp_path / "o.mp4", "--device", "cuda")
    done = subprocess.run(
        command, env={**os.environ, **NO_GPU}, capture_output=True, text=True, check=False, timeout=240,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 6
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "cuda" in line
    assert "`device: cpu`" in line
    assert names(tmp_path) == []


def test_d27_the_fallback_is_never_silent(d27, program, tmp_path):
    ended = program(
        d27, tmp_path / "o.mp4", env=NO_GPU, video={"codec": "h264", "encoder": "auto", "preset": "ultrafast"}
    )
    assert ended.code == 0
    assert "libx264" in ended.err
    assert streams(tmp_path / "o.mp4", "video")[0]["codec_name"] == "h264"
    assert len(pictures(tmp_path / "o.mp4")) == 30
