"""PyNvVideoCodec, NVIDIA's bindings of NVDEC and NVENC, imported only where it is needed."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from gpupipe.errors import CapabilityError, first_line

HINT = "pip install 'gpupipe[gpu]', and in a container NVIDIA_DRIVER_CAPABILITIES=compute,video,utility"


@lru_cache(maxsize=1)
def _import() -> tuple[Any, str | None]:
    try:
        return importlib.import_module("PyNvVideoCodec"), None
    except ImportError as error:
        reason = "PyNvVideoCodec is not installed" if error.name == "PyNvVideoCodec" else f"PyNvVideoCodec: {error}"
    except Exception as error:  # noqa: BLE001  it raises RuntimeError and its own types where driver libraries are missing
        reason = f"PyNvVideoCodec cannot be used: {first_line(error)}"
    return None, reason


def missing() -> str | None:
    """Why PyNvVideoCodec cannot be used here; None where it can."""
    return _import()[1]


def load() -> Any:
    """The PyNvVideoCodec module. Raises DeviceError where it cannot be imported."""
    module, reason = _import()
    if module is None:
        raise CapabilityError(str(reason), hint=HINT)
    return module


def encode_api(library: Any) -> tuple[int, int] | None:
    """The version of NVENC's API that the library works with, such as (12, 1); None where it does not say."""
    found = getattr(library, "supportedNvEncVersion", None)
    if not isinstance(found, int):
        return None
    version = (found >> 4, found & 15)
    return (13, 0) if version >= (13, 0) else (12, 1)


def gpu_index(device: str) -> int:
    """N of `cuda:N`."""
    return int(device.partition(":")[2] or 0)
