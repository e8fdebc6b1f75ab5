"""Devices: which one to use, and a lane of work on it. The only place for streams, events and pinned memory."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from gpupipe.device.driver import driver, enter_context
from gpupipe.errors import CapabilityError, DeviceError

if TYPE_CHECKING:
    from gpupipe.device.base import Lane

NAMES = re.compile(r"auto|cpu|cuda(:[0-9]{1,4})?")
"""What a device may be called."""


def pick_device(wanted: str) -> str:
    """`cpu` or `cuda:N` for `auto`, `cpu`, `cuda` or `cuda:N`; torch is not imported.

    Raises DeviceError where a GPU was asked for by name and there is none such.
    """
    if wanted == "cpu":
        return "cpu"
    found = driver()
    if wanted == "auto":
        return "cuda:0" if found.gpus else "cpu"
    if not NAMES.fullmatch(wanted):
        raise DeviceError(f"no device is called {wanted!r}", where="device", hint="auto, cpu, cuda or cuda:N")
    if not found.gpus:
        reason = found.reason or "this machine has no NVIDIA GPU"
        raise CapabilityError(
            f"{wanted} was asked for, but {reason}", where="device", hint="use `device: cpu` or `auto`"
        )
    index = int(wanted.partition(":")[2] or 0)
    if index >= len(found.gpus):
        have = f"{len(found.gpus)} GPU{'s' * (len(found.gpus) > 1)}"
        raise CapabilityError(
            f"{wanted} was asked for, but there is only {have}", where="device", hint="count from cuda:0"
        )
    return f"cuda:{index}"


def pick_devices(wanted: tuple[str, ...] | str) -> tuple[str, ...]:
    """Names of GPUs, each once, for `all` or a list of names.

    Raises CapabilityError where there is none such.
    """
    if wanted == "all":
        count = len(driver().gpus)
        return tuple(f"cuda:{n}" for n in range(count)) if count else (pick_device("cuda"),)
    return tuple(pick_device(one) for one in wanted)


def open_lane(device: str, *, priority: int = 0) -> Lane:
    """A lane of ordered work on `cpu` or `cuda:N`. Raises DeviceError where torch cannot use that GPU.

    See `cuda.CudaLane` for `priority`; the CPU has none.
    """
    if device == "cpu":
        from gpupipe.device.cpu import CpuLane  # noqa: PLC0415

        return CpuLane()
    from gpupipe.device.cuda import CudaLane  # noqa: PLC0415  imports torch

    return CudaLane(device, priority=priority)


def enter_device(device: str) -> None:
    """Makes a GPU's context this thread's current one; nothing on the CPU."""
    if device != "cpu":
        enter_context(int(device.partition(":")[2] or 0))


def release(device: str) -> None:
    """Gives what a run took of a GPU's memory, and torch keeps for another, back to it; nothing on the CPU."""
    if device != "cpu" and "torch" in sys.modules:
        from gpupipe.device.cuda import release_spare  # noqa: PLC0415  imports torch

        release_spare()
