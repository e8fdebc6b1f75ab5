"""`gpupipe batch`: what is done, what is left, and what a second run does."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import LIMIT, until

from gpupipe.batch.book import NAME
from gpupipe.batch.run import Room
from gpupipe.errors import StoppedError
from gpupipe.metrics import Exporter
from gpupipe.render.folder import locked
from tests.cli.conftest import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.metrics.totals import Totals

CONFIG = "output: {video: {codec: h264, preset: ultrafast, quality: 30}}\nstages: [{overlay: {image: logo.png}}]\n"


@pytest.fixture
def folder(tmp_path: Path, ffmpeg, monkeypatch: pytest.MonkeyPatch) -> Path:
    for n, name in enumerate(("a", "b", "c")):
        ffmpeg("-f", "lavfi", "-i", f"testsrc2=s=128x72:r=25:d={n + 1}", "-c:v", "libx264", tmp_path / f"{name}.mkv")
    (tmp_path / "bad.mkv").write_bytes((tmp_path / "a.mkv").read_bytes()[:200])
    shutil.copy(Path(__file__).parents[2] / "configs/assets/logo.png", tmp_path / "logo.png")
    (tmp_path / "c.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def outcomes(text: str) -> dict[str, str]:
    return {Path(one["source"]).name: one["outcome"] for one in json.loads(text)}


def stamps(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "out").glob("*.mp4")}


def test_the_rest_goes_on_and_a_second_run_does_nothing(folder: Path, cli, ffprobe_frames) -> None:
    words = ("batch", "c.yaml", "*.mkv", "gone.mkv", "--output-dir", "out", "--device", "cpu", "--json")
    first = cli(*words)
    assert first.code == 1
    expected = {"a.mkv": "done", "b.mkv": "done", "c.mkv": "done", "bad.mkv": "failed", "gone.mkv": "failed"}
    assert outcomes(first.out) == expected
    assert first.err.rstrip().endswith("5 files: 3 done, 2 failed")
    assert "gone.mkv" in first.err
    assert [ffprobe_frames(folder / "out" / f"{n}.mp4") for n in "abc"] == [25, 50, 75]
    before = stamps(folder)
    again = cli(*words)
    assert again.code == 1
    assert outcomes(again.out) == {"a.mkv": "done before", "b.mkv": "done before", "c.mkv": "done before",
                                   "bad.mkv": "failed before", "gone.mkv": "failed"}  # fmt: skip
    assert stamps(folder) == before
    assert outcomes(cli(*words, "--retry").out)["bad.mkv"] == "failed"


def test_what_changed_is_done_anew_and_only_when_told(folder: Path, cli) -> None:
    words = ("batch", "c.yaml", "a.mkv", "b.mkv", "--output-dir", "out", "--device", "cpu", "--json")
    assert cli(*words).code == 0
    before = stamps(folder)
    os.utime("a.mkv")
    changed = cli(*words)
    assert outcomes(changed.out) == {"a.mkv": "failed", "b.mkv": "done before"}
    assert "out/a.mp4: is of another config, version or state of the source (--overwrite makes it anew)" in changed.err
    assert stamps(folder) == before
    assert outcomes(cli(*words, "--overwrite").out) == {"a.mkv": "done", "b.mkv": "done before"}
    shutil.copy(folder / "logo.png", folder / "other.png")
    (folder / "c.yaml").write_text(CONFIG.replace("logo", "other"))
    assert outcomes(cli(*words, "--overwrite").out) == {"a.mkv": "done", "b.mkv": "done"}
    (folder / "other.png").write_bytes((folder / "other.png").read_bytes() + b"more")  # read too, and so it counts
    assert outcomes(cli(*words).out) == {"a.mkv": "failed", "b.mkv": "failed"}
    (folder / "out/a.mp4").unlink()
    assert outcomes(cli(*words, "--overwrite").out) == {"a.mkv": "done", "b.mkv": "done"}


def test_a_file_of_the_users_stays(folder: Path, cli) -> None:
    (folder / "out").mkdir()
    (folder / "out/a.mp4").write_text("mine")
    done = cli("batch", "c.yaml", "a.mkv", "b.mkv", "--output-dir", "out", "--device", "cpu", "--json")
    assert (done.code, outcomes(done.out)) == (1, {"a.mkv": "failed", "b.mkv": "done"})
    assert "out/a.mp4: the output exists" in done.err
    assert (folder / "out/a.mp4").read_text() == "mine"


def test_what_the_plan_knows_is_lost_is_told_of_each_file(folder: Path, ffmpeg, cli) -> None:
    ffmpeg("-i", folder / "a.mkv", "-frames:v", 1, "-pix_fmt", "yuva420p", "-c:v", "ffv1", folder / "alpha.mkv")
    words = ("batch", "c.yaml", "alpha.mkv", "--output-dir", "out", "--device", "cpu", "--json")
    done = cli(*words)
    lost = "alpha dropped: libx264 does not carry it"
    assert json.loads(done.out)[0]["warnings"][0].startswith(lost)
    assert f"  warning: {lost}" in done.err
    again = cli(*words, "--strict")
    (told,) = json.loads(again.out)
    assert (again.code, told["outcome"], told["warnings"]) == (4, "done before", [])
    assert told["warning_count"] == len(json.loads(done.out)[0]["warnings"])


def test_side_by_side_gives_the_same_bytes_as_one_by_one(folder: Path, cli) -> None:
    common = ("batch", "c.yaml", "a.mkv", "b.mkv", "c.mkv", "--device", "cpu", "--quiet")
    assert cli(*common, "--output-dir", "one").code == 0
    assert cli(*common, "--output-dir", "three", "--jobs", 3).code == 0
    for name in ("a.mp4", "b.mp4", "c.mp4"):
        assert (folder / "one" / name).read_bytes() == (folder / "three" / name).read_bytes()
    assert cli("run", "c.yaml", "a.mkv", "alone.mp4", "--device", "cpu", "--quiet").code == 0
    assert (folder / "alone.mp4").read_bytes() == (folder / "one/a.mp4").read_bytes()


def test_a_record_that_was_cut_off_is_read_as_far_as_it_goes(folder: Path, cli) -> None:
    words = ("batch", "c.yaml", "a.mkv", "b.mkv", "--output-dir", "out", "--device", "cpu", "--json")
    assert cli(*words).code == 0
    book = folder / "out" / NAME
    book.write_bytes(book.read_bytes()[:-20])
    (folder / "out/b.mp4").unlink()
    assert outcomes(cli(*words).out) == {"a.mkv": "done before", "b.mkv": "done"}
    assert outcomes(cli(*words).out) == {"a.mkv": "done before", "b.mkv": "done before"}


def test_ctrl_c_keeps_what_is_done(folder: Path, ffmpeg, cli) -> None:
    """In the midst of a file that takes minutes: no machine is so fast, or so slow, that the signal finds another."""
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=1280x720:r=25:d=2", "-c:v", "libx264", "-preset", "ultrafast", "once.mp4")
    ffmpeg("-stream_loop", 200, "-i", "once.mp4", "-c", "copy", "d.mkv")
    words = ["batch", "c.yaml", "a.mkv", "d.mkv", "b.mkv", "--output-dir", "out", "--device", "cpu"]
    running = subprocess.Popen([*PROGRAM, *words], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: list((folder / "out").glob(".d.mp4*")), running)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=240)
    finally:
        running.kill()
    assert running.returncode == 130
    assert "the same command goes on" in err
    assert "3 files: 1 done, 1 stopped, 1 not begun" in err
    assert [path.name for path in (folder / "out").glob("*.mp4")] == ["a.mp4"]
    assert outcomes(cli(*words[:3], *words[4:], "--json").out) == {"a.mkv": "done before", "b.mkv": "done"}


def test_a_bug_in_one_file_is_told_and_the_rest_goes_on(folder: Path, cli, monkeypatch) -> None:
    from gpupipe.batch import run  # noqa: PLC0415

    render = run.render

    def broken(plan: object, **words: object) -> object:
        if str(plan.output).endswith("a.mp4"):
            raise ZeroDivisionError("boom")
        return render(plan, **words)

    monkeypatch.setattr(run, "render", broken)
    done = cli("batch", "c.yaml", "a.mkv", "b.mkv", "--output-dir", "out", "--device", "cpu", "--json")
    assert (done.code, outcomes(done.out)) == (1, {"a.mkv": "failed", "b.mkv": "done"})
    assert "a bug in gpupipe: ZeroDivisionError: boom" in done.err


def test_room_is_shared_and_waiting_ends_with_a_stop() -> None:
    import threading  # noqa: PLC0415

    room, stop, taken = Room(2), threading.Event(), []

    def other() -> None:
        try:
            with room.taken(2, stop):
                taken.append(True)
        except StoppedError:
            taken.append(False)

    for stopped in (False, True):
        with room.taken(1, stop):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(0.3)
            assert thread.is_alive()
            if stopped:
                stop.set()
                thread.join(LIMIT)
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert taken == [True, False]


@pytest.fixture
def ffprobe_frames(ffprobe: Callable[..., dict]) -> Callable[[Path], int]:
    def count(path: Path) -> int:
        shown = ffprobe(path, "-count_frames", "-show_entries", "stream=nb_read_frames", "-select_streams", "v:0")
        return int(shown["streams"][0]["nb_read_frames"])

    return count


def test_one_exporter_counts_all_files(folder: Path, cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Totals] = []
    close = Exporter.close
    monkeypatch.setattr(Exporter, "close", lambda self: (seen.append(self._past.copy()), close(self)))
    done = cli("batch", "c.yaml", "a.mkv", "b.mkv", "bad.mkv", "--output-dir", "out", "--device", "cpu",
               "--metrics-port", "127.0.0.1:0")  # fmt: skip
    assert re.search(r"^metrics  http://127\.0\.0\.1:\d+/metrics$", done.err, re.MULTILINE)
    (totals,) = seen
    assert (totals.frames, totals.ended) == (75, {"done": 2})


def test_a_file_that_another_run_is_at_work_on_is_busy_and_tried_again(folder: Path, cli) -> None:
    words = ("batch", "c.yaml", "a.mkv", "b.mkv", "--output-dir", "out", "--device", "cpu", "--json")
    (folder / "c.yaml").write_text(CONFIG + "resume: keep\nsegments: {seconds: 1}\n")
    (folder / "out").mkdir()
    held = locked(folder / "out" / "a.mp4.gpupipe", folder / "out" / "a.mp4", shared=False)
    busy = cli(*words)
    assert (busy.code, outcomes(busy.out)) == (1, {"a.mkv": "busy", "b.mkv": "done"})
    assert "busy     a.mkv: " in busy.err
    assert "another run is at work on it" in busy.err
    assert busy.err.rstrip().endswith("2 files: 1 done, 1 busy")
    assert [json.loads(line)["source"] for line in (folder / "out" / NAME).read_text().splitlines()] == ["b.mkv"]
    os.close(held)
    again = cli(*words)
    assert (again.code, outcomes(again.out)) == (0, {"a.mkv": "done", "b.mkv": "done before"})


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_something_else_in_the_place_of_the_record(folder: Path, cli, kind: str) -> None:
    (folder / "out").mkdir()
    (folder / "out" / NAME).mkdir() if kind == "folder" else os.mkfifo(folder / "out" / NAME)
    done = cli("batch", "c.yaml", "a.mkv", "--output-dir", "out", "--device", "cpu")
    assert done.code == 1
    assert (
        done.err
        == f"error: out/{NAME}: it is no file, where a batch keeps its record (move it away, then start again)\n"
    )
