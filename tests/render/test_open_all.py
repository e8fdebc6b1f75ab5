"""Workers open side by side, and an error leaves none at it."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest

from gpupipe.render.segmented import open_all

PLACE: ContextVar[str] = ContextVar("place", default="")


class Worker:
    def __init__(self, work):
        self.opened = False
        self._work = work

    def open(self):
        self._work()
        self.opened = True

    def render(self, index):
        raise AssertionError(index)

    def close(self):
        pass


def test_they_open_at_the_same_time_and_know_whose_they_are():
    meeting, places = threading.Barrier(3, timeout=10), []
    workers = [Worker(lambda: (meeting.wait(), places.append(PLACE.get()))) for _ in range(3)]
    token = PLACE.set("here")
    open_all(workers, 3)
    PLACE.reset(token)
    assert [worker.opened for worker in workers] == [True] * 3
    assert places == ["here"] * 3


def test_one_by_one_they_open_in_order_in_this_thread():
    seen = []
    open_all([Worker(lambda n=n: seen.append((n, threading.current_thread()))) for n in range(3)], 1)
    assert seen == [(n, threading.current_thread()) for n in range(3)]


def test_the_first_error_is_raised_when_all_have_ended():
    failed = threading.Event()

    def fail():
        failed.set()
        raise ValueError("the first")

    def late():
        assert failed.wait(10)

    def fail_too():
        raise ValueError("the last")

    workers = [Worker(late), Worker(fail), Worker(late), Worker(fail_too)]
    with pytest.raises(ValueError, match="the first"):
        open_all(workers, 4)
    assert [worker.opened for worker in workers] == [True, False, True, False]
