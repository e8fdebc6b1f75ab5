"""How words reach people and programs: stderr for what happens, stdout for what was asked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from fractions import Fraction
from pathlib import Path


def printable(text: str) -> str:
    r"""`text` on one line, with everything a terminal would obey instead of show written as an escape (\n, \x1b)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def plain(value: object) -> object:
    """Dataclasses, fractions, paths and enums as what JSON can hold: `Fraction(1, 25)` is `"1/25"`."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value, int) else value.value
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    return value


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
        try:
            print(line, file=sys.stderr, flush=True)
        except OSError:  # nobody reads it any more: not a reason to lose the work
            pass

    def event(self, event: str, **facts: object) -> None:
        """One line of the JSON log; nothing in a text log."""
        if self.json_log and (event == "error" or not self.quiet):
            time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self.write_line(json.dumps({"event": event, "time": time, **{k: plain(v) for k, v in facts.items()}}))

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
        for line in lines:
            print(printable(line))

    def json(self, value: object) -> None:
        """What was asked for, on stdout, as JSON in plain ASCII."""
        print(json.dumps(plain(value), indent=2))

    @staticmethod
    def drop_stdout() -> None:
        """After a broken pipe: what Python still holds back for stdout must not complain at exit."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
