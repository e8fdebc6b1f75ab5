"""What engines built, kept for the next start: whole entries or none, one builder at a time, checked when read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from gpupipe.errors import EngineError
from gpupipe.plain import parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MANIFEST, _SCRATCH = "entry.json", ".building-"
_ABANDONED = 24 * 3600
"""Seconds after which what a killed builder left is taken away."""


@dataclass(frozen=True, slots=True)
class Key:
    """All that decides what is built. Anything else leaves an entry usable."""

    network: str
    """sha256 of weights and graph, see `identity`."""
    shape: tuple[int, ...]
    least: int
    """Smallest batch."""
    precision: str
    engine: str
    recipe: int
    versions: tuple[tuple[str, str], ...]
    """Of libraries, by name."""
    device: str
    """Name of the GPU, or the CPU's vector instructions."""
    capability: str
    driver: str

    @property
    def digest(self) -> str:
        """The entry's name."""
        return hashlib.sha256(self._text().encode()).hexdigest()

    def _text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def plain(self) -> object:
        """As JSON gives it back."""
        return json.loads(self._text())


class EngineCache:
    """Entries in a folder, each a folder named by its key's digest.

    Args:
        folder: made where it is not there.
        say: told in words while another process builds what is asked for.
        patience: seconds to wait for it.
    """

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda _: None, patience: float = 3600) -> None:
        self._folder, self._say, self._patience = folder, say, patience

    def entry(self, key: Key, build: Callable[[Path], None]) -> tuple[Path, bool]:
        """The folder of a whole entry, and whether it was built now.

        Args:
            key: what is wanted.
            build: writes it into the folder it is given, which is empty; it runs in one process at a time.

        Raises:
            EngineError: the folder cannot be written, or another process builds for longer than there is patience.
        """
        place = self._folder / key.digest
        if self._whole(place, key):
            return place, False
        with self._alone(key):
            if self._whole(place, key):  # built while we waited
                return place, False
            self._build(place, key, build)
        return place, True

    def known(self, key: Key) -> Path | None:
        """The folder of a whole entry; None where there is none, and nobody is waited for."""
        place = self._folder / key.digest
        return place if self._whole(place, key) else None

    def discard(self, key: Key) -> None:
        """Takes an entry away that is whole and yet of no use."""
        with self._alone(key):
            self._remove(self._folder / key.digest)

    def _build(self, place: Path, key: Key, build: Callable[[Path], None]) -> None:
        self._sweep()
        self._remove(place)
        try:
            scratch = self._folder / f"{_SCRATCH}{uuid.uuid4().hex}"
            scratch.mkdir()  # readable to whoever the user's mask lets: a farm shares a cache
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            build(scratch)
            manifest = {"key": key.plain(), "files": {path.name: _digest(path) for path in scratch.iterdir()}}
            (scratch / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            os.replace(scratch, place)  # noqa: PTH105  (Path.replace says the same)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _unwritable(self, error: OSError) -> EngineError:
        return EngineError(f"cannot keep what was built: {error.strerror or error}", where=str(self._folder))

    @contextmanager
    def _alone(self, key: Key) -> Iterator[None]:
        """Holds the entry's lock, which the system takes back from a process that dies."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._folder / f"{key.digest}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                self._say(f"another process builds {key.engine}; waiting for it")
                lock.acquire(timeout=self._patience)
        except Timeout as error:
            message = f"another process has been building {key.engine} for {self._patience:.0f} s"
            raise EngineError(message, where=str(self._folder)) from error
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            yield
        finally:
            lock.release()

    def _whole(self, place: Path, key: Key) -> bool:
        """Whether an entry is there, is of this key, and every file is as it was written."""
        try:
            manifest = parsed((place / _MANIFEST).read_text(encoding="utf-8"))
            files = manifest["files"]
            return bool(
                manifest["key"] == key.plain()
                and {path.name for path in place.iterdir()} == {_MANIFEST, *files}
                and all(_digest(place / name) == digest for name, digest in files.items())
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def _remove(self, place: Path) -> None:
        """First out of the way at once, so that nobody sees half of it."""
        with suppress(OSError):
            aside = Path(tempfile.mkdtemp(dir=self._folder, prefix=_SCRATCH))
            with suppress(OSError):
                os.replace(place, aside / "old")  # noqa: PTH105  (Path.replace says the same)
            shutil.rmtree(aside, ignore_errors=True)

    def _sweep(self) -> None:
        for path in self._folder.glob(f"{_SCRATCH}*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(path, ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
