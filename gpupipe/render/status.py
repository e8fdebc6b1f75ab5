"""What a ledger holds, for people who only look."""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpupipe.errors import MediaError
from gpupipe.plain import parsed
from gpupipe.render.folder import LOCK, LOG, PLAN, SEGMENTS, check, folder_of, held
from gpupipe.render.pieces import BadPieceError, verify

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Status:
    """A ledger at one moment."""

    output: Path
    written: bool
    """Whether a file stands under the output's name."""
    folder: Path | None
    """None where there is no ledger."""
    segments: int = 0
    done: tuple[int, ...] = ()
    damaged: tuple[int, ...] = ()
    """Segments whose file is not what was written; they will be rendered again."""
    frames: int = 0
    """Of the segments that are done."""
    expected: int = 0
    """Frames of all segments, as the container counts them."""
    bytes: int = 0
    busy: bool = False
    """Whether a run is at work on it."""
    begun: str | None = None
    """When, in UTC, as ISO 8601 has it."""
    last: str | None = None
    """When the last segment was finished."""
    failures: tuple[str, ...] = ()
    """What went wrong since the last segment was finished, the newest last."""
    size: int = 0
    """Bytes of all that lies in the ledger."""
    touched: float = 0.0
    """When something of it was written for the last time, in seconds since 1970."""

    @property
    def missing(self) -> tuple[int, ...]:
        """Segments that are still to be rendered."""
        return tuple(sorted(set(range(self.segments)) - set(self.done)))


def status(output: Path, *, thorough: bool = False) -> Status:
    """Reads a ledger without disturbing a run that is at work on it.

    Args:
        output: the output it is of.
        thorough: every byte is read and hashed; else only what segments say of themselves.

    Raises MediaError where the ledger cannot be read.
    """
    folder = folder_of(output)
    check(folder, looking=True)
    if not folder.is_dir():
        return Status(output, output.is_file(), None)
    try:
        plan = parsed((folder / PLAN).read_text(encoding="utf-8"))
        wanted = [int(segment["frames"]) for segment in plan["segments"]]
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise MediaError(f"its plan cannot be read: {error}", where=str(folder), hint="run it again") from None
    done, damaged, frames, size = [], [], 0, 0
    for index in range(len(wanted)):
        try:
            piece = verify(folder / SEGMENTS / f"{index:06}.seg", thorough=thorough)
        except FileNotFoundError:
            continue
        except (BadPieceError, OSError):
            damaged.append(index)
            continue
        done.append(index)
        frames, size = frames + piece.frames, size + piece.bytes
    return Status(
        output, output.is_file(), folder, len(wanted), tuple(done), tuple(damaged), frames, sum(wanted), size,
        busy(folder), *_history(folder), *held(folder),
    )  # fmt: skip


def busy(folder: Path) -> bool:
    """Whether a run is at work on a ledger."""
    for mode in ("r+b", "rb"):  # NFS locks only what may be written; who only looks may not write
        try:
            with (folder / LOCK).open(mode) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            continue
        return False
    return False


def _history(folder: Path) -> tuple[str | None, str | None, tuple[str, ...]]:
    """(begun, when the last segment was finished, what failed since then)."""
    begun = last = None
    failures: list[str] = []
    for event in _events(folder / LOG):
        if event.get("event") == "begin":
            begun = begun or event.get("time")
        elif event.get("event") == "segment":
            last, failures = event.get("time"), []
        elif event.get("event") in ("failed", "untrusted", "stopped"):
            failures.append(f"{event.get('time')} {event['event']}: {event.get('why')}")
    return begun, last, tuple(failures[-5:])


def _events(path: Path) -> list[dict[str, Any]]:
    """Lines of the log; one that was cut short by a kill is left out."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            event = parsed(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found
