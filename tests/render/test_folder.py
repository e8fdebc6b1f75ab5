"""A ledger's folder: nothing in it can hang a run or get lost, two runs never have it, and it goes when it is told to."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import LIMIT

from gpupipe.cli import execute
from gpupipe.cli.console import Console
from gpupipe.errors import BusyError, MediaError
from gpupipe.plan.stored import read_plan
from gpupipe.render import folder as folders
from gpupipe.render.folder import FINISHED, LOCK, LOG, PLAN, SEGMENTS, locked, take_away
from gpupipe.render.kept import telling
from gpupipe.render.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = "{device: cpu, resume: keep, segments: {seconds: 1}, output: {video: {encoder: libx264, preset: ultrafast}}}"
FIRST = f"{SEGMENTS}/000001.seg"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, ffmpeg) -> Path:
    """A folder with a config, a source, and the ledger of a run that has made all of its three segments."""
    place = tmp_path_factory.mktemp("folder")
    ffmpeg("-f", "lavfi", "-i", "testsrc2=s=96x64:r=5:d=3", "-c:v", "libx264", "-g", "5", "-bf", "0", place / "s.mkv")
    (place / "c.yaml").write_text(CONFIG)
    plan = [str(place / name) for name in ("c.yaml", "s.mkv", "o.mp4")]
    assert execute(["plan", "--quiet", "--save", str(place / "plan"), *plan], Console()) == 0
    assert execute(["segment", "--quiet", str(place / "plan"), "0", "1", "2"], Console()) == 0
    return place


@pytest.fixture
def place(stopped: Path) -> Path:
    """The same again, at the same path."""
    kept = stopped / "o.mp4.gpupipe"
    if not (stopped / "kept").exists():
        shutil.copytree(kept, stopped / "kept")
    if kept.is_dir():
        shutil.rmtree(kept)
    kept.unlink(missing_ok=True)
    shutil.copytree(stopped / "kept", kept)
    (stopped / "o.mp4").unlink(missing_ok=True)
    return stopped


@pytest.fixture
def says(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*words: object) -> tuple[int, str]:
        code = execute([str(word) for word in words], Console())
        told = capsys.readouterr()
        return code, told.out + told.err

    return run


def run_words(place: Path) -> list[object]:
    return ["run", "--quiet", place / "c.yaml", place / "s.mkv", place / "o.mp4"]


def contents(place: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_ino for path in (place / "o.mp4.gpupipe").rglob("*")}


def make(kind: str, path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
        (path / "mine").touch()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.touch()


PLACES = [(kind, name) for kind in ("folder", "pipe") for name in (PLAN, LOG, LOCK, FINISHED, FIRST, ".plan.json.part")]


@pytest.mark.parametrize(
    ("kind", "name"), [*PLACES, ("file", SEGMENTS), ("pipe", SEGMENTS), ("file", ""), ("pipe", "")]
)
def test_something_else_in_the_place_of_a_file(place: Path, says, kind: str, name: str) -> None:
    """Every verb that opens a ledger says which it is, at once, and takes nothing away."""
    path = place / "o.mp4.gpupipe" / name
    make(kind, path)
    before = contents(place)
    line = f"error: {path}: it is a {kind}, where a run keeps a "
    restart = [*run_words(place), "--restart"]
    looks = ["status", place / "o.mp4"]
    for words in (run_words(place), restart, looks, ["segment", place / "plan", "1"], ["join", place / "plan"]):
        code, told = says(*words)
        assert (code, told.count("\n")) == (1, 1)
        assert told.startswith(line)
        assert contents(place) == before


@pytest.fixture
def nobody() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs gpupipe as somebody whom rights bind."""
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [*prefix, sys.executable, "-m", "gpupipe", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)

    return run


