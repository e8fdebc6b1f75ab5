"""Ctrl-C and SIGTERM: the first asks the run to stop and clean up, the second ends the process at once."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpupipe.media.output import FINISHED, UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event
    from types import FrameType

    from gpupipe.cli.console import Console

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class Stops:
    """What is said to who stops a run."""

    kept: bool = False
    """Whether finished segments are kept."""


@contextmanager
def stopping(stop: Event, console: Console) -> Iterator[Stops]:
    """Sets `stop` at the first signal; at the second the process ends with code 130; only the unfinished file goes."""
    asked, stops = False, Stops()

    def react(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal asked
        if asked:
            for path in tuple(UNFINISHED):
                with suppress(OSError):
                    path.unlink()
            kept = b"; finished segments are kept, the same command goes on" if stops.kept else b""
            left = b"what has an output's name is whole" if FINISHED else b"nothing was written under the output's name"
            os.write(2, b"error: stopped at once; " + left + kept + b"\n")
            os._exit(130)
        asked = True
        stop.set()
        if (
            not console.quiet and not console.json_log
        ):  # os.write: a signal may interrupt a print, which is not reentrant
            below = "\n" if os.isatty(2) else ""  # a progress bar may stand on this line
            os.write(2, f"{below}stopping ({signal.Signals(number).name}); once more to stop at once\n".encode())

    before = {number: signal.signal(number, react) for number in SIGNALS}
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
