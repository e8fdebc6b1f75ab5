"""Host memory for encoded pictures that wait for the writer: taken once, as planned, and used again and again."""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from bisect import bisect_right
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import av
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from gpupipe.codecs.base import Packet

SLAB = 2 << 20
"""Bytes of a slab, which holds pictures of one segment: those are written, and so given up, one after another."""
_PADDING = 64
"""Bytes behind a packet that libav's readers may touch."""


class Slabs:
    """Keeps packets in slabs of its own instead of wherever the encoder put them.

    The C library gives memory of packets that wait by the hundred back when it likes, and what the process holds would
    depend on how far segments happen to be apart. Pages are touched here, so it holds them from the start.

    Args:
        size: bytes, rounded down to whole slabs.
    """

    def __init__(self, size: int) -> None:
        count = max(1, size // SLAB)
        try:
            self._memory: NDArray[np.uint8] = np.frombuffer(mmap.mmap(-1, count * SLAB), np.uint8)
        except OSError as error:
            raise MemoryError(str(error)) from None
        self._memory[:: mmap.PAGESIZE] = 0
        self._free = deque(range(count))
        self._open: dict[int, _OpenSlab] = {}
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self._memory)

    @property
    def free(self) -> int:
        """Bytes of slabs that nobody uses."""
        return len(self._free) * SLAB

    def keep(self, segment: int, packets: Sequence[Packet]) -> list[Packet]:
        """The same packets in slabs; those for which there is no room as they are.

        Of encoders to which every picture stands alone: of a packet its data, times and key flag are kept.
        """
        with self._lock:
            runs = [run for neighbours in _neighbours(packets) for run in self._runs(segment, neighbours)]
        return [one for place, run in runs for one in (run if place is None else _moved(run, place))]

    def close(self, segment: int) -> None:
        """No more packets of a segment come: its last slab is free when they are gone."""
        with self._lock:
            self._open.pop(segment, None)

    def _runs(self, segment: int, packets: Sequence[Packet]) -> Iterator[tuple[Any, Sequence[Packet]]]:
        """Places, each for as many of the packets as one slab still takes; None where there is none."""
        while packets:
            slab = self._open_slab(segment, packets[0].size)
            ends = list(accumulate(packet.size for packet in packets))
            count = 1 if slab is None else bisect_right(ends, SLAB - _PADDING - slab.used)
            place = None if slab is None else slab.take(ends[count - 1])
            yield place, packets[:count]
            packets = packets[count:]

    def _open_slab(self, segment: int, size: int) -> _OpenSlab | None:
        """The one that a segment's packets go to, with room for so many bytes; None where there is none."""
        if not 0 < size <= SLAB - _PADDING:
            return None
        slab = self._open.get(segment)
        if slab is None or slab.used + size + _PADDING > SLAB:
            memory = self._slab()
            if memory is None:
                return None
            slab = self._open[segment] = _OpenSlab(memory)
        return slab

    def _slab(self) -> Any:
        """An array that is free again when nobody refers to it any more."""
        try:
            number = self._free.pop()
        except IndexError:
            return None
        slab: Any = self._memory[number * SLAB : (number + 1) * SLAB]
        weakref.finalize(slab, self._free.append, number).atexit = False
        return memoryview(slab)  # whose parts refer to the slab, where those of an array refer to the memory


class _OpenSlab:
    """The slab that is being filled with a segment's packets."""

    def __init__(self, memory: Any) -> None:
        self._memory, self.used = memory, 0

    def take(self, size: int) -> Any:
        """The next bytes of it."""
        begin, self.used = self.used, self.used + size + _PADDING
        return self._memory[begin : begin + size]


def _neighbours(packets: Sequence[Packet]) -> Iterator[Sequence[Packet]]:
    """Packets whose data lie one behind the other, as those of a batch do."""
    begin = 0
    for at in range(1, len(packets) + 1):
        if at == len(packets) or packets[at].buffer_ptr != packets[at - 1].buffer_ptr + packets[at - 1].size:
            yield packets[begin:at]
            begin = at


def _moved(packets: Sequence[Packet], place: Any) -> Iterator[Packet]:
    data: Any = (ctypes.c_uint8 * len(place)).from_address(packets[0].buffer_ptr)
    np.frombuffer(place, np.uint8)[:] = np.frombuffer(data, np.uint8)  # lets go of Python's lock: once for all of them
    at = 0
    for packet in packets:
        part: Any = place[at : at + packet.size]  # PyAV's types do not say that a packet is made from any buffer
        moved = av.Packet(part)
        moved.pts, moved.dts, moved.duration = packet.pts, packet.dts, packet.duration
        moved.is_keyframe = packet.is_keyframe
        if packet.time_base:
            moved.time_base = packet.time_base
        at += packet.size
        yield moved
