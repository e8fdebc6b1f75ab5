"""Python's garbage collector, which frees forgotten cycles in whatever thread happens to allocate, at any moment."""

from __future__ import annotations

import gc
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_lock = threading.RLock()
"""One that its own thread may take again: the collector, which runs until it is off, calls finalizers."""
_pauses = 0
_was_on = False


@contextmanager
def no_collection() -> Iterator[None]:
    """For whatever forgotten objects must not be freed in the midst of; other threads may be in one of theirs.

    Counted, because the collector is one for all threads: the first to leave must not turn it on for the others.
    """
    global _pauses, _was_on  # noqa: PLW0603  the collector's state is the process' own
    with _lock:
        if _pauses == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_on:
                gc.enable()
