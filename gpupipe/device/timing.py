"""How long a device takes for something."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


_PATIENCE = 3.0
"""Seconds after which no further call is begun."""


def seconds_of(call: Callable[[], object], device: str, *, rounds: int = 10) -> float:
    """The median of several calls, each waited for, after two that do not count.

    Args:
        call: gives its work to `device`.
        device: `cpu` or `cuda:N`.
        rounds: calls at most.
    """
    for _ in range(2):
        call()
    _wait(device)
    taken: list[float] = []
    while len(taken) < rounds and (sum(taken) < _PATIENCE or not taken):
        begun = time.perf_counter()
        call()
        _wait(device)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)
