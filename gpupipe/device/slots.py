"""Static batches on the GPU: surfaces are copied in, one graph replay computes, and the result waits for its reader.

One asynchronous copy a picture and one replay a batch is all that Python does, which is what keeps up with every
decoder engine of a large GPU at once.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from gpupipe.device.cuda import plane_dtype, surface_planes, surface_shape
from gpupipe.device.graph import captured, uploaded
from gpupipe.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.device.cuda import CudaLane
    from gpupipe.format import FrameFormat

    Planes = tuple[torch.Tensor, ...]


class Slot:
    """Memory for one batch and the captured chain over it.

    Args:
        source: format of the surfaces.
        rows: pictures a batch.
        chain: the whole work on a batch, a pure function of planes.
        lane: where surfaces are copied.
        compute: where `chain` runs; it may be one lane for many slots.
        graphed: capture `chain` in a CUDA Graph; else it is called for each batch.
        pool: memory pool shared by all slots of `compute`, since their graphs never run at the same time.
        like: an earlier one of the same source, rows, chain, compute and pool: what its rehearsal compiled and put in
            caches is there. With networks a rehearsal is a second, and there are dozens of slots.

    Must be made before any decoder session opens: a capture beside a decoding thread is invalid.
    """

    def __init__(
        self, source: FrameFormat, rows: int, chain: Callable[[Planes], Planes], lane: CudaLane,
        compute: CudaLane, *, graphed: bool, pool: Any, like: Slot | None = None,
    ) -> None:  # fmt: skip
        self.rows, self._chain, self._lane, self._compute = rows, chain, lane, compute
        self._store, self.inputs = _store(source, rows)
        self._picture_bytes = self._store[0].numel() * self._store.element_size()
        first = self._store.data_ptr()
        self._places = tuple(range(first, first + rows * self._picture_bytes, self._picture_bytes))
        # PyDLL keeps the interpreter's lock: the call takes a microsecond, getting the lock back would take a thousand.
        self._memcpy = ctypes.PyDLL("libcuda.so.1").cuMemcpyDtoDAsync_v2
        self._memcpy.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
        self._stream = ctypes.c_void_p(lane.handle)
        self._graph: torch.cuda.CUDAGraph | None = None
        self.outputs: Planes = ()
        torch.cuda.current_stream(source.device).synchronize()  # what zeroes the batch
        with torch.inference_mode(), compute.active():
            shapes = self._rehearsed(graphed=graphed) if like is None else like.outputs
            if graphed:
                self._capture(pool, shapes)

    def _rehearsed(self, *, graphed: bool) -> Planes:
        """Compiles kernels and fills caches, which a capture must not see."""
        for _ in range(2):
            self.outputs = self._chain(self.inputs)
        self._compute.synchronize()
        if graphed:
            torch.cuda.empty_cache()  # a capture has memory of its own, and what was just used would lie beside it
        return self.outputs

    def _capture(self, pool: Any, shapes: Planes) -> None:
        graph = torch.cuda.CUDAGraph()
        # Slots share a pool, so one's temporary memory may be another's result: results are copied to
        # memory of their own, inside the graph.
        kept = tuple(torch.empty_like(plane, memory_format=torch.contiguous_format) for plane in shapes)
        with captured(graph, self._compute, pool):
            for ours, plane in zip(kept, self._chain(self.inputs), strict=True):
                ours.copy_(plane)
        uploaded(graph, self._compute)
        self._graph, self.outputs = graph, kept

    def copy(self, row: int, address: int) -> None:
        """Copies a packed surface into `row`, in order on the lane; the surface must not change until that is done."""
        status = self._memcpy(self._places[row], address, self._picture_bytes, self._stream)
        if status:
            raise DeviceError(f"copy of a decoded surface failed (CUDA error {status})", where=self._lane.device)

    def fill(self, row: int, planes: Planes) -> None:
        """Copies the planes of a batch of one into `row`, on the lane."""
        with self._lane.active():
            for ours, plane in zip(self.inputs, planes, strict=True):
                ours[row].copy_(plane[0])

    def run(self) -> torch.cuda.Event:
        """Gives the chain over this batch to `compute`; `outputs` are valid once the event has passed."""
        if self._compute is not self._lane:
            self._compute.wait(self._lane.record())
        if self._graph is not None:
            with self._compute.active():
                self._graph.replay()
        else:
            with torch.inference_mode(), self._compute.active():
                self.outputs = self._chain(self.inputs)
        return self._compute.record()


def _store(source: FrameFormat, rows: int) -> tuple[torch.Tensor, Planes]:
    """One tensor that holds packed surfaces, and the planes as views of it. Zeroed: a short batch has defined rows."""
    whole = torch.zeros(surface_shape(source, rows), dtype=plane_dtype(source), device=source.device)
    return whole, surface_planes(whole, source)
