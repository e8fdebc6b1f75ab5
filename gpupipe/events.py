"""What happens in a run and is counted though it warns of nothing. Any layer may tell it; the run's watch listens.

The listener belongs to a thread and its context, so that several runs of a process do not mix.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal[
    "engine-build", "engine-load", "retry", "memory-low", "fewer-sessions", "smaller-batches", "smaller-tiles"
]
"""engine-build, engine-load: a network was compiled, or taken from the cache. retry: a segment is rendered again after
a failure. memory-low: an alarm that nothing could be done about. The last three: a step back for lack of memory."""
SMALLER: tuple[Kind, ...] = ("fewer-sessions", "smaller-batches", "smaller-tiles")
"""Steps back, in the order in which they are taken."""

_LISTENER: ContextVar[Callable[[Kind, str], None] | None] = ContextVar("listener", default=None)


def happened(kind: Kind, detail: str = "") -> None:
    """Tells the run that this thread works for, in words for people; nothing where nobody listens."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(kind, detail)


def listen(listener: Callable[[Kind, str], None] | None) -> None:
    """From now on, in this thread, `listener` is told; it may be called by several threads at once."""
    _LISTENER.set(listener)