def test_what_may_not_be_read_is_named_and_stays(place: Path, nobody) -> None:
    mine = Path(tempfile.mkdtemp(prefix="gpupipe-rights-"))  # pytest's own folders are its user's only
    shutil.copytree(place, mine, dirs_exist_ok=True)
    for path in (mine, *mine.rglob("*")):
        path.chmod(0o777)
    for name, what in ((PLAN, "read"), (FIRST, "read"), (LOG, "read and write"), (LOCK, "read and write")):
        (mine / "o.mp4.gpupipe" / name).chmod(0)
        done = nobody(*run_words(mine))
        assert done.returncode == 5
        assert done.stderr == f"error: {mine}/o.mp4.gpupipe/{name}: no permission to {what} it (check owner and mode)\n"
        (mine / "o.mp4.gpupipe" / name).chmod(0o777)
    shutil.rmtree(mine)


def test_a_lost_plan_of_another_run_costs_no_work(place: Path, says) -> None:
    (place / "o.mp4.gpupipe" / PLAN).unlink()
    other = place / "other.yaml"
    other.write_text(CONFIG.replace("ultrafast", "veryfast"))
    before = contents(place)
    code, told = says("run", "--quiet", other, place / "s.mkv", place / "o.mp4")
    assert code == 1
    assert "3 segments of another run are kept: plan.json is lost or damaged, so nobody knows what" in told
    assert contents(place) == before
    assert says(*run_words(place))[0] == 0  # the run that they are of


def test_a_lock_that_was_taken_away_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run ends, and takes the folder away, between another's opening of the lock file and its locking."""
    folder, output = tmp_path / "o.mp4.gpupipe", tmp_path / "o.mp4"
    first = locked(folder, output, shared=False)
    (folder / SEGMENTS).mkdir()
    flock, ended = fcntl.flock, []

    def ends_first(file: int, operation: int) -> None:
        if not ended:
            ended.append(first)
            take_away(folder)
            os.close(first)
            assert not folder.exists()
        flock(file, operation)

    monkeypatch.setattr(folders.fcntl, "flock", ends_first)
    second = locked(folder, output, shared=False)
    assert os.path.samestat(os.fstat(second), (folder / LOCK).stat())
    monkeypatch.setattr(folders, "_RESTS", ())
    for shared in (True, False):
        with pytest.raises(BusyError, match="another run is at work on it"):
            locked(folder, output, shared=shared)
    os.close(second)


def test_never_two_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that take the folder and take it away; whoever has it is alone."""
    folder, output, inside, most, had = tmp_path / "o.mp4.gpupipe", tmp_path / "o.mp4", [], [], []
    monkeypatch.setattr(folders, "_RESTS", ())

    def work() -> None:
        for _ in range(60):
            try:
                file = locked(folder, output, shared=False)
            except BusyError:
                continue
            inside.append(0)
            most.append(len(inside))
            (folder / SEGMENTS).mkdir(exist_ok=True)
            inside.pop()
            take_away(folder)
            os.close(file)
            had.append(file)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert had
    assert max(most) == 1


def test_a_lock_made_anew_while_it_is_looked_at_is_not_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken away before its rights are asked for, and there again when it is asked whether it is there."""
    folder, access, asked = tmp_path / "o.mp4.gpupipe", os.access, []
    folder.mkdir()
    (folder / folders.LOCK).touch()
    monkeypatch.setattr(
        os, "access", lambda *one: bool(asked.append(one[0]) or asked.count(one[0]) > 1) and access(*one)
    )
    folders.check(folder)
    assert asked.count(folder / folders.LOCK) == 2


def test_status_tells_age_and_size(place: Path, says) -> None:
    ledger = place / "o.mp4.gpupipe"
    for path in (ledger, *ledger.rglob("*")):
        os.utime(path, (0, time.time() - 3.5 * 86400))
    size = sum(path.stat().st_size for path in ledger.rglob("*") if path.is_file())
    told = says("status", place / "o.mp4")[1]
    assert f"{ledger}: {size / 1000:.1f} kB, last written 3 days ago\n" in told
    assert json.loads(says("status", "--json", place / "o.mp4")[1])["size"] == size


