"""What a runner puts into slots of the pictures that a decoder gives: those of its segment, at their times."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import pytest

from gpupipe.codecs.nvdec import Surface
from gpupipe.frame import NO_PTS
from gpupipe.journal import Journal
from gpupipe.media.segments import Segment
from gpupipe.media.timeline import FrameClock
from gpupipe.render.device_runner import Filled, Filling

ROWS, FIRST, OTHER = 4, object(), object()


class Slots:
    """Stands for a runner: keeps what every slot got, and how it was handed on."""

    format = FIRST

    def __init__(self) -> None:
        self.given: list[tuple[int, list[tuple], int]] = []

    def take_slot(self) -> SimpleNamespace:
        rows: dict[int, object] = {}
        return SimpleNamespace(rows=ROWS, held=rows, copy=rows.__setitem__, fill=rows.__setitem__)

    def scaled(self, surface: Surface, pts: int) -> SimpleNamespace:
        return SimpleNamespace(planes=("scaled", surface.address, pts))

    def submit(self, index: int, number: int, filled: Filled, lead: int) -> bool:
        assert index == 7
        held = [filled.slot.held[row] for row in range(len(filled.pts))]
        self.given.append((number, list(zip(held, filled.pts, filled.durations, strict=True)), lead))
        return lead < len(filled.pts)


def fill(segment: Segment, pictures: list[tuple[int, int, object]]) -> tuple[Slots, Filling, list[bool], int]:
    slots, journal = Slots(), Journal()
    filling = Filling(slots, 7, FrameClock(Fraction(1, 90), Fraction(30), journal), segment)  # type: ignore[arg-type]
    past = [filling.add(Surface(100 + n, form, pts, length)) for n, (pts, length, form) in enumerate(pictures)]
    return slots, filling, past, filling.finish()


@pytest.mark.parametrize("rows", range(1, 11))
@pytest.mark.parametrize(("begin", "start", "end"), [
    (None, None, None), (None, 12, 24), (6, 12, 24), (12, 12, None), (3, 21, 24), (0, 27, None), (None, None, 15),
])  # fmt: skip
def test_every_picture_of_the_window_once(begin: int | None, start: int | None, end: int | None, rows: int) -> None:
    pictures = [(3 * n + (n % 3 == 1), 3, FIRST) for n in range(rows)]
    slots, filling, past, parts = fill(Segment(start, end, 0, closed=True, lead=begin), pictures)
    low = min((one for one in (begin, start) if one is not None), default=0)
    wanted = [(100 + n, pts, length) for n, (pts, length, _) in enumerate(pictures)
              if pts >= low and (end is None or pts < end)]  # fmt: skip
    assert [one for _, held, _ in slots.given for one in held] == wanted
    assert all(len(held) == ROWS for _, held, _ in slots.given[:-1])
    leads = sum(pts < (start or 0) for _, pts, _ in wanted)
    assert sum(lead for *_, lead in slots.given) == leads
    assert (filling.decoded, filling.shown) == (rows, len(wanted) - leads)
    assert past == [end is not None and pts >= end for pts, *_ in pictures]
    shown = [number for number, held, lead in slots.given if lead < len(held)]
    assert shown == list(range(parts))  # what only leads in is no part


def test_times_are_repaired_and_other_sizes_scaled() -> None:
    pictures = [(30, 3, FIRST), (NO_PTS, 0, FIRST), (33, 3, OTHER), (33, 3, FIRST)]
    slots, _, _, parts = fill(Segment(None, None, 0, closed=True), pictures)
    assert parts == 1
    assert slots.given == [(0, [(100, 30, 3), (101, 33, 0), (("scaled", 102, 34), 34, 3), (103, 35, 3)], 0)]
