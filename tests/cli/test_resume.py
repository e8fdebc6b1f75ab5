"""`resume: keep`: whatever ends a run, the same command ends with the bytes of an undisturbed one, and redoes little."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import av
import pytest
from patience import held

from gpupipe.cli.job import prepare
from gpupipe.codecs.libav import LibavEncoder
from gpupipe.errors import MediaError
from gpupipe.media.mux import Muxer
from gpupipe.render import kept as keeping
from gpupipe.render.ledger import Ledger
from gpupipe.render.pieces import PieceWriter

if TYPE_CHECKING:
    from collections.abc import Callable

KILLED = Path(__file__).with_name("killed.py")
SESSIONS, SEGMENTS = 2, 8
CONFIG = f"""device: cpu
resume: keep
segments: {{seconds: 1}}
sessions: {SESSIONS}
output: {{video: {{encoder: libx264, preset: veryfast}}}}
"""


@pytest.fixture(scope="module")
def source(gop_clip) -> Path:
    return gop_clip(8, sound=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, source: Path) -> bytes:
    """What an undisturbed run writes."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "c.yaml").write_text(CONFIG)
    run(folder, source)
    return (folder / "out.mp4").read_bytes()


@pytest.fixture
def words(tmp_path: Path, source: Path) -> list[str]:
    """Of a run in this process."""
    (tmp_path / "c.yaml").write_text(CONFIG)
    return ["run", "--quiet", str(tmp_path / "c.yaml"), str(source), str(tmp_path / "out.mp4")]