def test_clean_shows_and_removes_when_told(place: Path, says) -> None:
    """All below a folder; others' files, and outputs, stay."""
    ledger, deep = place / "o.mp4.gpupipe", place / "deep" / "p.mov.gpupipe"
    shutil.rmtree(place / "deep", ignore_errors=True)
    shutil.copytree(ledger, deep)
    (place / "deep" / "theirs.gpupipe").mkdir()
    (place / "deep" / "theirs.gpupipe" / PLAN).write_text("mine")
    (place / "deep" / "p.mov").write_text("an output")
    for path in (deep, *deep.rglob("*")):
        os.utime(path, (0, time.time() - 9 * 86400))
    code, told = says("clean", place)
    assert code == 0
    assert f"there    {deep}: 3 segments, " in told
    assert "last written 9 days ago" in told
    assert "2 found" in told
    assert "--yes removes" in told
    assert ledger.exists()
    assert deep.exists()
    code, told = says("clean", "--older-than", 2, "--yes", "--json", place)
    assert [(one["folder"], one["state"]) for one in json.loads(told)] == [(str(deep), "removed")]
    assert (code, deep.exists(), ledger.exists()) == (0, False, True)
    assert sorted(path.name for path in (place / "deep").iterdir()) == ["p.mov", "theirs.gpupipe"]
    (ledger / "notes.txt").write_text("mine")
    code, told = says("clean", "--yes", place / "o.mp4")
    assert (code, [path.name for path in ledger.iterdir()]) == (1, ["notes.txt"])
    assert "was left in it" in told
    shutil.rmtree(place / "deep")


def test_clean_leaves_who_is_at_work_alone(place: Path, says) -> None:
    ledger = place / "o.mp4.gpupipe"
    before = contents(place)
    for shared in (True, False):
        file = locked(ledger, place / "o.mp4", shared=shared)
        code, told = says("clean", "--yes", ledger)
        assert (code, contents(place)) == (1, before)
        assert f"busy     {ledger}" in told
        os.close(file)
    assert says("clean", "--yes", ledger)[0] == 0
    assert not ledger.exists()


def test_clean_of_what_is_none(place: Path, says) -> None:
    code, told = says("clean", "--yes", place / "none.mp4")
    assert (code, told.count("\n")) == (1, 1)
    assert "there is no ledger of it" in told


def test_a_lock_is_let_go_where_the_ledger_cannot_be_made(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next try of a batch, in the same process, would find another run at work: its own."""
    plan = read_plan(place / "plan")
    mkdir = Path.mkdir

    def full(path: Path, *arguments: int, **options: bool) -> None:
        if path.name == SEGMENTS:
            raise OSError(28, "No space left on device")
        mkdir(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", full)
        with pytest.raises(MediaError, match="no space"), Ledger(plan):
            pass
    with Ledger(plan) as ledger:
        assert ledger.kept() == 3


def test_a_volume_that_fails_does_not_hide_what_went_wrong(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what cannot be seen is not taken away."""
    plan = read_plan(place / "plan")
    before = contents(place)

    def broken(self: Path) -> None:
        raise OSError(5, "Input/output error", str(self))

    with pytest.raises(MediaError, match="what went wrong"), Ledger(plan) as ledger, telling(ledger):  # noqa: PT012
        monkeypatch.setattr(Path, "iterdir", broken)
        raise MediaError("what went wrong")
    monkeypatch.undo()
    assert contents(place).items() >= before.items()
    with Ledger(plan) as ledger:
        assert ledger.kept() == 3


def test_clean_names_what_it_cannot_look_at_and_goes_on(place: Path, says, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that is named in two ways is one."""
    odd = place / "deep" / "odd.mp4.gpupipe"
    shutil.copytree(place / "o.mp4.gpupipe", odd)
    (odd / PLAN).unlink()
    (odd / PLAN).mkdir()
    monkeypatch.chdir(place)
    code, told = says("clean", "--yes", place, ".")
    assert (code, (place / "o.mp4.gpupipe").exists(), odd.is_dir()) == (1, False, True)
    assert "left out: deep/odd.mp4.gpupipe/plan.json: it is a folder" in told
    assert "1 of 1 removed" in told
    shutil.rmtree(place / "deep")
