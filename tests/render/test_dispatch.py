"""Who gets which segment, and what becomes of those that fail."""

from __future__ import annotations

import time
from threading import Event
from types import SimpleNamespace

import pytest
from seat_doubles import LedgerDouble, OfficeDouble, SeatDouble

from gpupipe.errors import DeviceError, FarmError, MediaError, StoppedError
from gpupipe.journal import Journal
from gpupipe.render.dispatch import FAILURES, LOSSES, Dispatch
from gpupipe.render.pieces import Piece
from gpupipe.render.seat import SeatLostError

METER = SimpleNamespace(open=lambda: None, reach=lambda _: None)


def dispatch(ledger: LedgerDouble, *seats: SeatDouble, error: Exception | None = None) -> list[str]:
    told: list[str] = []
    office = OfficeDouble(*seats, error=error or FarmError("nobody left"))
    Dispatch(ledger, office, Journal(), told.append).run(Event(), METER)
    assert not ledger.missing()
    assert all(seat.closed for seat in seats)
    return told


def once(error: Exception):
    """Fails the first time only."""
    errors = [error]

    def behave(_: int) -> None:
        if errors:
            raise errors.pop()

    return behave


def test_longest_first_to_whoever_is_free() -> None:
    ledger = LedgerDouble([1, 5, 3, 5, 2])
    one, two = SeatDouble("one"), SeatDouble("two")
    assert dispatch(ledger, one, two) == []
    assert sorted(one.given + two.given) == [0, 1, 2, 3, 4]
    assert (one.given[0], two.given[0]) == (1, 3)
    assert len(one.given) in (2, 3)


def test_waiting_for_the_first_seat_costs_nothing() -> None:
    """Nodes of a busy cluster come after minutes."""
    ledger, seat, looks, until = LedgerDouble([1]), SeatDouble("one"), [], time.monotonic() + 0.5

    class Late(OfficeDouble):
        def fresh(self) -> list[SeatDouble]:
            looks.append(0)
            return [] if time.monotonic() < until else super().fresh()

    Dispatch(ledger, Late(seat), Journal(), print).run(Event(), METER)
    assert seat.given == [0]
    assert len(looks) < 20


def test_a_seat_gets_as_many_as_it_has_places() -> None:
    ledger = LedgerDouble([1] * 6)
    seat = SeatDouble("one", lambda _: ..., places=3)
    stop = Event()
    seat.shown = lambda: stop.set() or {}
    with pytest.raises(StoppedError):
        Dispatch(ledger, OfficeDouble(seat), Journal(), print).run(stop, METER)
    assert seat.given == [0, 1, 2]
    assert seat.closed


def test_a_segment_that_failed_goes_to_another() -> None:
    ledger = LedgerDouble([1, 1, 1])

    def bad(index: int) -> None:
        if index == 1:
            raise MediaError("broken")

    one, two = SeatDouble("one", bad), SeatDouble("two")
    dispatch(ledger, one, two)
    assert one.given.count(1) <= 1
    assert 1 in two.given
    assert not [event for event, _ in ledger.logged if event == "lost"]


def test_a_segment_that_fails_everywhere_ends_the_run() -> None:
    ledger = LedgerDouble([1, 1, 1])

    def bad(index: int) -> None:
        if index == 1:
            raise MediaError("broken")

    one, two = SeatDouble("one", bad), SeatDouble("two", bad)
    with pytest.raises(MediaError, match="broken"):
        dispatch(ledger, one, two)
    assert (one.given + two.given).count(1) == FAILURES
    assert one.closed
    assert two.closed


def test_a_device_that_fails_is_dropped_and_the_rest_finish() -> None:
    def broken(_: int) -> None:
        raise DeviceError("an illegal memory access was encountered")

    ledger = LedgerDouble([1] * 5)
    bad, good = SeatDouble("cuda:0", broken), SeatDouble("cuda:1")
    told = dispatch(ledger, bad, good)
    assert len(bad.given) == 1
    assert sorted(good.given) == [0, 1, 2, 3, 4]
    assert told == ["cuda:0 is lost: an illegal memory access was encountered; its segments go to others"]


def test_the_last_device_tries_once_more() -> None:
    ledger = LedgerDouble([1, 1])
    seat = SeatDouble("cuda:0", once(DeviceError("out of luck")))
    dispatch(ledger, seat)
    assert len(seat.given) == 3


def test_what_a_lost_seat_had_goes_to_others() -> None:
    def vanish(_: int) -> None:
        raise SeatLostError("the node is gone")

    ledger = LedgerDouble([1] * 6)
    one, two = SeatDouble("one", vanish, places=3), SeatDouble("two")
    told = dispatch(ledger, one, two)
    assert len(told) == 1
    assert sorted(two.given) == [0, 1, 2, 3, 4, 5]


def test_no_seat_left() -> None:
    def vanish(_: int) -> None:
        raise SeatLostError("the node is gone")

    ledger = LedgerDouble([1] * 3)
    with pytest.raises(FarmError, match="nobody left"):
        dispatch(ledger, SeatDouble("one", vanish), SeatDouble("two", vanish))
    assert {what["seat"] for event, what in ledger.logged if event == "lost"} == {"one", "two"}


def test_one_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last segment is given to an idle seat too, once; what the slow one says later does not count."""
    monkeypatch.setattr("gpupipe.render.dispatch.SLOW", 0.0)
    ledger = LedgerDouble([1] * 4)
    hanging = SeatDouble("hanging", lambda _: ...)
    told = dispatch(ledger, hanging, SeatDouble("quick"))
    assert told == ["hanging takes long over segment 0: quick is given it too"]
    assert hanging.given == [0]


def test_the_slow_one_may_still_be_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpupipe.render.dispatch.SLOW", 0.0)
    ledger = LedgerDouble([1] * 3)
    slow = SeatDouble("slow", lambda _: ...)

    def second(index: int) -> object:
        if index == 0:  # given it too: now the first one is done, and this one never will be
            slow.futures[0].set_result(Piece("d", 10, 0, 9, 100, "h"))
            return ...
        return None

    dispatch(ledger, slow, SeatDouble("second", second))
    assert ledger.pieces.keys() == {0, 1, 2}


def test_a_segment_that_takes_every_seat_with_it() -> None:
    def vanish(_: int) -> None:
        raise SeatLostError("its worker ended")

    ledger = LedgerDouble([1])
    with pytest.raises(DeviceError, match=f"{LOSSES} workers were lost"):
        dispatch(ledger, *(SeatDouble(f"seat {n}", vanish) for n in range(LOSSES + 1)))
