"""One thread does all that others ask for, and says it as theirs."""

from __future__ import annotations

import gc
import threading

import pytest
from patience import LIMIT

from gpupipe.journal import Journal, within
from gpupipe.render.one_thread import OneThread


def test_all_that_is_asked_for_is_done_by_one_thread() -> None:
    begun: list[int] = []
    call, journal = OneThread(lambda: begun.append(threading.get_ident())), Journal()
    places: list[int] = []

    def runner(number: int) -> None:
        with within(f"segment {number}"):
            places.extend(call(threading.get_ident) for _ in range(5))
            call(lambda: journal.warn("late", "it is late", place="pts 3"))

    threads = [threading.Thread(target=runner, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len(places) == 15
    assert set(places) == set(begun)
    assert len(begun) == 1
    assert sorted(journal.entries["late"].places) == [f"segment {n}, pts 3" for n in range(3)]


def test_what_goes_wrong_is_the_askers_and_the_next_is_done() -> None:
    call = OneThread(lambda: None)
    with pytest.raises(ZeroDivisionError):
        call(lambda: 1 // 0)
    assert call(lambda: 7) == 7


def test_it_ends_when_nobody_has_it_any_more() -> None:
    found: list[threading.Thread] = []
    call = OneThread(lambda: found.append(threading.current_thread()))
    call(lambda: None)
    del call
    gc.collect()
    found[0].join(LIMIT)
    assert not found[0].is_alive()


def test_what_goes_wrong_at_its_beginning_is_raised_there() -> None:
    with pytest.raises(ZeroDivisionError):
        OneThread(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
