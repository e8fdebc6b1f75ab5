"""Waiting for facts: as long as a machine may take that is busy with other work, and never for a time by itself."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

T = TypeVar("T")
LIMIT = 240.0
"""Seconds after which what a test waits for is taken to hang. Nothing is asserted of how long anything takes."""


def until(fact: Callable[[], T], process: subprocess.Popen | None = None) -> T:
    """What `fact` gives once it is true. Fails where it never is, or where a process ended that was to bring it about."""
    end = time.monotonic() + LIMIT
    while not (found := fact()):
        if process is not None and process.poll() is not None and not (found := fact()):
            raise AssertionError(f"ended with {process.returncode}: {process.communicate()}")
        assert time.monotonic() < end, "what is waited for does not happen"
        time.sleep(0.01)
    return found


def held(process: subprocess.Popen) -> None:
    """Waits until a process that was sent SIGSTOP, or sends it to itself, stands still; SIGCONT lets it go on.

    What is signalled meanwhile lies there when it goes on: it cannot have come too early or too late.
    """
    pid = process.pid
    until(lambda: os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) or _gone(process))
    assert process.poll() is None, process.communicate()


def _gone(process: subprocess.Popen) -> bool:
    return process.poll() is not None


def hold(process: subprocess.Popen) -> None:
    """Makes a process stand still."""
    process.send_signal(signal.SIGSTOP)
    held(process)


def settled(value: Callable[[], object], quiet: float = 0.4) -> object:
    """What `value` gives once it has not changed for so many seconds."""
    last, since = value(), time.monotonic()
    while time.monotonic() - since < quiet:
        time.sleep(0.02)
        if (now := value()) != last:
            last, since = now, time.monotonic()
    return last
