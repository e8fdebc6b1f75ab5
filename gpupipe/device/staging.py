"""Pinned host memory for bytes whose number changes from batch to batch: bitstreams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from gpupipe.device.base import Lane


class PinnedBytes:
    """One pinned buffer, grown when needed.

    Args:
        lane: where the copies run.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def room(self, size: int) -> torch.Tensor:
        """That many bytes of it, for whoever copies by himself; they hold until the next call of either."""
        if self._buffer.numel() < size:
            more = size * 5 // 4  # sizes vary a little: pinning is slow and should be rare
            self._buffer = torch.empty(more, dtype=torch.uint8, pin_memory=self._lane.device != "cpu")
        return self._buffer[:size]

    def all(self) -> torch.Tensor:
        """All of it, as `room` gives it."""
        return self._buffer

    def fetch(self, data: torch.Tensor) -> torch.Tensor:
        """The same uint8 data on the host, once the copy is done; it holds until the next call."""
        if self._lane.device == "cpu":
            return data
        here = self.room(data.numel())
        with self._lane.active():
            here.copy_(data, non_blocking=True)
        self._lane.synchronize()
        return here
