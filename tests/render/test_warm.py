"""Lanes that stay open: what they make is what a run makes, and a failure costs nobody else a segment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from patience import until

from gpupipe.config import parse_config
from gpupipe.errors import MediaError, StoppedError
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import runner
from gpupipe.render.children import Folder
from gpupipe.render.pieces import verify
from gpupipe.render.runner import Runner
from gpupipe.render.warm import Warm

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {"device": "cpu", "segments": {"seconds": 1}, "sessions": 2, "resume": "keep",
          "output": {"video": {"encoder": "libx264", "preset": "ultrafast"}}}  # fmt: skip


@pytest.fixture(scope="module")
def source(gop_clip) -> Path:
    return gop_clip(6)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Folder:
    return Folder(make_plan(parse_config(CONFIG), probe(source), tmp_path / "o.mp4"), "digest", tmp_path)


def made(folder: Folder) -> list[bytes]:
    return [folder.file(n).read_bytes() for n in range(6)]


def test_in_any_order_the_same_and_opened_once(folder: Folder, monkeypatch) -> None:
    opened = []
    monkeypatch.setattr(Runner, "open", lambda self, open_=Runner.open: (opened.append(self), open_(self)))
    warm = Warm(folder.plan, folder)
    with ThreadPoolExecutor(4) as pool:
        pieces = list(pool.map(warm.render, (5, 0, 3, 1, 4, 2)))
    assert [piece.frames for piece in pieces] == [25] * 6
    first = made(folder)
    assert warm.render(3) == verify(folder.file(3))
    assert len(opened) == folder.plan.sessions
    warm.close()
    other = Warm(folder.plan, folder)
    for index in range(6):
        other.render(index)
    other.close()
    assert made(folder) == first
    assert not list(folder.path.glob(".*.part"))


def test_a_failure_is_of_its_segment_only(folder: Folder, monkeypatch) -> None:
    """Both segments of that moment are lost with the lanes; the other one is begun again by itself."""
    failures, read = [MediaError("broken")], runner.Pieces.read

    def failing(self: object, segment: object) -> object:
        if segment is folder.plan.segments[2] and failures:
            raise failures.pop()
        return read(self, segment)

    monkeypatch.setattr(runner.Pieces, "read", failing)
    warm = Warm(folder.plan, folder)
    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(warm.render, index) for index in range(6)]
        errors = [future.exception(timeout=240) for future in futures]
    assert [str(error) for error in errors if error] == ["segment 2: broken"]
    assert errors.index(next(filter(None, errors))) == 2
    assert warm.render(2).frames == 25
    warm.close()
    assert not list(folder.path.glob(".*.part"))
    with pytest.raises(StoppedError):
        warm.render(1)


def test_less_where_memory_is_short(folder: Folder, monkeypatch) -> None:
    """Two sessions are one too many for this machine, as Python says it: then one goes on."""
    opened, read = [], runner.Pieces.read
    monkeypatch.setattr(Runner, "open", lambda self, open_=Runner.open: (opened.append(self), open_(self)))

    def failing(self: object, segment: object) -> object:
        if len(opened) == 2:
            raise MemoryError
        return read(self, segment)

    monkeypatch.setattr(runner.Pieces, "read", failing)
    warm = Warm(folder.plan, folder)
    with ThreadPoolExecutor(6) as pool:
        assert [piece.frames for piece in pool.map(warm.render, range(6))] == [25] * 6
    warm.close()
    assert len(opened) == 3


def test_a_decoder_that_does_not_open(folder: Folder, monkeypatch) -> None:
    def failing(self: object) -> None:
        raise MediaError("no such codec here")

    monkeypatch.setattr(Runner, "open", failing)
    warm = Warm(folder.plan, folder)
    for _ in range(2):
        with pytest.raises(MediaError, match="no such codec"):
            warm.render(0)
    warm.close()


def test_closed_while_it_works(folder: Folder, monkeypatch) -> None:
    warm = Warm(folder.plan, folder)
    with ThreadPoolExecutor(1) as pool:

        def waiting(self: Runner, index: int) -> None:
            with self._board._results:
                self._board._results.until(lambda: False)

        monkeypatch.setattr(Runner, "render", waiting)
        future = pool.submit(warm.render, 0)
        until(lambda: warm.shown() or future.done())
        assert not future.done()
        warm.close()
        with pytest.raises(StoppedError):
            future.result(timeout=240)
    assert list(folder.path.iterdir()) == []
