"""CUDA Graphs, captured and brought to the GPU without a run of what is in them."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpupipe.collector import no_collection

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from gpupipe.device.cuda import CudaLane


@contextmanager
def captured(graph: torch.cuda.CUDAGraph, lane: CudaLane, pool: Any) -> Iterator[None]:
    """What is given to `lane` inside goes into `graph`, which takes its memory from `pool`.

    Unlike `torch.cuda.graph` it neither waits for the whole GPU nor gives spare memory back, which costs more than the
    capture itself where many follow each other: whoever wants that does it once before.

    The garbage collector rests meanwhile. What it frees, such as the graphs of a run that failed, it frees in this
    thread if that happens to allocate; CUDA allows no thread that in its own capture, which is then invalid.
    """
    with no_collection(), lane.active():
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()


def uploaded(graph: torch.cuda.CUDAGraph, lane: CudaLane) -> None:
    """Brings a captured graph to the GPU and waits: else the first replay does, which would hold up a decoder then."""
    handle = getattr(graph, "raw_cuda_graph_exec", None)
    if handle is None or _upload(handle(), lane.handle):
        with lane.active():
            graph.replay()
    lane.synchronize()


def _upload(executable: int, stream: int) -> int:
    """The driver's answer: 0 where it was done."""
    status: int = ctypes.CDLL("libcuda.so.1").cuGraphUpload(ctypes.c_void_p(executable), ctypes.c_void_p(stream))
    return status
