"""Pictures of the CPU computed side by side, and handed on in their order."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from gpupipe import stages
from gpupipe.device.host import rooms
from gpupipe.render.watch import enter
from gpupipe.stages.base import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from gpupipe.frame import FrameBatch
    from gpupipe.plan import Plan, Step

T = TypeVar("T")
MOST, ROOM = 8, 1 << 30
"""Pictures at once, and bytes that they may take together; more are of no use beside decoder and encoder."""
SHARE = 8
"""They take one part in so many of the memory that is left."""


def abreast(plan: Plan) -> int:
    """How many pictures of a run, or of each of its sessions, are computed at once.

    One where there is nothing to compute, on a GPU, where a stage takes all cores for one picture (`heavy`), and where
    one depends on the pictures before (`Temporal`).
    """
    made = [stages.load(step.name) for step in plan.steps if step.kind == "stage"]
    if not plan.steps or plan.device != "cpu" or any(stage.heavy or hasattr(stage, "lead") for stage in made):
        return 1
    room = min([ROOM, *(place.left // SHARE for place in rooms(plan.host_limit))]) // plan.sessions
    size = max(_bytes(step) for step in plan.steps)
    return max(1, min((os.cpu_count() or 1) // plan.sessions, MOST, room // size))


def _bytes(step: Step) -> int:
    """What a picture takes in a step, at most."""
    pixels = max(picture.area for picture in (step.source, step.target))
    return pixels * (stages.load(step.name).scratch if step.kind == "stage" else Stage.scratch)


def in_order(
    call: Callable[[FrameBatch], FrameBatch], batches: Iterable[tuple[FrameBatch, T]], at_once: int
) -> Iterator[tuple[FrameBatch, T]]:
    """`call` of every batch with what comes along with it, in order; `at_once` of them are computed side by side.

    What `call` raises is raised in its turn, after the batches before it.
    """
    if at_once == 1:
        yield from ((call(batch), more) for batch, more in batches)
        return
    running: deque[tuple[Future[FrameBatch], T]] = deque()
    pool = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="stages")
    try:
        for batch, more in batches:
            running.append((pool.submit(call, batch), more))
            if len(running) > at_once:  # one more than are computed: whoever is done has the next at hand
                yield _first(running)
        while running:
            yield _first(running)
    finally:
        pool.shutdown(cancel_futures=True)


def _first(running: deque[tuple[Future[FrameBatch], T]]) -> tuple[FrameBatch, T]:
    before = enter("stages")
    future, more = running.popleft()
    try:
        return future.result(), more
    finally:
        enter(before)
