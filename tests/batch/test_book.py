"""A record of a batch that was changed or damaged: those files are done again, and nothing else happens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpupipe.batch.book import NAME, Book, Entry
from gpupipe.batch.jobs import Job
from gpupipe.plain import plain
from gpupipe.plan.stored import restored
from gpupipe.render.facts import fingerprint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    for name in ("a.mov", "a.mp4"):
        (tmp_path / name).write_bytes(b"x")
    return Job(tmp_path / "a.mov", tmp_path / "a.mp4")


def entry(job: Job) -> dict[str, object]:
    files, stat = {str(job.source): fingerprint(job.source)}, job.output.stat()
    made = plain(Entry("a.mov", "done", "a.mp4", "me", files, stat.st_size, stat.st_mtime_ns, reason="all is well"))
    assert isinstance(made, dict)
    return made


def standing(job: Job, line: str) -> Entry | None:
    (job.output.parent / NAME).write_text(line + "\n", encoding="utf-8")
    return Book(job.output.parent, "me").standing(job)


def test_whole(job: Job) -> None:
    assert standing(job, json.dumps(entry(job))) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"output": []}, {"reason": 5}, {"frames": "x"}, {"seconds": None}, {"warnings": []}, {"size": "1"}, {"state": "odd"},
        {"files": "x"}, {"files": {"a\0b": {}}}, {"more": 1},
    ],
)  # fmt: skip
def test_changed(job: Job, change: dict[str, object]) -> None:
    made = entry(job)
    if "a\0b" in change.get("files", ()):
        change = {"files": {**made["files"], "a\0b": {}}}
    assert standing(job, json.dumps({**made, **change})) is None


@pytest.mark.parametrize("line", ["[" * 200_000, "5", "[]", "{", "\x00", "null"])
def test_damaged(job: Job, line: str) -> None:
    assert standing(job, line) is None


def test_another_batch_did_it_meanwhile(job: Job) -> None:
    mine, other = Book(job.output.parent, "me"), Book(job.output.parent, "me")
    assert mine.standing(job) is None
    other.add(job, restored(Entry, entry(job)))
    assert mine.standing(job) is not None
