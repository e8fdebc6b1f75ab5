"""What the NVIDIA driver says of itself and its GPUs, asked directly: no torch, no package, a few milliseconds."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME_BYTES = 96
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU that CUDA may use (CUDA_VISIBLE_DEVICES counts)."""

    index: int
    name: str
    memory_bytes: int
    compute_capability: str
    """Such as `9.0`."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver of this machine; `reason` says why there are no GPUs."""

    version: str | None
    """Such as `580.159.04`, from NVML."""
    cuda: str | None
    """Newest CUDA version it runs, such as `13.0`."""
    gpus: tuple[Gpu, ...] = ()
    reason: str | None = None


def _nvml_version() -> str | None:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    if nvml.nvmlInit_v2() != 0:
        return None
    text = ctypes.create_string_buffer(_NAME_BYTES)
    failed = nvml.nvmlSystemGetDriverVersion(text, _NAME_BYTES)
    nvml.nvmlShutdown()
    return None if failed else text.value.decode()


def _gpu(cuda: ctypes.CDLL, index: int) -> Gpu:
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, _NAME_BYTES, device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device)
    return Gpu(index, name.value.decode(), memory.value, f"{major.value}.{minor.value}")


@lru_cache(maxsize=1)
def driver() -> Driver:
    """Asks once a process; never raises."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Driver(None, None, reason="no NVIDIA driver: libcuda.so.1 is not installed")
    version = _nvml_version()
    status = cuda.cuInit(0)
    if status != 0:
        return Driver(version, None, reason=f"the NVIDIA driver does not start (cuInit returned {status})")
    number, count = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    cuda.cuDeviceGetCount(ctypes.byref(count))
    gpus = tuple(_gpu(cuda, i) for i in range(count.value))
    reason = None if gpus else "the NVIDIA driver shows no GPU"
    return Driver(version, f"{number.value // 1000}.{number.value % 1000 // 10}", gpus, reason)


@contextmanager
def same_context(*, clean_after_error: bool = False) -> Iterator[None]:
    """Keeps this thread's current CUDA context as it is.

    Some libraries leave a context of their own current, and whatever torch makes after that, streams first of all,
    belongs to the wrong one.

    Args:
        clean_after_error: destroys the context that a failed call left behind. For PyNvVideoCodec's `GetEncoderCaps`,
            which leaks one, and half a GiB of the GPU with it, wherever there is no NVENC.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:  # no driver, no context
        yield
        return
    before, after = ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuCtxGetCurrent(ctypes.byref(before))
    try:
        yield
    except Exception:
        cuda.cuCtxGetCurrent(ctypes.byref(after))
        if clean_after_error and after.value not in {None, before.value}:
            cuda.cuCtxDestroy_v2(after)
        raise
    finally:
        cuda.cuCtxSetCurrent(before)


@lru_cache(maxsize=64)
def primary_context(gpu: int) -> int:
    """The CUcontext that CUDA's runtime, and so torch, uses on a GPU; it stays until the process ends."""
    cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    cuda.cuInit(0)  # nothing where it was done
    cuda.cuDeviceGet(ctypes.byref(device), gpu)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    return context.value or 0


def enter_context(gpu: int) -> None:
    """Makes a GPU's primary context this thread's current one."""
    ctypes.CDLL("libcuda.so.1").cuCtxSetCurrent(ctypes.c_void_p(primary_context(gpu)))


def free_memory(gpu: int) -> int | None:
    """Bytes of a GPU's memory that are free; None where it cannot be asked. What torch keeps for later is not free."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    with same_context():
        enter_context(gpu)
        status = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return None if status else free.value
