"""The CPU as a device: work is done when the call returns, so nothing needs waiting for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


class CpuLane:
    """Meets `base.Lane`."""

    device = "cpu"
    handle = 0

    def active(self) -> AbstractContextManager[object]:
        """See `base.Lane`."""
        return nullcontext()

    def record(self) -> None:
        """See `base.Lane`."""

    def wait(self, event: object | None) -> None:
        """See `base.Lane`."""

    def synchronize(self) -> None:
        """See `base.Lane`."""
