"""CUDA: a stream of work, pinned rings between host and device, and tensors over memory of other libraries."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from gpupipe.device.driver import enter_context
from gpupipe.errors import CapabilityError, device_failure, first_line

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpupipe.device.base import Lane
    from gpupipe.format import FrameFormat
    from gpupipe.frame import FrameBatch


class CudaLane:
    """One CUDA stream in torch's primary context; meets `base.Lane`.

    Args:
        device: cuda:N.
        priority: 0 or less; of kernels that wait for room on the GPU those of the lowest number go first.

    Raises DeviceError where torch was built without CUDA or cannot use that GPU.
    """

    def __init__(self, device: str, *, priority: int = 0) -> None:
        self.device = device
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
            enter_context(torch.device(device).index or 0)
            self.stream: Any = torch.cuda.Stream(device=device, priority=priority)  # type: ignore[no-untyped-call]
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            message = f"torch cannot use {device}: {first_line(error)}"
            raise CapabilityError(message, hint="install a CUDA build of torch") from None
        self.handle = int(self.stream.cuda_stream)

    def active(self) -> AbstractContextManager[object]:
        """See `base.Lane`."""
        return torch.cuda.stream(self.stream)

    def record(self) -> torch.cuda.Event:
        """See `base.Lane`."""
        event: torch.cuda.Event = self.stream.record_event()
        return event

    def wait(self, event: object | None) -> None:
        """See `base.Lane`."""
        if isinstance(event, torch.cuda.Event):
            self.stream.wait_event(event)

    def synchronize(self) -> None:
        """See `base.Lane`. Raises DeviceError where the GPU failed."""
        try:
            self.stream.synchronize()
        except RuntimeError as error:
            raise device_failure(f"{self.device} failed: {first_line(error)}") from None


def current_stream(device: str) -> int:
    """The cudaStream_t that this thread's work on a GPU goes to now, for libraries that want to be told."""
    return int(torch.cuda.current_stream(device).cuda_stream)


def release_spare() -> None:
    """Gives memory that torch keeps for later back to the GPU; waits for its work."""
    with suppress(RuntimeError):  # after an error of the GPU nothing works, and that error is told
        torch.cuda.empty_cache()


def plane_dtype(source: FrameFormat) -> torch.dtype:
    """The dtype of a format's planes, but for alpha."""
    if source.pixels.layout == "float":
        return torch.float16 if source.pixels.depth == 16 else torch.float32
    return torch.uint8 if source.pixels.depth == 8 else torch.uint16


def _empty_planes(source: FrameFormat, rows: int, *, pinned: bool) -> tuple[torch.Tensor, ...]:
    shapes = source.plane_shapes
    kinds = [plane_dtype(source)] * len(shapes)
    if source.alpha:
        kinds[-1] = torch.uint8 if source.alpha == 8 else torch.uint16
    return tuple(
        torch.empty((rows, *shape), dtype=kind, pin_memory=pinned) for shape, kind in zip(shapes, kinds, strict=True)
    )


@dataclass(slots=True)
class _Slot:
    planes: tuple[torch.Tensor, ...]
    busy: Any = None
    """Event after which its last copy is done."""


class PinnedRing:
    """Pinned host memory for a few batches of one format, for copies that run beside other work.

    Args:
        source: format of the batches; its `device` does not matter.
        lane: where the copies run.
        slots: batches in flight.
        rows: pictures a batch.
    """

    def __init__(self, source: FrameFormat, lane: Lane, slots: int = 3, rows: int = 1) -> None:
        self._lane, self._next = lane, 0
        self._slots = [_Slot(_empty_planes(source, rows, pinned=lane.device != "cpu")) for _ in range(slots)]

    def _take(self) -> _Slot:
        slot = self._slots[self._next]
        self._next = (self._next + 1) % len(self._slots)
        if slot.busy is not None:
            slot.busy.synchronize()
        return slot

    def download(self, batch: FrameBatch) -> FrameBatch:
        """Copies a device batch to the host without waiting.

        The planes of the result hold the pictures once `ready` has passed, until `slots` further calls.
        """
        slot = self._take()
        self._lane.wait(batch.ready)
        planes = tuple(to[: batch.valid] for to in slot.planes)
        with self._lane.active():
            for to, plane in zip(planes, batch.planes, strict=True):
                to.copy_(plane[: batch.valid], non_blocking=True)
        slot.busy = self._lane.record()
        return batch.with_(format=batch.format.with_(device="cpu"), planes=planes, native=None, ready=slot.busy)

    def upload(self, batch: FrameBatch) -> FrameBatch:
        """Copies host planes to new tensors on the lane's device; the host planes are free on return."""
        slot = self._take()
        staged = tuple(to[: batch.valid] for to in slot.planes)
        for to, plane in zip(staged, batch.planes, strict=True):
            to.copy_(plane[: batch.valid])
        with self._lane.active():
            planes = tuple(plane.to(self._lane.device, non_blocking=True) for plane in staged)
        slot.busy = self._lane.record()
        format_ = batch.format.with_(device=self._lane.device)
        return batch.with_(format=format_, planes=planes, native=None, ready=slot.busy)


class _Memory:
    """Describes device memory of another library to torch (the CUDA array interface, version 3)."""

    def __init__(self, address: int, shape: tuple[int, ...], typestr: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def tensor_at(address: int, shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """A tensor over packed device memory that someone else owns; it does not keep that memory alive."""
    typestr = "|u1" if dtype == torch.uint8 else "<u2"
    return torch.as_tensor(_Memory(address, shape, typestr), device=device)


def surface_shape(source: FrameFormat, rows: int) -> tuple[int, ...]:
    """Shape of one tensor that holds `rows` packed surfaces as NVDEC lays them out: luma rows, then chroma rows."""
    width, height = source.width, source.height
    if source.pixels.layout == "planar":
        return (rows, 3, height, width)
    return (rows, height + (height + 1) // 2, width + (width & 1))


def surface_planes(whole: torch.Tensor, source: FrameFormat) -> tuple[torch.Tensor, ...]:
    """The planes, with a leading N, as views of a tensor of `surface_shape`."""
    if source.pixels.layout == "planar":
        return whole[:, 0], whole[:, 1], whole[:, 2]
    rows, lines, even = whole.shape
    chroma = whole[:, source.height :].view(rows, lines - source.height, even // 2, 2)
    return whole[:, : source.height, : source.width], chroma


def copy_of(batch: FrameBatch, lane: Lane) -> FrameBatch:
    """The same pictures in memory of their own, copied on the lane without waiting.

    For whoever keeps a decoder's surface beyond the next `decode`.
    """
    lane.wait(batch.ready)
    with lane.active():
        planes = tuple(plane.clone() for plane in batch.planes)
    return batch.with_(planes=planes, ready=lane.record())
