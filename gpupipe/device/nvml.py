"""What NVML, the driver's own observer, says of a GPU: how busy, how full, how hot. It needs no CUDA context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpupipe.errors import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

Figures = dict[str, float | None]
"""By name; None where this GPU does not say. Shares are percent, 0 to 100.

gpu, memory: time in which a kernel ran, in which memory was read or written. nvdec, nvenc, nvjpg: over all engines of
the kind (nvjpg decodes; encoding JPEG is work of kernels). power_w, power_limit_w, temperature_c,
slowdown_c (where the GPU slows itself down). sm_mhz, video_mhz.
memory_mib, memory_total_mib: in use by everyone, and there are.
"""


def _readers(nvml: Any, handle: Any) -> dict[str, Callable[[], float]]:
    return {
        "gpu": lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
        "memory": lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).memory),
        "nvdec": lambda: float(nvml.nvmlDeviceGetDecoderUtilization(handle)[0]),
        "nvenc": lambda: float(nvml.nvmlDeviceGetEncoderUtilization(handle)[0]),
        "nvjpg": lambda: float(nvml.nvmlDeviceGetJpgUtilization(handle)[0]),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "temperature_c": lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        "slowdown_c": lambda: float(
            nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        ),
        "sm_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "video_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_VIDEO)),
        "memory_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used / 2**20,
        "memory_total_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**20,
    }


class GpuGauge:
    """Asks NVML about one GPU.

    Args:
        device: `cpu` or `cuda:N`.
    """

    def __init__(self, device: str) -> None:
        self.reason: str | None = None
        """Why nothing can be asked; None where it can."""
        self.name = self.uuid = ""
        """As the driver says."""
        self._readers: dict[str, Callable[[], float]] = {}
        self._failures: tuple[type[Exception], ...] = (AttributeError,)  # older bindings lack some calls
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
            handle = _handle(pynvml, device)
            self._readers = _readers(pynvml, handle)
            self._failures = (pynvml.NVMLError, AttributeError)
            self.name, self.uuid = _words(pynvml, handle)
        except pynvml.NVMLError as error:
            self.reason = f"NVML refuses: {first_line(error)}"

    def read(self) -> Figures:
        """Now; empty where nothing can be asked."""
        return {name: self._ask(name) for name in self._readers}

    def _ask(self, name: str) -> float | None:
        try:
            return self._readers[name]()
        except self._failures:  # this GPU does not say
            return None


def _words(nvml: Any, handle: Any) -> tuple[str, str]:
    """(name, UUID); older bindings give bytes."""
    try:
        found = (nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle))
    except (nvml.NVMLError, AttributeError):
        return "", ""
    name, uuid = (word.decode() if isinstance(word, bytes) else str(word) for word in found)
    return name, uuid


def _handle(nvml: Any, device: str) -> Any:
    """NVML counts GPUs otherwise than CUDA; the UUID is the same for both."""
    import torch  # noqa: PLC0415

    uuid = torch.cuda.get_device_properties(device).uuid
    return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
