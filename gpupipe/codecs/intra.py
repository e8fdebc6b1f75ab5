"""What encoders share that code every picture by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import av

if TYPE_CHECKING:
    from fractions import Fraction

    from gpupipe.codecs.base import Packet
    from gpupipe.frame import FrameBatch


def intra_packet(batch: FrameBatch, row: int, data: Any, time_base: Fraction) -> Packet:
    """A packet of picture `row` of a batch, coded as `data` (bytes-like): a key frame, decoded when it is shown."""
    packet = av.Packet(data)
    packet.pts = packet.dts = batch.pts[row]
    packet.duration = batch.durations[row] if row < len(batch.durations) else 0
    packet.time_base, packet.is_keyframe = time_base, True
    return packet
