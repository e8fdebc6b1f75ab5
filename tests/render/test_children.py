"""A process a device: the bytes of one process; a process that ends is dropped, and the others finish.

The devices here are the CPU, twice: processes, pipes and signals are real, only the GPUs are not (tests/gpu has those).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from patience import LIMIT, until

from gpupipe.config import parse_config
from gpupipe.errors import DeviceError, MediaError, StoppedError
from gpupipe.journal import Journal
from gpupipe.media.probe import probe
from gpupipe.plan import make_plan
from gpupipe.render import children, render
from gpupipe.render.children import Child, Children, carried
from gpupipe.render.dispatch import SeatLostError
from gpupipe.render.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from gpupipe.plan import Plan

CONFIG = {"device": "cpu", "segments": {"seconds": 1}, "resume": "keep",
          "output": {"video": {"encoder": "libx264", "preset": "ultrafast"}}}  # fmt: skip
TWO = ("cpu", "cpu")


@pytest.fixture(scope="module")
def source(gop_clip) -> Path:
    return gop_clip(8)


@pytest.fixture
def plan(source: Path, tmp_path: Path) -> Plan:
    return make_plan(parse_config(CONFIG), probe(source), tmp_path / "o.mp4")


def carry_out(plan: Plan, stop: threading.Event | None = None) -> Journal:
    journal = Journal()
    render(plan, overwrite=False, journal=journal, stop=stop or threading.Event())
    return journal


@pytest.fixture
def whole(plan: Plan, tmp_path: Path) -> bytes:
    carry_out(replace(plan, output=tmp_path / "whole.mp4"))
    return (tmp_path / "whole.mp4").read_bytes()


def test_the_bytes_of_one_process(plan: Plan, whole: bytes, monkeypatch) -> None:
    seen: list[set[int]] = []
    done, fresh = Child.render, Children.fresh
    monkeypatch.setattr(Child, "render", lambda self, index: (seen.append({id(self)}), done(self, index))[1])
    # Else the first that is ready may do all of it before the other one is.
    monkeypatch.setattr(
        Children, "fresh", lambda self: fresh(self) if all(one.ready.is_set() for one in self._children) else []
    )
    assert not carry_out(replace(plan, devices=TWO)).entries
    assert plan.output.read_bytes() == whole
    assert len(seen) == 8
    assert len(set.union(*seen)) == 2


def test_a_process_that_is_killed_is_dropped(plan: Plan, whole: bytes, monkeypatch) -> None:
    victims: list[int] = []
    done = Child.render

    def killing(self: Child, index: int) -> object:
        future = done(self, index)
        if not victims:
            victims.append(self._process.pid)
            os.kill(self._process.pid, signal.SIGKILL)
        return future

    monkeypatch.setattr(Child, "render", killing)
    journal = carry_out(replace(plan, devices=TWO))
    assert plan.output.read_bytes() == whole
    assert "cpu is lost: its process ended with code -9" in journal.entries["device-lost"].message


def test_all_killed_keeps_what_is_done(plan: Plan, whole: bytes, monkeypatch) -> None:
    finished = Ledger.finished
    children_: list[Child] = []
    made = Child.__init__
    monkeypatch.setattr(Child, "__init__", lambda self, *args: (children_.append(self), made(self, *args))[1])

    def killing(self: Ledger, index: int, piece: object) -> None:
        finished(self, index, piece)
        for child in children_:
            child._process.kill()

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "finished", killing)
        with pytest.raises(DeviceError, match="every device failed") as failed:
            carry_out(replace(plan, devices=TWO))
    assert "of 8 segments are kept" in str(failed.value)
    carry_out(replace(plan, devices=TWO))
    assert plan.output.read_bytes() == whole


def test_stopped(plan: Plan, monkeypatch) -> None:
    stop = threading.Event()
    finished = Ledger.finished
    monkeypatch.setattr(Ledger, "finished", lambda *args: (finished(*args), stop.set()))
    with pytest.raises(StoppedError):
        carry_out(replace(plan, devices=TWO), stop)
    assert not plan.output.exists()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("listens")])


def test_errors_cross_processes_as_they_are() -> None:
    error = carried(MediaError("broken", where="a.mov", hint="mend it"))
    assert str(error) == "a.mov: broken (mend it)"
    assert str(carried(KeyError("x"))) == "KeyError: 'x'"
    assert children.carried(error) is error


def test_a_child_that_does_not_end_holds_nobody_up(plan: Plan, monkeypatch) -> None:
    monkeypatch.setattr(children, "GOODBYE", 1.0)
    with Ledger(plan) as ledger:
        child = Child(ledger, "cpu")
        assert child.ready.wait(LIMIT)
        os.kill(child._process.pid, signal.SIGSTOP)
        future = child.render(0)
        begun = time.monotonic()
        child.close()
        assert time.monotonic() - begun < 0.9
        with pytest.raises(SeatLostError):
            future.result(LIMIT)
        child.wait()
        assert child._process.exitcode == -signal.SIGKILL


def test_a_word_that_cannot_be_read_is_the_end_of_a_child(plan: Plan, monkeypatch) -> None:
    """Nobody waits for it without end."""
    monkeypatch.setattr(children, "GOODBYE", 0.5)
    with Ledger(plan) as ledger:
        child = Child(ledger, "cpu")
        here, there = multiprocessing.Pipe()
        there.send_bytes(b"no pickle")
        child._here, real = here, child._here  # who listens asks the other one after the child's next word
        future = child.render(0)
        with pytest.raises(SeatLostError):
            future.result(LIMIT)
        real.send(None)
        child.close()
        child.wait()
