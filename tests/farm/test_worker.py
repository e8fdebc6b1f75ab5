"""What runs on a node, without Ray: what it refuses, what it sends, what it leaves."""

from __future__ import annotations

import os
import pickle
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpupipe import __version__
from gpupipe.config import parse_config
from gpupipe.errors import CapabilityError, SourceError
from gpupipe.farm.job import Job, job_of, sees_ledger
from gpupipe.farm.worker import Scratch, Worker
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render.ledger import Ledger
from gpupipe.render.pieces import verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = {
    "segments": {"seconds": 1},
    "resume": "keep",
    "output": {"video": {"encoder": "libx264", "preset": "ultrafast"}},
}


@pytest.fixture(scope="module")
def source(gop_clip) -> Path:
    return gop_clip(2)


@pytest.fixture
def ledger(source: Path, tmp_path: Path) -> Iterator[Ledger]:
    mine = tmp_path / "mine.mkv"
    mine.write_bytes(source.read_bytes())
    plan = make_plan(parse_config(CONFIG), probe(mine), tmp_path / "o.mp4", device="cpu")
    with Ledger(plan) as ledger:
        ledger.begin()
        yield ledger


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def job(ledger: Ledger, **changes: object) -> Job:
    made = job_of(ledger, url=None, cache=None, token="token")
    return pickle.loads(pickle.dumps(replace(made, **changes)))


def folders(temporary: Path) -> list[Path]:
    return [path for path in temporary.iterdir() if path.is_dir()]


def test_segments_are_sent_piece_by_piece(ledger: Ledger, temporary: Path) -> None:
    worker = Worker(job(ledger), "cpu")
    assert worker.prepare() is False
    piece = worker.render(1)
    assert (piece.frames, piece.digest) == (25, ledger.digest)
    sent = b"".join(worker.chunk(1, start, 1000) for start in range(0, piece.bytes, 1000))
    path = ledger.path(1)
    path.write_bytes(sent)
    assert verify(path) == piece
    worker.drop(1)
    assert [one.name for one in temporary.glob("*/*")] == ["lock"]
    worker.close()
    assert folders(temporary) == []


def test_one_that_sees_the_ledger_writes_there(ledger: Ledger, temporary: Path) -> None:
    (ledger.path(0).parent / "token").touch()
    worker = Worker(job(ledger), "cpu")
    assert worker.prepare() is True
    assert worker.render(0) == verify(ledger.path(0)) == ledger.look(0)
    worker.close()
    assert folders(temporary) == []
    assert not sees_ledger(job(ledger, token="another"))


def test_who_would_make_other_bytes_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    def refusal(**changes: object) -> str:
        answer = Worker(job(ledger, **changes), "cpu").prepare()
        assert isinstance(answer, CapabilityError)
        return str(answer)

    assert "not 99" in refusal(version="99")
    known = job(ledger).facts
    libraries = {**known["libraries"], "av": "0.1"}
    assert "PyAV was 0.1, is " in refusal(facts={**known, "libraries": libraries})
    os.utime(tmp_path / "mine.mkv", (1, 1))
    assert "mine.mkv.modified was " in refusal(facts=known)
    os.unlink(tmp_path / "mine.mkv")  # noqa: PTH108
    answer = Worker(job_without(ledger, known), "cpu").prepare()
    assert isinstance(answer, SourceError)


def job_without(ledger: Ledger, known: dict) -> Job:
    """As `job`, where the source is gone here too."""
    from gpupipe.plan.stored import dump  # noqa: PLC0415

    return Job(__version__, dump(ledger.plan), known, ledger.digest, None, None, 2, str(ledger.folder), "token")


def test_from_a_url(ledger: Ledger, source: Path, tmp_path: Path) -> None:
    """The plan is of the copy here; a node has it under another name."""
    from gpupipe.farm.fetch import local_copy  # noqa: PLC0415

    url = f"file://{source}"
    here = local_copy(url, tmp_path / "here")
    plan = make_plan(parse_config(CONFIG), probe(here), tmp_path / "u.mp4", device="cpu")
    with Ledger(plan) as of_copy:
        of_copy.begin()
        made = job_of(of_copy, url=url, cache=str(tmp_path / "there"), token="none")
        worker = Worker(made, "cpu")
        assert worker.prepare() is False
        piece = worker.render(0)
        worker.close()
        assert piece.digest == of_copy.digest
    assert [path.name for path in (tmp_path / "there").glob("*.mkv")] == [here.name]


def test_what_killed_workers_left_is_taken_away(temporary: Path) -> None:
    left = temporary / f"{Scratch.PREFIX}left"
    left.mkdir()
    (left / "lock").touch()
    (left / "000000.seg").touch()
    mine = Scratch()
    other = Scratch()
    assert not left.exists()
    assert mine.path.is_dir()
    assert other.path.is_dir()
    mine.close()
    other.close()
