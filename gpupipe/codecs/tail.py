"""The packets that a decoder was given last, so that pictures which its threads lose can be decoded once more."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import av
import av.error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpupipe.codecs.base import Packet

HELD = 48
"""Pictures that libav may hold: one for each of 17 threads, and as many as are reordered."""
MOST = 32 << 20
"""Bytes of packets that are kept for it."""


class Tail:
    """Packets from a key frame on that lies well before the pictures that a decoder still holds.

    At the end PyAV stops at the first damaged picture, and libav takes no second request: whatever its threads hold
    behind that one, up to 16 good pictures, would be lost.
    """

    def __init__(self) -> None:
        self._groups: deque[list[Packet]] = deque()
        """Each from a key frame on."""
        self._count = self._bytes = 0
        self._newest: int | None = None

    def clear(self) -> None:
        """The decoder holds nothing any more."""
        self._groups.clear()
        self._count = self._bytes = 0
        self._newest = None

    def add(self, packet: Packet) -> None:
        """A packet goes to the decoder."""
        if packet.is_keyframe:
            self._groups.append([])
        if not self._groups:
            return
        self._groups[-1].append(packet)
        self._count += 1
        self._bytes += packet.size
        # Leading pictures refer to the group before theirs, so that one is kept too.
        while len(self._groups) > 1 and self._count - len(self._groups[0]) - len(self._groups[1]) >= HELD:
            self._drop()
        while self._groups and self._bytes > MOST:
            self._drop()

    def _drop(self) -> None:
        first = self._groups.popleft()
        self._count -= len(first)
        self._bytes -= sum(packet.size for packet in first)

    def shown(self, pts: int | None) -> None:
        """A picture came out of the decoder."""
        self._newest = pts

    def missing(self) -> set[int]:
        """Times (pts) of pictures behind the last that came out; none where packets have no times to go by."""
        last = [packet for group in self._groups for packet in group][-HELD:]
        newest = self._newest
        found = set()
        for packet in last:
            if packet.pts is None:  # libav's times of pictures are then others than the packets'
                return set()
            if not packet.is_discard and (newest is None or packet.pts > newest):
                found.add(packet.pts)
        return found

    def again(
        self, context: av.VideoCodecContext, failed: Callable[[Packet, av.error.FFmpegError], None]
    ) -> Iterator[av.VideoFrame]:
        """Pictures of all packets that are kept, by a decoder of one thread that is set up as `context` was.

        `failed` is told of packets that cannot be decoded.
        """
        alone = av.CodecContext.create(context.name, "r")
        assert isinstance(alone, av.VideoCodecContext)
        alone.thread_type, alone.thread_count = "NONE", 1
        alone.width, alone.height, alone.codec_tag = context.width, context.height, context.codec_tag
        if context.pix_fmt is not None:
            alone.pix_fmt = context.pix_fmt
        if context.extradata is not None:
            alone.extradata = context.extradata
        for packet in (*(one for group in self._groups for one in group), None):
            try:
                yield from alone.decode(packet)
            except av.error.EOFError:
                return
            except av.error.FFmpegError as error:
                if packet is not None:
                    failed(packet, error)
