"""Decoding times for encoders that give none: pictures go in by display order, packets come out by decoding order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gpupipe.errors import MediaError

if TYPE_CHECKING:
    from gpupipe.codecs.base import Packet


def reorder_depth(b_frames: int) -> int:
    """Most pictures that may come before another in decoding order and after it in display order.

    `b_frames` between two P pictures, as a binary tree of references: the deepest pyramid any encoder makes.
    """
    return b_frames.bit_length()


class DtsClock:
    """Stamps dts on packets: the i-th packet is due when the (i - depth)-th picture is shown.

    That is never later than its own pts, rises strictly because pts do, and needs no frame rate, so VFR stays as it is.
    The first `depth` packets are due before the first picture is shown, by the same distances as the pictures that
    follow it (x264 does likewise).

    Args:
        depth: see `reorder_depth`; 0 where packets come in display order.
        step: distance before the first picture for clips shorter than `depth`, in ticks, at least 1.
    """

    def __init__(self, depth: int, step: int = 1) -> None:
        self._depth, self._step = depth, max(1, step)
        self._first: list[int] = []
        """pts of the first depth + 1 pictures."""
        self._due: deque[int] = deque()
        """pts of pictures whose time has not been given to a packet yet."""
        self._last: int | None = None
        self._waiting: deque[Packet] = deque()
        self._stamped = 0

    def shown(self, pts: int) -> None:
        """A picture goes into the encoder. Raises MediaError where pts do not rise."""
        if self._last is not None and pts <= self._last:
            raise MediaError("pictures reached the encoder out of order", where=f"pts {pts} after {self._last}")
        self._last = pts
        if len(self._first) <= self._depth:
            self._first.append(pts)
        self._due.append(pts)

    def coded(self, packet: Packet) -> list[Packet]:
        """A packet came out; returns the packets whose dts is now known, in order."""
        self._waiting.append(packet)
        return self._ready(final=False)

    def drain(self) -> list[Packet]:
        """Returns what is left, after the encoder has given all."""
        return self._ready(final=True)

    def _ready(self, *, final: bool) -> list[Packet]:
        out = []
        while self._waiting and (final or self._stamped >= self._depth or len(self._first) > self._depth):
            packet = self._waiting.popleft()
            packet.dts = self._early() if self._stamped < self._depth else self._due.popleft()
            if packet.pts is None or packet.dts > packet.pts:
                raise MediaError("the encoder reordered pictures further than it said", where=f"pts {packet.pts}")
            self._stamped += 1
            out.append(packet)
        return out

    def _early(self) -> int:
        """When one of the first `depth` packets is due."""
        first = self._first
        if len(first) > self._depth:
            return first[self._stamped] - (first[self._depth] - first[0])
        return first[0] - (self._depth - self._stamped) * self._step
