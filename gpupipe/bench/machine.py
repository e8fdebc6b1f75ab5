"""Where something is measured: processor, GPU, driver, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from pathlib import Path

from gpupipe.bench.record import Machine
from gpupipe.device.driver import driver

_PACKAGES = ("av", "numpy", "torch", "triton", "PyNvVideoCodec", "nvidia-nvjpeg", "nvidia-nvjpeg-cu12")


def machine(device: str) -> Machine:
    """This one. `device` is `cpu` or `cuda:N`: the GPU is named where it takes part."""
    gpu = None if device == "cpu" else driver().gpus[int(device.partition(":")[2] or 0)].name
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return Machine(_processor(), usable_cores(), gpu, None if gpu is None else driver().version, versions)


def usable_cores() -> int:
    """Of this process: containers and `taskset` give fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()
