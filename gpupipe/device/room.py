"""Memory of a device while torch works on it: what a call takes, and what is free."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpupipe.device.driver import free_memory
from gpupipe.device.host import available_bytes

if TYPE_CHECKING:
    from collections.abc import Callable


def free_bytes(device: str) -> int | None:
    """What may still be taken on `cpu` or `cuda:N`, with what torch holds in reserve; None where nobody can say."""
    if device == "cpu":
        return available_bytes()
    free = free_memory(torch.device(device).index or 0)
    if free is None:
        return None
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def taken_by(call: Callable[[], object], device: str) -> int:
    """The most bytes that tensors made during a call held at once, its result included.

    On a GPU the allocator is asked, so that workspaces of libraries count. On the CPU torch keeps no such account:
    there the tensors that operators return are counted.
    """
    if device == "cpu":
        live = _Live()
        with live:
            call()
        return live.most
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    taken: int = torch.cuda.max_memory_allocated(device) - before
    return taken


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Counts the bytes of storages that are alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch loads its compiler with the first operator, to say that it is not to be compiled: a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operator and counts what is new among its results."""
        del types
        for leaf in tree_leaves((args, kwargs)):  # what is passed in was there before, or has been counted
            if isinstance(leaf, torch.Tensor):
                self._count(leaf, 0)
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf, leaf.untyped_storage().nbytes())
        return out

    def _count(self, tensor: torch.Tensor, size: int) -> None:
        storage = tensor.untyped_storage()
        if id(storage) in self._known:
            return
        self._known.add(id(storage))
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._gone, id(storage), size)

    def _gone(self, number: int, size: int) -> None:
        self._known.discard(number)
        self.now -= size


def capturing(device: str) -> bool:
    """Whether work of this thread goes into a CUDA Graph that is being captured."""
    return device != "cpu" and torch.cuda.is_current_stream_capturing()
