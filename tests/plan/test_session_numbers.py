"""How many sessions `sessions: auto` opens, and which numbers a bench tries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpupipe.bench import _numbers
from gpupipe.errors import PlanError
from gpupipe.plan.segments import _sessions


@pytest.mark.parametrize(
    ("codec", "frames", "heavy", "sessions"),
    [
        ("h264", 200_000, False, 14),  # two keep its decoders busy
        ("hevc", 99_999, False, 14),  # over before more have paid for their opening
        ("hevc", 100_000, False, 28),
        ("hevc", 100_000, True, 14),  # decoders wait for a network anyway
        ("hevc", 900, False, 3),
        ("hevc", 20, False, 1),
    ],
)
def test_sessions_by_codec_and_length(codec: str, frames: int, heavy: bool, sessions: int) -> None:
    info = SimpleNamespace(video=SimpleNamespace(codec=codec))
    assert _sessions(info, frames, 7, heavy=heavy) == sessions


@pytest.mark.parametrize(
    ("device", "room", "numbers"), [("cuda:0", 99, (1, 7, 14, 28)), ("cuda:0", 20, (1, 7, 14)), ("cpu", 99, (1, 7, 14))]
)
def test_a_bench_tries_twice_as_many_on_a_gpu_that_has_room(
    device: str, room: int, numbers: tuple[int, ...]
) -> None:  # fmt: skip
    class Subject:
        def plan(self, *, sessions: int) -> SimpleNamespace:
            if sessions > room:
                raise PlanError("no memory for so many", where="sessions")
            return SimpleNamespace(sessions=sessions)

    assert _numbers(Subject(), SimpleNamespace(device=device, sessions=14)) == numbers
