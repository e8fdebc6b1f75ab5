"""The folder of a ledger: where it lies, what may stand in it, and who has it."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpupipe.errors import BusyError, MediaError, VolumeError
from gpupipe.media.output import LEDGER
from gpupipe.plain import parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PLAN, LOG, LOCK, FINISHED, SEGMENTS = "plan.json", "log.jsonl", "lock", "finished.json", "segments"
CHOICES = "choices.json"
_RESTS = (0.05, 0.2, 0.5)
"""Seconds between attempts to lock a ledger: `status` holds the lock for a moment."""
_LOOKS = 3
_MOVED = 1000
"""How often the folder may be taken away under whoever wants it."""


def folder_of(output: Path) -> Path:
    """Where the ledger of an output lies: beside the file itself, whatever links lead to it."""
    final = Path(os.path.realpath(output))
    return final.with_name(final.name + LEDGER)


def check(folder: Path, *, looking: bool = False) -> None:
    """Raises MediaError, which names it, where something else stands in the place of a file of a ledger.

    To open a pipe would wait for good, and what cannot be read would be taken for lost, and done again.
    `looking` is for who writes nothing.
    """
    for path in (folder, folder / SEGMENTS):
        _expect(path, stat.S_ISDIR, "a folder", os.R_OK | os.X_OK)
    for path in (folder / LOG, folder / LOCK):
        _expect(path, stat.S_ISREG, "a file", os.R_OK if looking else os.R_OK | os.W_OK)
    for path in (*(folder / name for name in (PLAN, CHOICES, FINISHED)), *pieces(folder), *parts(folder)):
        _expect(path, stat.S_ISREG, "a file", os.R_OK)


def _expect(path: Path, wanted: Callable[[int], bool], kind: str, rights: int) -> None:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise VolumeError(f"cannot be looked at: {error.strerror}", where=str(path), hint="check the volume") from None
    if not wanted(mode):
        found = next((words for test, words in _KINDS if test(mode)), "a device")
        message = f"it is {found}, where a run keeps {kind} of its own"
        raise MediaError(message, where=str(path), hint="move it away, then start again")
    # Whoever ends takes files away meanwhile, and the next one makes others: what is denied is so each time.
    if all(not os.access(path, rights) and path.exists() for _ in range(_LOOKS)):
        what = "read and write" if rights & os.W_OK else "read"
        raise VolumeError(f"no permission to {what} it", where=str(path), hint="check owner and mode")


_KINDS = ((stat.S_ISDIR, "a folder"), (stat.S_ISREG, "a file"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


def pieces(folder: Path) -> Iterable[Path]:
    """Files of finished segments."""
    return _named(folder / SEGMENTS, "", ".seg")


def parts(folder: Path) -> Iterable[Path]:
    """What is half written, or was when somebody was killed."""
    return (*_named(folder / SEGMENTS, ".", ".part"), *_named(folder, ".", ".part"))


def _named(folder: Path, begin: str, end: str) -> list[Path]:
    """Files by their names; none where another process has just taken the folder away."""
    try:
        found = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path for path in found if path.name.startswith(begin) and path.name.endswith(end)]


def read(folder: Path, name: str) -> dict[str, Any] | None:
    """What a file of a ledger says; None where it is not there, or says nothing that can be read."""
    try:
        data = parsed((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def write(folder: Path, name: str, data: object, *, once: bool = False) -> None:
    """Writes a file of a ledger, whole or not at all. With `once` one that is there stays, whoever has written it."""
    part = folder / f".{name}.{socket.gethostname()}-{os.getpid()}.part"
    with part.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    if not once:
        part.replace(folder / name)
        return
    try:
        (folder / name).hardlink_to(part)  # unlike a rename it fails where there is one
    except FileExistsError:
        pass
    except OSError:  # a volume without links
        part.replace(folder / name)
    part.unlink(missing_ok=True)


def held(folder: Path) -> tuple[int, float]:
    """Bytes of all files in a ledger, and when the last of them was written, in seconds since 1970."""
    size, touched = 0, 0.0
    for path, _, names in os.walk(folder):
        for one in (path, *(os.path.join(path, name) for name in names)):  # noqa: PTH118  by the thousand
            with suppress(OSError):  # a run at work takes files away
                found = os.lstat(one)
                size += 0 if one is path else found.st_size
                touched = max(touched, found.st_mtime)
    return size, touched


def locked(folder: Path, output: Path, *, shared: bool) -> int:
    """Makes the folder where there is none, and takes its lock; gives the open file, which holds it until it is closed.

    Whoever ends takes the folder away, lock and all. Who has opened that lock meanwhile would hold one that nobody else
    will ever see: so the lock that was got must be the one that lies there, or all is tried anew.

    Args:
        folder: of the ledger.
        output: whose ledger it is, for words.
        shared: with others who say so.

    Raises BusyError where another run has it, OSError where it cannot be made.
    """
    for _ in range(_MOVED):
        check(folder)
        try:
            folder.mkdir(exist_ok=True)
            # For reading and writing: NFS shares locks of files that may be read only.
            file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        except (FileNotFoundError, FileExistsError):
            if not folder.parent.is_dir():
                raise
            continue
        try:
            _take(file, output, shared=shared)
            if _lies_there(file, folder / LOCK):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
    raise MediaError("its ledger is taken away again and again", where=str(output), hint="see who else writes it")


def _take(file: int, output: Path, *, shared: bool) -> None:
    for rest in (*_RESTS, None):
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if rest is None:
                hint = "wait for it, or end it first"
                raise BusyError("another run is at work on it", where=str(output), hint=hint) from None
            time.sleep(rest)
            continue
        except OSError:  # volumes without locks: whoever starts two runs of one output gets one of them
            return
        return


def _lies_there(file: int, path: Path) -> bool:
    try:
        there = path.stat()
    except OSError:
        return False
    return os.path.samestat(os.fstat(file), there)


def take_away(folder: Path) -> None:
    """Removes a ledger whose lock is held, but for what others have put there. What says that it is over goes last."""
    with suppress(OSError):
        for path in (*pieces(folder), *parts(folder)):
            path.unlink(missing_ok=True)
        (folder / SEGMENTS).rmdir()
        for name in (LOG, PLAN, CHOICES, LOCK, FINISHED):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
