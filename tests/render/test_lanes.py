"""Lanes, channels and the board: bounded, in order, and all ended by the first error."""

from __future__ import annotations

import random
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
from patience import LIMIT, until

from gpupipe.collector import no_collection
from gpupipe.errors import StoppedError
from gpupipe.render.board import Board, Part
from gpupipe.render.lanes import Channel, Crew


class BoomError(Exception):
    pass


def part(size: int, frames: int = 1) -> Part:
    return Part([SimpleNamespace(size=size)] * frames, tuple(range(frames)), object())


def board(crew: Crew, count: int, ahead: int = 8, limit: int = 100) -> Board:
    return Board(crew, tuple(SimpleNamespace(frames=0) for _ in range(count)), ahead, limit)


def grown(value, least: int) -> int:
    """What `value` gives a little after it has come to `least`: it might go on, if nothing held it up."""
    until(lambda: value() >= least)
    time.sleep(0.1)
    return value()


def ended(crew: Crew) -> bool:
    return until(lambda: not any(thread.is_alive() for thread in crew._threads))


def test_a_channel_holds_no_more_than_its_capacity() -> None:
    put = []
    with Crew() as crew:
        channel: Channel[int] = Channel(crew, 3)

        def work() -> None:
            for n in range(100):
                channel.put(n)
                put.append(n)
            channel.close()

        crew.start("writer", work)
        assert grown(lambda: len(put), 3) == 3  # nobody takes any
        got = []
        while (item := channel.get()) is not None:
            got.append(item)
            assert len(put) <= len(got) + 4
        assert got == list(range(100))


@pytest.mark.parametrize("waits", ["put", "get", "take", "room"])
def test_the_first_error_ends_every_lane_wherever_it_waits(waits: str) -> None:
    crew = Crew()
    full, empty = Channel[int](crew, 1), Channel[int](crew, 1)
    tickets, crowded = board(crew, 9, ahead=0), board(crew, 9, limit=1)
    full.put(1)
    crowded.deliver(1, 0, part(5))
    waiting = {
        "put": lambda: full.put(2), "get": empty.get, "take": tickets.take, "room": lambda: crowded.wait_for_room(1)
    }[waits]  # fmt: skip
    reached = threading.Event()

    def wait() -> None:
        reached.set()
        waiting()
        raise AssertionError

    def die() -> None:
        reached.wait(LIMIT)
        time.sleep(0.05)
        raise BoomError

    with crew:
        for n in range(3):
            crew.start(f"waits-{n}", wait)
        crew.start("dies", die)
        assert ended(crew)
    with pytest.raises(BoomError):
        crew.check()


def test_the_first_error_is_the_one_that_is_told() -> None:
    with Crew() as crew:
        crew.halt(BoomError("first"))
        crew.halt(ValueError("second"))
    with pytest.raises(BoomError, match="first"):
        crew.check()


class Memory:
    """What a lane has of a GPU."""


@pytest.mark.parametrize("where", ["lane", "queue", "cause"])
def test_what_a_dead_lane_held_is_free_before_its_error_is_gone(where: str) -> None:
    held: list[weakref.ref[Memory]] = []

    def taken() -> Memory:
        memory = Memory()
        held.append(weakref.ref(memory))
        return memory

    def work(memory: Memory) -> None:
        if where == "queue":
            channel.put(memory)
        if where != "cause":
            raise BoomError
        try:
            {}[id(memory)]
        except KeyError:
            outside()

    def outside() -> None:
        raise BoomError

    with no_collection():
        with Crew() as crew:
            channel = Channel[Memory](crew, 2)
            crew.start("runner-0", partial(work, taken()))
            assert ended(crew)
            assert held[0]() is not None
        with pytest.raises(BoomError):
            crew.check()
        assert held[0]() is None


def test_the_writer_learns_of_an_error_while_it_waits() -> None:
    with Crew() as crew:
        shared = board(crew, 2)

        def die() -> None:
            time.sleep(0.05)
            raise BoomError

        crew.start("dies", die)
        with pytest.raises(BoomError):
            list(shared.in_order(threading.Event()))


def test_the_writer_stops_while_every_lane_waits_for_it() -> None:
    stop = threading.Event()
    crew = Crew()
    with crew:
        shared = board(crew, 9, limit=10)

        def run() -> None:
            while (index := shared.take()) is not None:
                for number in range(1000):
                    shared.wait_for_room(index)
                    shared.deliver(index, number, part(1))
                shared.complete(index, 1000)

        for n in range(3):
            crew.start(f"runner-{n}", run)
        parts = shared.in_order(stop)
        next(parts)
        grown(lambda: shared._waiting, 10)
        stop.set()
        with pytest.raises(StoppedError):
            next(parts)
    assert ended(crew)


def test_what_waits_for_a_stalled_writer_is_bounded() -> None:
    limit, sessions, size = 100, 5, 3
    with Crew() as crew:
        shared = board(crew, 20, ahead=2 * sessions, limit=limit)

        def run() -> None:
            while (index := shared.take()) is not None:
                for number in range(50):
                    shared.wait_for_room(index)
                    shared.deliver(index, number, part(size))
                shared.complete(index, 50)

        for n in range(sessions):
            crew.start(f"runner-{n}", run)
        most = grown(lambda: shared._waiting, limit)
        assert limit <= most < limit + limit // 8 + (sessions + 1) * size
        order = []
        for index, got in shared.in_order(threading.Event()):
            order += [index] * got.frames
            assert shared._waiting < limit + limit // 8 + (sessions + 1) * size
        assert order == [index for index in range(20) for _ in range(50)]
        assert shared._waiting == 0
        assert not shared._pending


@pytest.mark.parametrize("seed", range(5))
def test_shared_encode_lanes_never_deadlock_against_a_full_board(seed: int) -> None:
    """As nvJPEG: runners of all segments feed two encode lanes by one channel, and the writer is slow."""
    chance = random.Random(seed)
    delays = [chance.choice((0, 0, 0, 0.001)) for _ in range(4000)]
    segments, parts = 12, 20
    with Crew() as crew:
        shared = board(crew, segments, ahead=6, limit=20)
        jobs: Channel[tuple[int, int]] = Channel(crew, 4)

        def run() -> None:
            while (index := shared.take()) is not None:
                for number in range(parts):
                    shared.wait_for_room(index)
                    jobs.put((index, number))
                shared.complete(index, parts)

        def encode() -> None:
            while (job := jobs.get()) is not None:
                time.sleep(delays[job[0] * parts + job[1]])
                shared.deliver(*job, part(7))

        for n in range(3):
            crew.start(f"runner-{n}", run)
        for n in range(2):
            crew.start(f"encode-{n}", encode)
        got = []
        for index, _ in shared.in_order(threading.Event()):
            got.append(index)
            time.sleep(delays[-len(got)])
        assert got == [index for index in range(segments) for _ in range(parts)]
