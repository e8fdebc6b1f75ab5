"""How words reach people and programs: stderr for what happens, stdout for what was asked."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpupipe.errors import GpupipeError, MediaError
from gpupipe.media.output import describe_os_error
from gpupipe.plain import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gpupipe.journal import Entry
    from gpupipe.render.watch import Happening


WORDS = {
    **dict.fromkeys(("fewer-sessions", "smaller-batches", "smaller-tiles"), "memory is short, it goes on with less"),
    "memory-low": "memory is nearly full",
    "retry": "once more",
    "engine-build": "network built",
    "engine-load": "network from the cache",
}
"""What happens in a run, by its kind in `gpupipe.events`."""

_LOOKED_AT = 1 << 16
"""Bytes of a file by which a text is told from media: all containers have zeros in their beginning."""


def printable(text: str) -> str:
    r"""`text` on one line, with everything a terminal would obey instead of show written as an escape (\n, \x1b)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Console:
    """The two streams. `json_log` makes stderr one JSON object a line; `quiet` leaves nothing there but errors."""

    def __init__(self) -> None:
        self.json_log = False
        self.quiet = False
        self.file: Path | None = None
        """The source that is at work: warnings, errors and what happens name it in the JSON log."""
        self._file: Path | None = None
        self.write_line: Callable[[str], None] = self._to_stderr
        """Replaced while a progress bar owns the terminal."""
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    def log_to(self, path: Path, *apart_from: Path) -> None:
        """Everything that is said goes to that file too, at its end and with the time, whatever `quiet` says.

        Raises MediaError where it cannot be opened, or holds something else than text, or is one of `apart_from`.
        """
        try:
            if path.is_file():
                same = any(one.exists() and path.samefile(one) for one in apart_from)
                with path.open("rb") as file:
                    if same or b"\0" in file.read(_LOOKED_AT):  # a line at its end would spoil it
                        hint = "name a new file, or a log"
                        raise MediaError("is no log, nothing is added to it", where=str(path), hint=hint)
            path.open("a").close()
        except OSError as error:
            raise describe_os_error(error, path) from None
        self._file = path

    def _keep(self, line: str) -> None:
        """Opened for each line: whoever moves the file away gets a new one."""
        if self._file is not None:
            with (
                contextlib.suppress(OSError),  # a full disk is no reason to lose the work
                self._file.open("a", encoding="utf-8", errors="backslashreplace") as file,
            ):
                file.write(f"{line}\n")

    def log(self, line: str) -> None:
        """A line for the log file only."""
        self._keep(f"{_now()} {printable(line)}")

    @staticmethod
    def _to_stderr(line: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads it any more: not a reason to lose the work
            print(line, file=sys.stderr, flush=True)

    def event(self, event: str, **facts: object) -> None:
        """One line of the JSON log; nothing in a text log."""
        if not self.json_log:
            return
        line = json.dumps({"event": event, "time": _now()} | {k: plain(v) for k, v in facts.items()})
        self._keep(line)
        if event == "error" or not self.quiet:
            self.write_line(line)

    def say(self, line: str) -> None:
        """A line of the text log."""
        if self.json_log:
            return
        self.log(line)
        if not self.quiet:
            self.write_line(printable(line))

    def _about(self) -> dict[str, object]:
        return {} if self.file is None else {"file": self.file}

    def warning(self, code: str, message: str, count: int = 1, place: str | None = None) -> None:
        """Something the user should know; the run goes on."""
        self.event("warning", code=code, message=message, count=count, place=place, **self._about())
        self.say(f"warning: {message}{f' ({place})' if place else ''}")

    def first(self, entry: Entry) -> None:
        """The first warning of its kind is told at once; how often it happened is told at the end."""
        self.warning(entry.code, entry.message, entry.count, entry.places[0] if entry.places else None)

    def happened(self, found: Happening, about: Path | None = None) -> None:
        """What a run counts and does not warn of, such as a step back for lack of memory; `about` one of several."""
        where = self._about() if about is None else {"file": about}
        seconds = round(found.elapsed, 3)
        self.event("happened", kind=found.kind, detail=found.detail, elapsed_seconds=seconds, **where)
        name = f"{about.name}: " if about is not None else ""
        self.say(f"{name}{WORDS.get(found.kind, found.kind)}: {found.detail}")

    def error(self, message: str, code: int) -> None:
        """Why the program ends; shown even when it is to be quiet."""
        if self.json_log:
            self.event("error", message=message, exit_code=code, **self._about())
        else:
            self.log(f"error: {message}")
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
