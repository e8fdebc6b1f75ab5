"""Threads stay under the scheduling that their process was given."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TASKS = Path("/proc/self/task")


@contextmanager
def kept_scheduling() -> Iterator[None]:
    """Undoes what a library does to the scheduling of this thread and of those it starts in the block; Linux only.

    SVT-AV1 under root, as in most containers, puts its threads and its caller's under SCHED_FIFO at priority 99.
    Children inherit that, and whatever is not real-time waits: decoders, the GUI, the shell that would end the run.
    """
    if not _TASKS.is_dir():
        yield
        return
    before = _policies()
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        for thread, found in _policies().items():
            if found != before.get(thread, policy):
                with suppress(OSError):  # it has ended, or this process may not
                    os.sched_setscheduler(thread, policy, parameters)


def _policies() -> dict[int, int]:
    found = {}
    for task in _TASKS.iterdir():
        with suppress(OSError):  # it has ended
            found[int(task.name)] = os.sched_getscheduler(int(task.name))
    return found
