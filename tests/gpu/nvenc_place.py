"""Where NVENC's tests run, and over what."""

from __future__ import annotations

import ctypes
import os

HOST = os.environ.get("GPUPIPE_NVENC_HOST") == "1"
"""Set by tests/nvenc_shim/test_gpu_tests_on_host.py: NVENC's tests run on the CPU, with libcuda a test double too."""


def shim() -> ctypes.CDLL | None:
    """The test double of NVENC's driver library, where that is what the loader finds."""
    try:
        library = ctypes.CDLL("libnvidia-encode.so.1")
    except OSError:
        return None
    return library if hasattr(library, "nvenc_shim_copies") else None
