"""Work of always the same tensors, given to a GPU again and again by one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from gpupipe.collector import no_collection

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

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
            begun = torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local")
            with no_collection(), begun:  # see `graph.captured`
                self.result = work()
            graph.replay()  # the first one uploads it, which would hold up a decoder later
            lane.synchronize()
        self._graph, self.pool = graph, graph.pool()

    def __call__(self) -> Result:
        """Gives the work to the lane; on a GPU the result is the same tensors each time, valid in the lane's order."""
        with torch.inference_mode(), self._lane.active():
            return self.here()

    def here(self) -> Result:
        """The same on whatever lane the caller is on; who takes turns with it must be on that lane, too."""
        if self._graph is not None:
            self._graph.replay()
        else:
            self.result = self._work()
        return self.result


class Recorder:
    """Records functions that take turns on one lane, and share memory for intermediate values.

    What one gives may lie where those recorded before it have intermediate values: it holds until it or one of them is
    called again.

    Args:
        lane: where they are recorded, and nothing else runs; they are called on any.
    """

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.pool: Any = None

    def __call__(self, work: Callable[..., Result], *memory: Tensor) -> Recorded[Result]:
        """See `Recorded`."""
        made = Recorded(work, memory, self.lane, self.pool)
        self.pool = made.pool
        return made


class Recorded(Generic[Result]):
    """A function of tensors that always have the same shapes, as a `Replay` on memory of its own.

    Args:
        work: see `Replay`; of the tensors in `memory`.
        memory: what it reads, holding anything of the kind that will come; called with other tensors, it copies them
            there first. It may be what another one gives, which then need not be copied.
        lane: see `Replay`.
        pool: see `Replay`.
    """

    def __init__(self, work: Callable[..., Result], memory: tuple[Tensor, ...], lane: Lane, pool: Any) -> None:
        self._work, self._memory = work, memory
        self._replay = Replay(lambda: work(*memory), lane, pool=pool)
        self.pool, self.result = self._replay.pool, self._replay.result

    def __call__(self, *given: Tensor) -> Result:
        """What `work` gives: the same tensors each time, see `Recorder`; others where shapes are not the known ones."""
        pairs = list(zip(self._memory, given, strict=True))
        if any(ours.shape != theirs.shape for ours, theirs in pairs):
            return self._work(*given)
        fresh = [(ours, theirs) for ours, theirs in pairs if ours.data_ptr() != theirs.data_ptr()]
        if fresh:
            torch._foreach_copy_([ours for ours, _ in fresh], [theirs for _, theirs in fresh])
        return self._replay.here()
