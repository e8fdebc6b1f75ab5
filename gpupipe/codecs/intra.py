"""What encoders share that code every picture by itself."""

from __future__ import annotations

from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import av

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    import numpy as np
    from numpy.typing import NDArray

    from gpupipe.codecs.base import Packet, Spans
    from gpupipe.frame import FrameBatch


class Placed:
    """Stands for a packet whose bytes another process finds; to make and to drop it never lets go of Python's lock.

    It has what `intra_packets` gives one of PyAV's.
    """

    __slots__ = ("at", "dts", "duration", "is_keyframe", "memory", "pts", "size", "time_base")
    pts: int
    dts: int
    duration: int
    time_base: Fraction
    is_keyframe: bool

    def __init__(self, at: int, memory: memoryview) -> None:
        self.at, self.memory, self.size = at, memory, len(memory)
        """Where it lies in the memory of both, -1 for elsewhere; its bytes, which it holds."""

    def __bytes__(self) -> bytes:
        return bytes(self.memory)


def plain(packet: Any) -> Packet:
    """One of PyAV's, which it is or stands for."""
    if not isinstance(packet, Placed):
        return packet  # type: ignore[no-any-return]
    found: Packet = av.Packet(packet.memory)  # type: ignore[arg-type]
    found.pts, found.dts, found.duration = packet.pts, packet.dts, packet.duration
    found.time_base, found.is_keyframe = packet.time_base, packet.is_keyframe
    return found


def copied(data: NDArray[np.uint8], spans: Spans) -> list[memoryview]:
    """Meets `base.Keep` with memory of its own for each call, as much as the bitstreams span."""
    first = spans[0][0]
    whole = memoryview(data[first : spans[-1][1]].copy())  # type: ignore[arg-type]
    return [whole[begin - first : end - first] for begin, end in spans]


def intra_packets(batch: FrameBatch, coded: Sequence[Any], time_base: Fraction) -> list[Packet]:
    """A packet of each picture of a batch, as `base.Keep` gave it: key frames, decoded when they are shown."""
    packets: list[Packet] = []
    durations = chain(batch.durations, repeat(0))  # some may be missing
    for data, pts, duration in zip(coded, batch.pts, durations, strict=False):
        packet: Any = data if isinstance(data, Placed) else av.Packet(data)
        packet.pts = packet.dts = pts
        packet.duration, packet.time_base, packet.is_keyframe = duration, time_base, True
        packets.append(packet)
    return packets
