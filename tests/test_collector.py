"""The garbage collector rests for as long as anybody wants it, in whatever thread, and is then as it was before."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

import pytest

from gpupipe.collector import no_collection

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _on_again() -> Iterator[None]:
    yield
    gc.enable()


def test_it_rests_until_the_outermost_is_left() -> None:
    with no_collection():
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_turns_it_on_again() -> None:
    with pytest.raises(KeyError), no_collection():
        raise KeyError
    assert gc.isenabled()


def test_who_had_it_off_keeps_it_off() -> None:
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize("first", ["this", "other"])
def test_two_threads_may_leave_in_any_order(first: str) -> None:
    inside, leave, left = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        with no_collection():
            inside.set()
            leave.wait(10)
        left.set()

    other = threading.Thread(target=work)
    with no_collection():
        other.start()
        assert inside.wait(10)
        if first == "other":
            leave.set()
            assert left.wait(10)
        assert not gc.isenabled()
    assert gc.isenabled() == (first == "other")
    leave.set()
    other.join()
    assert gc.isenabled()
