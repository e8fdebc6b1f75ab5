"""A stand-in for pynvml: one GPU that says of itself what an H200 at work might. Named so that nobody takes it for one."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

from gpupipe.device import nvml

if TYPE_CHECKING:
    import pytest

NAME, UUID = "NVML double", "GPU-00000000-0000-0000-0000-00000000d0b1"


class NVMLError(Exception):
    """As pynvml's."""


def refuses(*_: object) -> object:
    """What pynvml does where a GPU does not say."""
    raise NVMLError("Not Supported")


def install(patch: pytest.MonkeyPatch, **changes: object) -> None:
    """`import pynvml` gives the double from now on; `changes` are functions of its own."""
    module = ModuleType("pynvml")
    said = {
        "NVMLError": NVMLError,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_VIDEO": 3,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetName": lambda _: NAME,
        "nvmlDeviceGetUUID": lambda _: UUID.encode(),  # as older bindings have it
        "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=97, memory=31),
        "nvmlDeviceGetDecoderUtilization": lambda _: [88, 166_000],
        "nvmlDeviceGetEncoderUtilization": refuses,  # an H200 has no NVENC
        "nvmlDeviceGetJpgUtilization": lambda _: [0, 166_000],
        "nvmlDeviceGetPowerUsage": lambda _: 412_500,
        "nvmlDeviceGetEnforcedPowerLimit": lambda _: 700_000,
        "nvmlDeviceGetTemperature": lambda *_: 63,
        "nvmlDeviceGetTemperatureThreshold": lambda *_: 90,
        "nvmlDeviceGetClockInfo": lambda _, clock: {1: 1980, 3: 1500}[clock],
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=12_800 << 20, total=143_771 << 20),
    }
    for name, value in (said | changes).items():
        setattr(module, name, value)
    patch.setitem(sys.modules, "pynvml", module)
    patch.setattr(nvml, "_handle", lambda *_: "handle")
