"""Counting copies from what a profiler says; the real one is asked in tests/gpu/test_audit_gpu.py."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpupipe.device import copies
from gpupipe.device.copies import Copies, CopyWatch
from gpupipe.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator


def event(name: str, size: int | None = None) -> SimpleNamespace:
    """As torch 2.11 gave them on an H200."""
    told = '"device": 0, "context": 1,\n      "stream": 7, "correlation": 67'
    if size is not None:
        told += f',\n      "bytes": {size}, "memory bandwidth (GB/s)": 53.07'
    return SimpleNamespace(name=lambda: name, metadata_json=lambda: told)


SEEN = [
    event("cudaMemcpyAsync"), event("Memcpy HtoD (Pinned -> Device)", 1000), event("Memcpy HtoD (Pageable -> Device)", 5),
    event("ConvertNV12BLtoNV12"), event("Memcpy DtoH (Device -> Pinned)", 70), event("Memset (Device)", 9999),
    event("Memcpy DtoD (Device -> Device)", 3_110_400), event("Memcpy PtoP (Device -> Device)", 8),
    event("Memcpy HtoH (Pinned -> Pinned)", 3),
]  # fmt: skip


def test_bytes_by_direction() -> None:
    found = Copies()
    found.add(SEEN)
    assert found == Copies(1005, 70, 3_110_408)


def test_a_copy_of_unknown_size_is_an_error() -> None:
    with pytest.raises(DeviceError, match="how many bytes"):
        Copies().add([event("Memcpy HtoD (Pinned -> Device)")])


class Windows(CopyWatch):
    """A profiler that sees the same in every window; somebody goes on at the first change of windows."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__("cuda", self.change)
        self.clock, self.opened, self.changing, self.stood = clock, 0, False, iter([False, True, True, True])

    @contextmanager
    def change(self) -> Iterator[bool]:
        self.changing = True
        yield next(self.stood)
        self.changing = False

    def _open(self) -> None:
        self.opened += 1
        assert self.changing or self.opened == 1
        self._window = self.clock[0]

    def _close(self) -> list[SimpleNamespace]:
        self.clock[0] += 1.0
        return SEEN


def test_windows_bound_what_is_held_and_nothing_goes_on_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(copies.time, "monotonic", lambda: clock[0])
    watch = Windows(clock)
    watch.start()
    for n in range(119):
        clock[0] += 1.0
        watch.tick(n)
    watch.tick(119 + copies.FRAMES)
    clock[0] += 1.0
    watch.stop()
    assert watch.opened == 5  # three times for the seconds, once for the frames
    assert watch.copies.to_device == 5 * 1005
    assert watch.blind == 1


def test_sizes_are_told_in_words() -> None:
    found = Copies()
    found.add(SEEN)
    assert found.mostly("to_device") == "1,000 bytes in 1 of 512 or more each and 5 bytes in 1 of 4 or more each"
    assert found.mostly("to_host") == "70 bytes in 1 of 64 or more each"
    assert Copies().mostly("to_host") == ""
