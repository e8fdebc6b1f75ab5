"""How words reach people and programs: stderr for what happens, stdout for what was asked."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpupipe.errors import GpupipeError
from gpupipe.plain import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def printable(text: str) -> str:
    r"""`text` on one line, with everything a terminal would obey instead of show written as an escape (\n, \x1b)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class Console:
    """The two streams. `json_log` makes stderr one JSON object a line; `quiet` leaves nothing there but errors."""

    def __init__(self) -> None:
        self.json_log = False
        self.quiet = False
        self.write_line: Callable[[str], None] = self._to_stderr
        """Replaced while a progress bar owns the terminal."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    @staticmethod
    def _to_stderr(line: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more: not a reason to lose the work
            print(line, file=sys.stderr, flush=True)

    def event(self, event: str, **facts: object) -> None:
        """One line of the JSON log; nothing in a text log."""
        if self.json_log and (event == "error" or not self.quiet):
            time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self.write_line(json.dumps({"event": event, "time": time} | {k: plain(v) for k, v in facts.items()}))

    def say(self, line: str) -> None:
        """A line of the text log."""
        if not self.quiet and not self.json_log:
            self.write_line(printable(line))

    def warning(self, code: str, message: str, count: int = 1) -> None:
        """Something the user should know; the run goes on."""
        self.event("warning", code=code, message=message, count=count)
        self.say(f"warning: {message}")

    def error(self, message: str, code: int) -> None:
        """Why the program ends; shown even when it is to be quiet."""
        if self.json_log:
            self.event("error", message=message, exit_code=code)
        else:
            self.write_line(printable(f"error: {message}"))

    def data(self, lines: Iterable[str]) -> None:
        """What was asked for, on stdout."""
        self._to_stdout("\n".join(map(printable, lines)))

    def json(self, value: object) -> None:
        """What was asked for, on stdout, as JSON in plain ASCII."""
        self._to_stdout(json.dumps(plain(value), indent=2))

    @staticmethod
    def _to_stdout(text: str) -> None:
        """Ends quietly where the reader has enough; raises GpupipeError on a full disk."""
        try:
            print(text, flush=True)
        except OSError as error:
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
            )  # what is held back must not fail again at exit
            if not isinstance(error, BrokenPipeError):
                raise GpupipeError(str(error.strerror), where="standard output") from None
