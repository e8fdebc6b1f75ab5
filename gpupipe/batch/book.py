"""What became of each file, kept beside the outputs: a second run does only what is not done."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gpupipe
from gpupipe.errors import MediaError, VolumeError
from gpupipe.media.output import describe_os_error
from gpupipe.plain import parsed, plain
from gpupipe.plan.stored import restored
from gpupipe.render.facts import fingerprint

if TYPE_CHECKING:
    from gpupipe.batch.jobs import Job
    from gpupipe.config import Config

NAME = "gpupipe-batch.jsonl"
State = Literal["done", "failed"]


@dataclass(frozen=True, slots=True)
class Entry:
    """How one file ended, and what it was made of."""

    source: str
    state: State
    output: str = ""
    """Its name in the folder; the book puts it in."""
    made_by: str = ""
    """Digest of config and version; the book puts it in."""
    files: dict[str, dict[str, object]] = field(default_factory=dict)
    """Fingerprints of all that was read, by absolute path."""
    size: int = 0
    modified: int = 0
    """Of the output; nanoseconds."""
    frames: int = 0
    seconds: float = 0.0
    warnings: int = 0
    reason: str = ""
    exit_code: int = 0
    lasting: bool = False
    """Of a failure: that the same again would fail again."""


def made_by(config: Config) -> str:
    """Digest of gpupipe's version and a config, apart from names that a batch gives itself and where it runs."""
    names = ("input", "device", "devices", "memory", "sessions", "resume")
    elsewhere: dict[str, Any] = {**dict.fromkeys(names, True), "output": {"path"}}
    settings = config.model_dump(mode="json", exclude=elsewhere, serialize_as_any=True)
    return hashlib.sha256(json.dumps([gpupipe.__version__, settings], sort_keys=True).encode()).hexdigest()


class Book:
    """The record of one folder of outputs: a line is added as each file ends, the last one of an output counts.

    Args:
        folder: of the outputs.
        made_by: see above.

    Raises MediaError where it cannot be read.
    """

    def __init__(self, folder: Path, made_by: str) -> None:
        self._path, self._folder, self._made_by = folder / NAME, folder, made_by
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        self._read()

    def _read(self) -> None:
        """Again before each file: another batch into the same folder may have done it meanwhile."""
        try:
            if self._path.exists() and not self._path.is_file():  # a pipe would be waited for
                hint = "move it away, then start again"
                raise MediaError("it is no file, where a batch keeps its record", where=str(self._path), hint=hint)
            lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        except PermissionError:
            raise VolumeError("no permission to read it", where=str(self._path), hint="check owner and mode") from None
        except OSError as error:
            raise describe_os_error(error, self._path) from None
        for line in lines:
            try:
                entry = restored(Entry, parsed(line))
            except (ValueError, KeyError, TypeError):
                continue  # cut off with the machine, or of another version: that file is simply done again
            self._entries[entry.output] = entry

    def standing(self, job: Job) -> Entry | None:
        """The entry that still holds: nothing that it was made of or by has changed, and the output is as it was left.

        None for a failure that need not repeat itself. Raises MediaError where the record cannot be read.
        """
        with self._lock:
            self._read()
        entry = self._entries.get(self._key(job))
        if entry is None or entry.made_by != self._made_by or not self._untouched(entry, job):
            return None
        if entry.state == "failed":
            return entry if entry.lasting else None
        try:
            stat = job.output.stat()
        except OSError:
            return None
        return entry if (stat.st_size, stat.st_mtime_ns) == (entry.size, entry.modified) else None

    def left_by_us(self, job: Job) -> bool:
        """Whether what lies under the output's name is what a batch wrote there, unchanged since."""
        entry = self._entries.get(self._key(job))
        try:
            stat = job.output.stat()
        except OSError:
            return False
        return entry is not None and (stat.st_size, stat.st_mtime_ns) == (entry.size, entry.modified)

    def _key(self, job: Job) -> str:
        return str(job.output.relative_to(self._folder))

    @staticmethod
    def _untouched(entry: Entry, job: Job) -> bool:
        if str(job.source.absolute()) not in entry.files:
            return False
        try:
            return all(fingerprint(Path(path)) == facts for path, facts in entry.files.items())
        except (OSError, ValueError):  # a name of no file
            return False

    def add(self, job: Job, entry: Entry) -> None:
        """Puts down how a file ended. Raises MediaError where it cannot be written."""
        entry = dataclasses.replace(entry, output=self._key(job), made_by=self._made_by)
        line = json.dumps(plain(entry), separators=(",", ":")).encode() + b"\n"
        with self._lock:
            self._entries[entry.output] = entry
            try:
                with self._path.open("ab") as file:
                    if file.tell() and not self._ends_with_a_line():
                        line = b"\n" + line
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise describe_os_error(error, self._path) from None

    def _ends_with_a_line(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
