"""Work of always the same tensors, given to a GPU again and again by one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.device.base import Lane

Result = TypeVar("Result")


class Replay(Generic[Result]):
    """Captures `work` in a CUDA Graph, which does in one call what Python would give piece by piece.

    On the CPU the work is done again at each call.

    Args:
        work: reads and makes tensors on the lane, and neither waits nor copies from pageable memory. What it reads must
            stay where it is.
        lane: where it runs. No decoder session may be at work while this is made: a capture beside one is invalid.
        pool: of another one with which this one always takes turns: they share memory for intermediate values.
    """

    def __init__(self, work: Callable[[], Result], lane: Lane, *, pool: Any = None) -> None:
        self._work, self._lane = work, lane
        self.pool: Any = pool
        self._graph: torch.cuda.CUDAGraph | None = None
        with torch.inference_mode(), lane.active():
            if lane.device == "cpu":
                self.result = work()
                return
            for _ in range(2):  # compiles kernels and fills caches, which a capture must not see
                work()
            lane.synchronize()
            graph = torch.cuda.CUDAGraph()
            stream: Any = getattr(lane, "stream", None)
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self.result = work()
            graph.replay()  # the first one uploads it, which would hold up a decoder later
            lane.synchronize()
        self._graph, self.pool = graph, graph.pool()

    def __call__(self) -> Result:
        """Gives the work to the lane; on a GPU the result is the same tensors each time, valid in the lane's order."""
        with torch.inference_mode(), self._lane.active():
            if self._graph is not None:
                self._graph.replay()
            else:
                self.result = self._work()
        return self.result
