"""Work that one thread does, whoever asks for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Caller(Protocol):
    """Does some work and returns what came of it."""

    def __call__(self, work: Callable[[], T]) -> T:
        """Raises what the work raises."""
        ...


def directly(work: Callable[[], T]) -> T:
    """In the thread that asks."""
    return work()


class OneThread:
    """In a thread of its own, one after another; it ends when this is dropped.

    cuDNN measures its algorithms in each thread anew, and so do others: runners that call networks by themselves would
    all begin with some seconds of that.

    Args:
        begin: called in it first; what it raises is raised here.
    """

    def __init__(self, begin: Callable[[], None]) -> None:
        self._pool = ThreadPoolExecutor(1, "compute")
        self(begin)  # an initializer's error would be lost: whoever asks next gets BrokenThreadPool

    def __call__(self, work: Callable[[], T]) -> T:
        """See `Caller`; what is told on the way is told as if by the thread that asks, which waits."""
        return self._pool.submit(copy_context().run, work).result()
