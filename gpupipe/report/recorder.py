"""How a run went over time: samples of its lanes, of the GPU and of memory, taken in a thread of their own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from gpupipe.device.host import available_bytes, resident_bytes
from gpupipe.device.nvml import Figures, GpuGauge

if TYPE_CHECKING:
    from gpupipe.render.watch import Reading, Watch

INTERVAL = 0.5
"""Seconds between samples, at first."""
MOST = 1200
"""Samples that are kept: when there are more, every second one goes and the interval doubles."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment."""

    reading: Reading
    resident: int | None
    """Bytes of this process."""
    available: int | None
    """Bytes of host memory that are free."""
    gpu: Figures


class Recorder:
    """Samples a run while it is entered.

    Args:
        watch: of the run.
        device: `cpu` or `cuda:N`, the plan's.
    """

    def __init__(self, watch: Watch, device: str) -> None:
        self.samples: list[Sample] = []
        self.watch, self._gauge, self._interval = watch, GpuGauge(device), INTERVAL
        self.no_gpu = self._gauge.reason
        """Why there are no figures of a GPU; None where there are."""
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.take()

    def _work(self) -> None:
        self.take()
        while not self._over.wait(self._interval):
            self.take()
            if len(self.samples) > MOST:
                self.samples = self.samples[::2]
                self._interval *= 2

    def take(self) -> None:
        """One sample now."""
        self.samples.append(Sample(self.watch.read(), resident_bytes(), available_bytes(), self._gauge.read()))
