"""What NVML says while something runs: how busy the GPU and its video engines are."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, fields
from statistics import median
from typing import Self

from gpupipe.bench.record import Utilisation
from gpupipe.device.nvml import GpuGauge

INTERVAL = 0.05
"""Seconds between samples."""
SETTLE = 0.5
"""Seconds after the start that are left out: what NVML says follows what happens by about that much."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    values: dict[str, float | None]


class Sampler:
    """Asks NVML again and again, in a thread, while it is entered.

    Args:
        device: `cpu` or `cuda:N`; `reason` says why nothing can be asked, where that is so.
    """

    def __init__(self, device: str) -> None:
        self._samples: list[_Sample] = []
        self._over = threading.Event()
        self._gauge = GpuGauge(device)
        self.reason = self._gauge.reason

    def __enter__(self) -> Self:
        self._samples.clear()
        self._over.clear()
        self._thread = threading.Thread(target=self._work, name="nvml", daemon=True)
        if self.reason is None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self.reason is None:
            self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(INTERVAL):
            self._samples.append(_Sample(time.monotonic(), self._gauge.read()))

    def between(self, began: float, ended: float) -> list[dict[str, float | None]]:
        """Samples from shortly after `began` to `ended`, on the clock of `time.monotonic`."""
        return [s.values for s in self._samples if began + SETTLE <= s.at <= ended]


def summed_up(samples: list[dict[str, float | None]]) -> Utilisation | None:
    """Medians; None where there is no sample."""
    if not samples:
        return None
    found: dict[str, float | None] = {}
    for field in fields(Utilisation):
        if field.name != "samples":
            values = [value for sample in samples if (value := sample.get(field.name)) is not None]
            found[field.name] = round(median(values), 1) if values else None
    return Utilisation(**found, samples=len(samples))