def run(folder: Path, source: Path, *moment: object) -> int:
    """A run in a process of its own, killed at a moment of `killed.MOMENTS`."""
    what = map(str, moment or ("-", 0, "-"))
    words = ["run", "--quiet", folder / "c.yaml", source, folder / "out.mp4"]
    done = subprocess.run(
        [sys.executable, KILLED, folder / "record", *what, *words], check=False, timeout=240, capture_output=True
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def kept(folder: Path) -> dict[str, int]:
    """Finished segments and their inodes: one that is rendered again has another."""
    return {path.name: path.stat().st_ino for path in (folder / "out.mp4.gpupipe" / "segments").glob("*.seg")}


def tidy(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in ("record", "c.yaml"))


MOMENTS = [
    ("add", random.Random(5).randrange(2, 10), "before"),
    ("seal", random.Random(6).randrange(1, 4), "after"),
    ("mux", random.Random(7).randrange(1, 200), "after"),
    ("commit", 1, "after"),
]


def test_killed_at_any_moment(tmp_path: Path, source: Path, whole: bytes) -> None:
    """One after another on the same run: in a segment, behind a rename, in the join, before the ledger goes."""
    (tmp_path / "c.yaml").write_text(CONFIG)
    before: dict[str, int] = {}
    for moment in MOMENTS:
        assert run(tmp_path, source, *moment) == -signal.SIGKILL, moment
        now = kept(tmp_path)
        assert before.items() <= now.items(), "what was finished is not rendered again"
        before = now
        output = tmp_path / "out.mp4"
        assert not output.exists() or output.read_bytes() == whole
    assert len(before) == SEGMENTS
    assert run(tmp_path, source) == 0
    assert tidy(tmp_path) == ["out.mp4"]
    assert (tmp_path / "out.mp4").read_bytes() == whole
    rendered = (tmp_path / "record").read_text().split()
    assert len(rendered) == SEGMENTS  # a killed segment never got its name, so none was recorded twice


@pytest.mark.parametrize("moment", [("inspect", 1, "after"), ("commit", 1, "before"), ("unlink", 4, "before")])
def test_killed_around_the_rename(tmp_path: Path, source: Path, whole: bytes, moment: tuple[str, int, str]) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    assert run(tmp_path, source, *moment) == -signal.SIGKILL
    assert run(tmp_path, source) == 0
    assert tidy(tmp_path) == ["out.mp4"]
    assert (tmp_path / "out.mp4").read_bytes() == whole
    assert len((tmp_path / "record").read_text().split()) == SEGMENTS


def test_killed_by_the_clock(tmp_path: Path, source: Path, whole: bytes) -> None:
    """Wherever that is. Only what was in flight is rendered twice."""
    (tmp_path / "c.yaml").write_text(CONFIG)
    dice, kills = random.Random(8), 0
    program = [sys.executable, KILLED, tmp_path / "record", "-", "0", "-", "run", "--quiet", tmp_path / "c.yaml", source,
               tmp_path / "out.mp4"]  # fmt: skip
    for _ in range(2):
        process = subprocess.Popen(program)
        time.sleep(dice.uniform(0.3, 1.0))
        process.kill()
        kills += process.wait() != 0
    if not (tmp_path / "out.mp4").exists() or (tmp_path / "out.mp4.gpupipe").exists():
        assert run(tmp_path, source) == 0
    assert (tmp_path / "out.mp4").read_bytes() == whole
    assert len((tmp_path / "record").read_text().split()) <= SEGMENTS + kills * SESSIONS


def break_the_join(patch: pytest.MonkeyPatch, error: Exception) -> None:
    """Not the rehearsal, which is over when the first segment begins."""
    join, write = keeping.join, Muxer.write_video

    def fails(*_: object) -> None:
        raise error

    def broken(*args: object, **words: object) -> object:
        patch.setattr(Muxer, "write_video", fails)
        try:
            return join(*args, **words)
        finally:
            patch.setattr(Muxer, "write_video", write)

    patch.setattr(keeping, "join", broken)


def stopped_before_the_join(cli: Callable, words: list[str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything is rendered, the join fails; returns the folder of segments."""

    with monkeypatch.context() as patch:
        break_the_join(patch, MediaError("it was not to be"))
        shown = cli(*words)
    assert shown.code == 1
    assert "it was not to be (8 of 8 segments are kept, the same command goes on)" in shown.err
    return Path(words[-1] + ".gpupipe") / "segments"


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Numbers of the segments rendered from now on, in this process."""
    found: list[str] = []
    seal = PieceWriter.seal

    def noted(self: PieceWriter, *args: object) -> object:
        found.append(self._path.stem)
        return seal(self, *args)

    monkeypatch.setattr(PieceWriter, "seal", noted)
    return found


def test_damaged_segments_are_redone(cli, words, monkeypatch, whole, rendered) -> None:
    folder = stopped_before_the_join(cli, words, monkeypatch)
    pieces = sorted(folder.glob("*.seg"))
    assert len(pieces) == len(rendered) == SEGMENTS
    pieces[0].write_bytes(pieces[0].read_bytes()[:-100])
    data = bytearray(pieces[2].read_bytes())
    data[len(data) // 2] ^= 4
    pieces[2].write_bytes(data)
    (folder / ".000005.seg.elsewhere-1.part").write_bytes(b"half")
    rendered.clear()
    assert cli(*words).code == 0
    assert sorted(rendered) == ["000000", "000002"]
    assert Path(words[-1]).read_bytes() == whole
    assert not folder.exists()


def test_damage_between_verifying_and_joining_is_seen(cli, words, monkeypatch, whole, rendered) -> None:
    begin, dirty = Ledger.begin, []

    def flipped(self: Ledger, *args: object, **kwargs: object) -> None:
        begin(self, *args, **kwargs)
        if not dirty and not self.missing():
            data = bytearray(self.path(6).read_bytes())
            data[-200] ^= 1
            self.path(6).write_bytes(data)
            dirty.append(6)

    folder = stopped_before_the_join(cli, words, monkeypatch)
    monkeypatch.setattr(Ledger, "begin", flipped)
    rendered.clear()
    assert cli(*words).code == 0
    assert (dirty, rendered) == ([6], ["000006"])
    assert Path(words[-1]).read_bytes() == whole
    assert not folder.exists()


def test_what_fails_beside_the_segments_costs_none_of_them(cli, words, monkeypatch, rendered) -> None:
    """libav's errors are the system's too, such as those of a damaged subtitle."""

    with monkeypatch.context() as patch:
        break_the_join(patch, OSError(errno.EIO, os.strerror(errno.EIO)))
        assert cli(*words).code == 3
    assert len(rendered) == SEGMENTS
    assert "segments 8 of 8 done" in cli("status", words[-1]).out


def test_a_plan_that_is_lost_costs_no_work(cli, words, monkeypatch, whole, rendered) -> None:
    folder = stopped_before_the_join(cli, words, monkeypatch)
    (folder.parent / "plan.json").write_text("{cut sh")
    rendered.clear()
    assert cli(*words).code == 0
    assert not rendered
    assert Path(words[-1]).read_bytes() == whole


def test_what_changed_is_told(cli, words, monkeypatch, tmp_path, source, rendered) -> None:
    folder = stopped_before_the_join(cli, words, monkeypatch)
    before = kept(tmp_path)
    (tmp_path / "c.yaml").write_text(CONFIG.replace("veryfast", "fast"))
    shown = cli(*words)
    assert shown.code == 1
    assert f"{folder.parent}: 8 segments of another run are kept: encoder.preset was veryfast, is fast" in shown.err
    assert "--restart" in shown.err
    (tmp_path / "c.yaml").write_text(CONFIG.replace("segments: {seconds: 1}", "segments: {seconds: 2}"))
    assert "segments is another" in cli(*words).err
    (tmp_path / "c.yaml").write_text(CONFIG)
    other = tmp_path / "s2.mkv"
    other.write_bytes(source.read_bytes())
    assert "s2.mkv" in cli(*words[:3], str(other), words[-1]).err
    with monkeypatch.context() as patch:
        patch.setattr("gpupipe.plan.make.__version__", "9.9.9")
        assert "gpupipe was 0.1.0, is 9.9.9" in cli(*words).err
    with monkeypatch.context() as patch:
        patch.setattr(av, "__version__", "99.1")
        assert ", is 99.1" in cli(*words).err
    assert (kept(tmp_path), Path(words[-1]).exists()) == (before, False)
    rendered.clear()
    (tmp_path / "c.yaml").write_text(CONFIG.replace("veryfast", "fast"))
    assert cli("run", "--restart", *words[1:]).code == 0
    assert len(rendered) == SEGMENTS


def test_a_touched_source_is_told(cli, words, monkeypatch, tmp_path, source) -> None:
    mine = tmp_path / "mine.mkv"
    mine.write_bytes(source.read_bytes())
    words[3] = str(mine)
    stopped_before_the_join(cli, words, monkeypatch)
    data = bytearray(mine.read_bytes())
    data[-1] ^= 1
    mine.write_bytes(data)
    assert "mine.mkv.modified was " in cli(*words).err


def test_a_full_disk_at_the_join(tmp_path: Path, source: Path, whole: bytes, words: list[str]) -> None:
    """By a limit on file sizes, which the output meets and no segment does."""
    command = [sys.executable, "-m", "gpupipe", *words]
    limit = len(whole) // 2048
    done = subprocess.run(
        ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "-", *command], capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 5
    assert "8 of 8 segments are kept, the same command goes on" in done.stderr
    assert tidy(tmp_path) == ["out.mp4.gpupipe"]
    assert len(kept(tmp_path)) == SEGMENTS
    assert run(tmp_path, source) == 0
    assert (tmp_path / "out.mp4").read_bytes() == whole
    assert not (tmp_path / "record").exists(), "nothing was rendered again"


def test_no_room_for_the_join_is_seen_before_it(cli, words, monkeypatch, tmp_path) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("gpupipe.media.output.shutil.disk_usage", lambda _: usage)
    shown = cli(*words)
    assert shown.code == 5
    assert "GB free (free some space or write elsewhere; 8 of 8 segments are kept" in shown.err
    assert len(kept(tmp_path)) == SEGMENTS


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 1)])
def test_a_segment_that_fails_is_tried_once_more(cli, words, monkeypatch, whole, times, code) -> None:
    encode, left = LibavEncoder.encode, [times]

    def failing(self: LibavEncoder, batch: object) -> object:
        if left[0] and 3400 <= batch.pts[0] < 3440:  # in segment 3, in milliseconds
            left[0] -= 1
            raise MediaError("libx264 failed: of a sudden", hint="another encoder may do")
        return encode(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(LibavEncoder, "encode", failing)
        shown = cli(*words)
    assert (shown.code, left) == (code, [0])
    if code:
        assert "libx264 failed: of a sudden (another encoder may do; " in shown.err
        log = [json.loads(line) for line in Path(words[-1] + ".gpupipe/log.jsonl").read_text().splitlines()]
        assert [event["segments"] for event in log if event["event"] == "failed"] == [[3], [3]]
        assert cli(*words).code == 0
    assert Path(words[-1]).read_bytes() == whole


def test_a_disk_that_fills_up_in_a_segment(cli, words, monkeypatch, whole, tmp_path) -> None:
    write, full = PieceWriter._write, []

    def filling(self: PieceWriter, data: bytes) -> None:
        if self._path.stem == "000005" and self._bytes > 5000:
            full.append(1)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(PieceWriter, "_write", filling)
        shown = cli(*words)
    assert (shown.code, len(full)) == (5, 2)
    assert "no space left on the volume of " in shown.err
    assert "segments are kept, the same command goes on)" in shown.err
    assert "000005.seg" not in kept(tmp_path)
    assert not list((tmp_path / "out.mp4.gpupipe" / "segments").glob(".*"))
    assert cli(*words).code == 0
    assert Path(words[-1]).read_bytes() == whole


def test_out_of_memory_has_a_code_of_its_own(cli, words, monkeypatch) -> None:
    def failing(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(LibavEncoder, "finish", failing)
    shown = cli(*words)
    assert shown.code == 7
    assert "out of memory: MemoryError" in shown.err
    assert "Traceback" not in shown.err


def held_after(folder: Path, words: list[str], segments: int, *signals: signal.Signals) -> subprocess.Popen[str]:
    """A run that stood still as soon as so many segments had their names, and found these signals when it went on."""
    program = [sys.executable, KILLED, folder / "record", "finished", str(segments), "held"]
    process = subprocess.Popen([*program, *words], stderr=subprocess.PIPE, text=True)
    held(process)
    for number in (*signals, signal.SIGCONT):
        process.send_signal(number)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_what_is_done(tmp_path: Path, words: list[str], number: signal.Signals) -> None:
    process = held_after(tmp_path, words, 2, number)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    done = len(kept(tmp_path))
    assert done >= 2
    assert f"{done} of 8 segments are kept, the same command goes on" in err
    assert not list((tmp_path / "out.mp4.gpupipe" / "segments").glob(".*"))


def test_a_second_signal_stops_at_once(tmp_path: Path, words: list[str]) -> None:
    process = held_after(tmp_path, words, 1, signal.SIGTERM, signal.SIGINT)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "stopped at once; nothing was written under the output's name; finished segments are kept" in err
    assert kept(tmp_path)
    assert not (tmp_path / "out.mp4").exists()


def test_what_others_put_there_stays(cli, words, tmp_path) -> None:
    folder = tmp_path / "out.mp4.gpupipe"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    assert cli(*words).code == 0
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_no_folder_is_made_for_the_output(cli, words, tmp_path) -> None:
    shown = cli(*words[:-1], str(tmp_path / "none" / "out.mp4"))
    assert shown.code == 1
    assert "the folder does not exist (create it first)" in shown.err
    assert tidy(tmp_path) == []


def test_two_runs_do_not_share_a_ledger(cli, words, monkeypatch, tmp_path) -> None:
    stopped_before_the_join(cli, words, monkeypatch)
    plan = prepare(tmp_path / "c.yaml", Path(words[3]), tmp_path / "out.mp4", device="cpu", strict=False)
    with Ledger(plan):
        shown = cli(*words)
        assert '"busy": true' in cli("status", "--json", words[-1]).out
    assert shown.code == 1
    assert "another run is at work on it" in shown.err
    assert '"busy": false' in cli("status", "--json", words[-1]).out


def test_who_only_looks_stops_nobody(cli, words, monkeypatch, tmp_path) -> None:
    folder = stopped_before_the_join(cli, words, monkeypatch).parent
    plan = prepare(tmp_path / "c.yaml", Path(words[3]), tmp_path / "out.mp4", device="cpu", strict=False)
    with (folder / "lock").open("r+b") as looking:
        fcntl.flock(looking, fcntl.LOCK_EX)
        rest = SimpleNamespace(sleep=lambda _: fcntl.flock(looking, fcntl.LOCK_UN))  # it has looked meanwhile
        monkeypatch.setattr("gpupipe.render.folder.time", rest)
        with Ledger(plan, shared=True):
            pass


def test_locks_as_nfs_has_them(cli, words, monkeypatch, tmp_path) -> None:
    """There a shared lock wants a file that may be read, and an exclusive one a file that may be written."""
    real = fcntl.flock

    def flock(file, operation: int) -> None:
        mode = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        if mode == (os.O_WRONLY if operation & fcntl.LOCK_SH else os.O_RDONLY):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    stopped_before_the_join(cli, words, monkeypatch)
    plan = prepare(tmp_path / "c.yaml", Path(words[3]), tmp_path / "out.mp4", device="cpu", strict=False)
    with Ledger(plan, shared=True):
        assert '"busy": true' in cli("status", "--json", words[-1]).out
        assert "another run is at work on it" in cli(*words).err


def test_status(cli, words, monkeypatch, tmp_path) -> None:
    folder = stopped_before_the_join(cli, words, monkeypatch)
    (folder / "000004.seg").unlink()
    data = bytearray((folder / "000005.seg").read_bytes())
    data[len(data) // 2] ^= 1  # among the packets, which only --verify reads
    (folder / "000005.seg").write_bytes(data)
    told = cli("status", words[-1]).out
    assert "segments 7 of 8 done" in told
    assert "frames   175 of 200 (87 %)" in told
    assert "missing  4\n" in told
    assert "stopped: " in told
    assert "it was not to be" in told
    facts = json.loads(cli("status", "--json", "--verify", words[-1]).out)
    assert (facts["damaged"], facts["missing"], facts["busy"]) == ([5], [4, 5], False)
    assert cli("status", str(tmp_path / "nothing.mp4")).code == 1


def test_a_container_that_refuses_the_stream_is_told_before_any_work(cli, words, rendered) -> None:
    """MXF takes the header of x264's stream and then none of its packets."""
    words[-1] = words[-1].replace(".mp4", ".mxf")
    shown = cli(*words)
    assert shown.code == 1
    assert f"{words[-1]}: the mxf muxer refuses it" in shown.err
    assert not rendered
    assert not list(Path(words[-1]).parent.glob("out.mxf*"))
