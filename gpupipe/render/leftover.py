"""Ledgers of runs that nobody goes on with: found, and taken away."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe.errors import MediaError
from gpupipe.media.output import LEDGER, describe_os_error
from gpupipe.render.folder import FINISHED, LOCK, check, folder_of, held, locked, pieces, take_away
from gpupipe.render.status import busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, slots=True)
class Leftover:
    """A ledger, for who decides whether it may go."""

    folder: Path
    output: Path
    """Of whose run it is."""
    segments: int
    """That are done."""
    size: int
    """Bytes of all its files."""
    touched: float
    """When something of it was written for the last time, in seconds since 1970."""
    busy: bool
    """Whether a run is at work on it."""


def find(place: Path, refused: Callable[[MediaError], None]) -> list[Leftover]:
    """The ledger of an output, or of that name, or all below a folder, the oldest first; links are not followed.

    Below a folder, `refused` gets what cannot be looked at, and the others are found. Raises MediaError where there is
    no such thing, or something else stands in the place of a file of the ledger that is named.
    """
    if place.name.endswith(LEDGER) and is_ledger(place):
        return [_of(place)]
    if place.is_dir():
        return sorted(_below(place, refused), key=lambda one: one.touched)
    folder = folder_of(place)
    if not is_ledger(folder):
        raise MediaError("there is no ledger of it, and no such folder", where=str(place), hint="check the path")
    return [_of(folder)]


def is_ledger(folder: Path) -> bool:
    """Whether a folder is a run's own: its name alone says too little."""
    return folder.is_dir() and any((folder / name).exists() for name in (LOCK, FINISHED))


def _below(place: Path, refused: Callable[[MediaError], None]) -> Iterator[Leftover]:
    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            why = f"cannot be looked into: {error.strerror}"
            refused(MediaError(why, where=str(error.filename or place), hint="check owner and mode"))

    for path, folders, _ in os.walk(place, onerror=refuse):
        found = [name for name in folders if name.endswith(LEDGER) and is_ledger(Path(path, name))]
        folders[:] = [name for name in folders if name not in found]
        for folder in (Path(path, name) for name in found):
            try:
                if not folder.is_symlink():
                    yield _of(folder)
            except MediaError as error:
                refused(error)


def _of(folder: Path) -> Leftover:
    check(folder, looking=True)
    output = folder.with_name(folder.name.removesuffix(LEDGER))
    return Leftover(folder, output, len(list(pieces(folder))), *held(folder), busy(folder))


def remove(one: Leftover) -> bool:
    """Takes a ledger away; says whether all of it is gone: what others have put there stays.

    Raises BusyError where a run is at work on it, MediaError where it cannot be done.
    """
    try:
        file = locked(one.folder, one.output, shared=False)
    except OSError as error:
        raise describe_os_error(error, one.folder) from None
    try:
        take_away(one.folder)
    finally:
        os.close(file)
    return not one.folder.exists()
