"""A segment that is rendered again after it was written in part: only what is new of it is written."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from gpupipe.errors import MediaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpupipe.codecs.base import Packet
    from gpupipe.render.board import Part


class Given:
    """What the writer got of the segment that it is writing.

    Args:
        exact: packets refer to each other, so that a repetition must give the same ones.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._shown = 0
        self._pts, self._sizes = array("q"), array("q")
        self._shown_at = self._at = 0

    def rewind(self) -> None:
        """The segment comes again from its beginning."""
        self._shown_at = self._at = 0

    def new_of(self, part: Part) -> Part:
        """The part without what was given before. Raises MediaError where the repetition is not exact."""
        before = max(0, min(len(part.pts), self._shown - self._shown_at))
        self._shown_at += len(part.pts)
        self._shown = max(self._shown, self._shown_at)
        if self._at == len(self._pts):
            self._remember(part.packets)
            packets = part.packets
        else:
            packets = [packet for packet in part.packets if self._is_new(packet)]
        if len(packets) == len(part.packets) and not before:
            return part
        return replace(part, packets=packets, pts=part.pts[before:])

    def _remember(self, packets: Sequence[Packet]) -> None:
        # Lists: a generator would be a call a packet.
        self._pts.extend([packet.pts for packet in packets])  # type: ignore[misc]  # encoders give it to every packet
        self._sizes.extend([packet.size for packet in packets])
        self._at = len(self._pts)

    def _is_new(self, packet: Packet) -> bool:
        at, self._at = self._at, self._at + 1
        if at == len(self._pts):
            self._remember((packet,))
            return True
        if packet.pts != self._pts[at] or (self._exact and packet.size != self._sizes[at]):
            raise MediaError(
                "memory was short, and this encoder does not give the same bytes again", where=f"pts {packet.pts}",
                hint="give the run fewer `sessions` or more memory from the start",
            )  # fmt: skip
        return False
