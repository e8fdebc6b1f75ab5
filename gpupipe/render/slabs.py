"""Host memory for encoded pictures that wait for the writer: taken once, as planned, and used again and again."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from bisect import bisect_right
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from gpupipe.codecs.intra import Placed, copied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gpupipe.codecs.base import Spans

SLAB = 2 << 20
"""Bytes of a slab, which holds pictures of one segment: those are written, and so given up, one after another."""
_PIECE = 32
"""Slabs whose pages are taken at a time."""
_PADDING = 64
"""Bytes behind a packet that libav's readers may touch."""
_end = itemgetter(1)


class Slabs:
    """Keeps bitstreams of encoders to which every picture stands alone, copied straight from where these make them.

    The C library gives memory of packets that wait by the hundred back when it likes, and what the process holds would
    depend on how far segments happen to be apart. Pages are touched before the first is used, so it holds them from the
    start: that takes most of a second, in which networks are loaded and decoders are opened. Another process can map
    it, see `writer_process`.

    Args:
        size: bytes, rounded down to whole slabs.
    """

    def __init__(self, size: int) -> None:
        count = max(1, size // SLAB)
        self.file = memory_file("gpupipe-slabs", count * SLAB)
        """Of the memory; -1 where no other process can have it."""
        if self.file >= 0:
            weakref.finalize(self, os.close, self.file)
        try:
            self._memory: NDArray[np.uint8] = np.frombuffer(mmap.mmap(self.file, count * SLAB), np.uint8)
        except OSError as error:
            raise MemoryError(str(error)) from None
        self.apart = False
        """Packets are `Placed`: another process writes them."""
        self._taking: threading.Thread | None = threading.Thread(
            target=_take, args=(self._memory, weakref.ref(self)), name="slabs", daemon=True
        )
        self._taking.start()
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

    def anew(self) -> None:
        """No more packets come of any segment that was begun."""
        with self._lock:
            self._open.clear()

    def keep(self, segment: int, data: NDArray[np.uint8], spans: Spans) -> list[Any]:
        """Meets `codecs.base.Keep` for a segment; what has no room gets memory of its own."""
        if self._taking is not None:
            self.taken()
        with self._lock:
            runs = list(self._runs(segment, spans))
        kept: list[tuple[int, memoryview]] = []
        for number, place, run in runs:
            begin, end = run[0][0], run[-1][1]
            if place is None:
                kept += [(-1, one) for one in copied(data, run)]
                continue
            np.frombuffer(place, np.uint8)[:] = data[begin:end]  # lets go of Python's lock: once for all of them
            kept += [(number + at - begin, place[at - begin : to - begin]) for at, to in run]
        return [Placed(*one) for one in kept] if self.apart else [memory for _, memory in kept]

    def taken(self) -> None:
        """Waits until the process holds all of the memory."""
        if (taking := self._taking) is not None:
            taking.join()
            self._taking = None

    def close(self, segment: int) -> None:
        """No more packets of a segment come: its last slab is free when they are gone."""
        with self._lock:
            self._open.pop(segment, None)

    def _runs(self, segment: int, spans: Spans) -> Iterator[tuple[int, memoryview | None, Spans]]:
        """Where places begin, and they, each for as many of the bitstreams as one slab still takes; None for none."""
        while spans:
            begin, end = spans[0]
            slab = self._open_slab(segment, end - begin)
            if slab is None:
                yield -1, None, spans[:1]
                spans = spans[1:]
                continue
            count = bisect_right(spans, begin + slab.left, key=_end)
            yield *slab.take(spans[count - 1][1] - begin), spans[:count]
            spans = spans[count:]

    def _open_slab(self, segment: int, size: int) -> _OpenSlab | None:
        """The one that a segment's bitstreams go to, with room for so many bytes; None where there is none."""
        if not 0 < size <= SLAB - _PADDING:
            return None
        slab = self._open.get(segment)
        if slab is None or slab.left < size:
            slab = self._slab()
            if slab is not None:
                self._open[segment] = slab
        return slab

    def _slab(self) -> _OpenSlab | None:
        """One that is free again when nobody refers to its memory any more."""
        try:
            number = self._free.pop()
        except IndexError:
            return None
        slab: Any = self._memory[number * SLAB : (number + 1) * SLAB]
        weakref.finalize(slab, self._free.append, number).atexit = False
        # A memoryview: its parts refer to the slab, where those of an array refer to all of the memory.
        return _OpenSlab(number * SLAB, memoryview(slab))


def memory_file(name: str, size: int) -> int:
    """Memory as an open file, which another process can map; -1 where the system has no such thing, or refuses it.

    A sandbox does, and so does a limit of open files, or one of their size, which says nothing about memory.
    """
    if not hasattr(os, "memfd_create"):
        return -1
    try:
        file = os.memfd_create(name)
    except OSError:
        return -1
    try:
        os.ftruncate(file, size)
    except OSError:
        os.close(file)
        return -1
    return file


def _take(memory: NDArray[np.uint8], slabs: weakref.ref[Slabs]) -> None:
    """Touches every page, for as long as anybody has the slabs; lets go of Python's lock."""
    for begin in range(0, len(memory), _PIECE * SLAB):
        if slabs() is None:
            return
        memory[begin : begin + _PIECE * SLAB : mmap.PAGESIZE] = 0


class _OpenSlab:
    """The slab that is being filled with a segment's bitstreams."""

    def __init__(self, begin: int, memory: memoryview) -> None:
        self._begin, self._memory, self._used = begin, memory, 0

    @property
    def left(self) -> int:
        """Bytes that it still takes."""
        return len(self._memory) - _PADDING - self._used

    def take(self, size: int) -> tuple[int, memoryview]:
        """The next bytes of it, and where they begin in all of the memory."""
        begin, self._used = self._used, self._used + size + _PADDING
        return self._begin + begin, self._memory[begin : begin + size]
