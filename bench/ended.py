"""Programs that end in time: each with all that it started, what it prints in a file, one beside another if asked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

GRACE = 4.0
"""Seconds between asking a program to end and ending it."""


@dataclass
class Program:
    """One that is running or has run.

    Args:
        command: to be run.
        folder: to run it in.
        log: takes what it prints.
        seconds: that it may take.
        environment: of the program.
    """

    command: Sequence[str]
    folder: Path
    log: Path
    seconds: float
    environment: Mapping[str, str]
    took: float = 0.0
    status: str = "running"
    """`done`, `failed (CODE)` or `out of time`."""
    _process: subprocess.Popen[bytes] = field(init=False)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=dict(self.environment), start_new_session=True,
            )  # fmt: skip

    def over(self) -> bool:
        """Whether it has ended, or was ended because its time is up."""
        if self.status != "running":
            return True
        code = self._process.poll()
        if code is None and time.monotonic() - self._began < self.seconds:
            return False
        self.end("out of time" if code is None else "done" if code == 0 else f"failed ({code})")
        return True

    def end(self, status: str) -> None:
        """Ends it and all that it started."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        self._signal(signal.SIGKILL)  # whatever it left behind
        self._process.wait()
        self.status, self.took = status, round(time.monotonic() - self._began, 1)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def all_of(programs: Sequence[Program], meanwhile: Callable[[], None], *, every: float = 3.0) -> None:
    """Waits for all, and calls `meanwhile` now and then."""
    looked = time.monotonic()
    try:
        while len([program for program in programs if program.over()]) < len(programs):  # every one is looked at
            time.sleep(0.2)
            if time.monotonic() - looked > every:
                meanwhile()
                looked = time.monotonic()
    finally:
        for program in programs:
            if program.status == "running":
                program.end("stopped")
