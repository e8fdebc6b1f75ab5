"""NVIDIA's nvJPEG library by ctypes: found, loaded, its encoder's calls declared as in nvjpeg.h of CUDA 12 and 13."""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpupipe.errors import CapabilityError, device_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

HINT = "pip install 'gpupipe[gpu]'"
NAMES = ("libnvjpeg.so.13", "libnvjpeg.so.12")

STATUS = (
    "SUCCESS", "NOT_INITIALIZED", "INVALID_PARAMETER", "BAD_JPEG", "JPEG_NOT_SUPPORTED", "ALLOCATOR_FAILURE",
    "EXECUTION_FAILED", "ARCH_MISMATCH", "INTERNAL_ERROR", "IMPLEMENTATION_NOT_SUPPORTED", "INCOMPLETE_BITSTREAM",
)  # fmt: skip
"""nvjpegStatus_t."""
SUBSAMPLING = {(0, 0): 0, (1, 0): 1, (1, 1): 2}
"""nvjpegChromaSubsampling_t by log2 of the horizontal and vertical chroma subsampling."""

_PTR, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_HANDLES = (_PTR, _PTR)  # of the library and an encoder state
_CALLS: dict[str, tuple[Any, ...]] = {
    "nvjpegGetProperty": (_INT, _PTR),
    "nvjpegCreateSimple": (_PTR,),
    "nvjpegEncoderStateCreate": (_PTR, _PTR, _PTR),
    "nvjpegEncoderStateDestroy": (_PTR,),
    "nvjpegEncoderParamsCreate": (_PTR, _PTR, _PTR),
    "nvjpegEncoderParamsDestroy": (_PTR,),
    "nvjpegEncoderParamsSetQuality": (_PTR, _INT, _PTR),
    "nvjpegEncoderParamsSetOptimizedHuffman": (_PTR, _INT, _PTR),
    "nvjpegEncoderParamsSetSamplingFactors": (_PTR, _INT, _PTR),
    "nvjpegEncodeYUV": (*_HANDLES, _PTR, _PTR, _INT, _INT, _INT, _PTR),
    "nvjpegEncodeRetrieveBitstream": (*_HANDLES, _PTR, _PTR, _PTR),
}
_WAITS = ("nvjpegEncodeYUV", "nvjpegCreateSimple", "nvjpegEncoderStateCreate", "nvjpegEncoderStateDestroy")
"""Calls that wait for the GPU: others may use Python meanwhile. The rest take microseconds, and to get Python's lock
back would take longer."""


class Calls(ctypes.Structure):
    """Addresses of the functions that `nvjpeg_batch.c` calls; the last is cuStreamSynchronize."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("encode", "retrieve", "wait")]


class Library:
    """The calls of one libnvjpeg, each of which returns a status for `check`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._handles: dict[str, ctypes.c_void_p] = {}
        self._lock = threading.Lock()
        waiting, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
        for name, arguments in _CALLS.items():
            function = getattr(waiting if name in _WAITS else quick, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def handle(self, device: str) -> ctypes.c_void_p:
        """The nvjpegHandle_t for a GPU, which must be the current one. It takes 0.3 s to make: lanes share it."""
        with self._lock:
            if device not in self._handles:
                made = ctypes.c_void_p()
                check(self.nvjpegCreateSimple(ctypes.byref(made)), "nvjpegCreateSimple", device)
                self._handles[device] = made
            return self._handles[device]

    def calls(self) -> Calls:
        """See `Calls`."""
        wait = ctypes.CDLL("libcuda.so.1").cuStreamSynchronize
        functions = (self.nvjpegEncodeYUV, self.nvjpegEncodeRetrieveBitstream, wait)
        return Calls(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))

    @property
    def version(self) -> str:
        """Such as `13.0.1`."""
        number, parts = ctypes.c_int(), []
        for part in range(3):  # libraryPropertyType: major, minor, patch
            check(self.nvjpegGetProperty(part, ctypes.byref(number)), "nvjpegGetProperty")
            parts.append(str(number.value))
        return ".".join(parts)


def check(status: int, call: str, where: str | None = None) -> None:
    """Raises DeviceError for any status but success."""
    if status:
        name = STATUS[status] if status < len(STATUS) else f"status {status}"
        hint = "the GPU's memory is full: fewer sessions need less of it" if name == "ALLOCATOR_FAILURE" else None
        raise device_failure(f"nvJPEG failed: {name} in {call}", where=where, hint=hint)


def _candidates() -> Iterator[str]:
    """The nvidia-nvjpeg wheel's, the one in torchvision's wheel, the system's, the CUDA toolkit's."""
    folders: list[Path] = []
    for package, inside in (("nvidia", "*/lib"), ("torchvision", "../torchvision.libs")):
        spec = importlib.util.find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            folders += sorted(Path(root).glob(inside), reverse=True) if "*" in inside else [Path(root, inside)]
    for folder in folders:
        for name in NAMES:
            stem, _, major = name.rpartition(".so.")
            yield from map(str, sorted(folder.glob(f"{stem}*.so.{major}")))
    yield from NAMES
    yield from (f"/usr/local/cuda/lib64/{name}" for name in NAMES)


@lru_cache(maxsize=1)
def _load() -> tuple[Library | None, str]:
    reason = "libnvjpeg is not installed"
    for path in _candidates():
        try:
            return Library(path), ""
        except OSError as error:
            if Path(path).is_absolute() and Path(path).exists():
                reason = f"libnvjpeg cannot be loaded: {error}"
        except AttributeError as error:
            reason = f"{path} is too old: {error}"
    return None, reason


def missing() -> str | None:
    """Why nvJPEG cannot be used here; None where it can."""
    found, reason = _load()
    return None if found else reason


def load() -> Library:
    """The library. Raises DeviceError where it is not installed."""
    found, reason = _load()
    if found is None:
        raise CapabilityError(reason, hint=HINT)
    return found
