"""Nothing that was forgotten is freed in the midst of a capture: CUDA would make it invalid."""

from __future__ import annotations

import gc
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from gpupipe.device.graph import captured
from gpupipe.device.replay import Replay

if TYPE_CHECKING:
    import pytest


class Graph:
    """Stands for one, and for what captures it."""

    def __init__(self) -> None:
        self.capturing, self.freed = False, list[str]()
        """When something was freed."""

    def capture_begin(self, **_: object) -> None:
        self.capturing = True

    def capture_end(self) -> None:
        self.capturing = False

    def replay(self) -> None:
        pass

    pool = replay

    def forgets(self) -> None:
        """Leaves a cycle behind, and work for the collector."""
        cycle: list[Any] = [Graph()]
        cycle.append(cycle)
        weakref.finalize(cycle[0], lambda: self.freed.append("in it" if self.capturing else "after"))
        del cycle
        litter = [[] for _ in range(20 * gc.get_threshold()[0])]
        assert litter


class Lane:
    device = "cuda:0"

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()

    def synchronize(self) -> None:
        pass


def test_a_captured_chain() -> None:
    graph = Graph()
    with captured(graph, Lane(), None):  # type: ignore[arg-type]
        graph.forgets()
    graph.forgets()  # the collector is at work again
    assert graph.freed == ["after"] * 2


def test_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph()

    class Begun:
        def __enter__(self) -> None:
            graph.capture_begin()

        def __exit__(self, *_: object) -> None:
            graph.capture_end()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: Begun())
    Replay(lambda: graph.forgets() if graph.capturing else None, Lane())
    graph.forgets()
    assert graph.freed == ["after"] * 2
