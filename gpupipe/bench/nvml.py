"""What NVML says while something runs: how busy the GPU and its video engines are."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, fields
from statistics import median
from typing import TYPE_CHECKING, Any, Self

from gpupipe.bench.record import Utilisation
from gpupipe.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL = 0.05
"""Seconds between samples."""
SETTLE = 0.5
"""Seconds after the start that are left out: what NVML says follows what happens by about that much."""


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    values: dict[str, float | None]


def _readers(nvml: Any, handle: Any) -> dict[str, Callable[[], float]]:
    """By the names of `Utilisation`'s fields."""
    return {
        "gpu": lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "memory": lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).memory),
        "nvdec": lambda: float(nvml.nvmlDeviceGetDecoderUtilization(handle)[0]),
        "nvenc": lambda: float(nvml.nvmlDeviceGetEncoderUtilization(handle)[0]),
        "nvjpg": lambda: float(nvml.nvmlDeviceGetJpgUtilization(handle)[0]),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "sm_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "video_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_VIDEO)),
        "memory_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20,
    }


class Sampler:
    """Asks NVML again and again, in a thread, while it is entered.

    Args:
        device: `cpu` or `cuda:N`; `reason` says why nothing can be asked, where that is so.
    """

    def __init__(self, device: str) -> None:
        self.reason: str | None = None
        self._samples: list[_Sample] = []
        self._over = threading.Event()
        self._readers: dict[str, Callable[[], float]] = {}
        self._failure: type[Exception] = Exception
        if device == "cpu":
            self.reason = "this run has no GPU"
            return
        try:
            import pynvml  # noqa: PLC0415  optional
        except ImportError:
            self.reason = "nvidia-ml-py is not installed (pip install 'gpupipe[metrics]')"
            return
        try:
            pynvml.nvmlInit()
            self._readers, self._failure = _readers(pynvml, _handle(pynvml, device)), pynvml.NVMLError
        except pynvml.NVMLError as error:
            self.reason = f"NVML refuses: {first_line(error)}"

    def __enter__(self) -> Self:
        self._samples.clear()
        self._over.clear()
        self._thread = threading.Thread(target=self._work, name="nvml", daemon=True)
        if self._readers:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._readers:
            self._thread.join()

    def _work(self) -> None:
        while not self._over.wait(INTERVAL):
            self._samples.append(_Sample(time.monotonic(), {name: self._ask(name) for name in self._readers}))

    def _ask(self, name: str) -> float | None:
        try:
            return self._readers[name]()
        except self._failure:  # this GPU does not say
            return None

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


def _handle(nvml: Any, device: str) -> Any:
    """NVML counts GPUs otherwise than CUDA; the UUID is the same for both."""
    import torch  # noqa: PLC0415

    uuid = torch.cuda.get_device_properties(device).uuid
    return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
