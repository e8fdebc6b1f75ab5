"""The ledger of a long run: `OUTPUT.gpupipe/` beside the output, with the plan, every finished segment and a log."""

from __future__ import annotations

import json
import os
import socket
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, Self

from gpupipe.engines.choice import Choice
from gpupipe.errors import GpupipeError, MediaError, PlanError, VolumeError
from gpupipe.media.output import describe_os_error
from gpupipe.plain import plain
from gpupipe.plan.stored import absolute, dump, load, restored
from gpupipe.render import facts
from gpupipe.render.folder import (
    CHOICES,
    FINISHED,
    LOG,
    PLAN,
    SEGMENTS,
    folder_of,
    locked,
    parts,
    pieces,
    read,
    take_away,
    write,
)
from gpupipe.render.pieces import BadPieceError, Piece, PieceWriter, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpupipe.plan import Plan

_SHOWN = 4
"""Changes that an error names."""


class Ledger:
    """Owns the folder of one output; a context manager, by which no second run gets at it.

    Args:
        plan: what is run.
        shared: others add segments too (`gpupipe segment`, a farm); whoever joins has it alone.
        folder: where it lies, beside the output by default.
    """

    def __init__(self, plan: Plan, *, shared: bool = False, folder: Path | None = None) -> None:
        self.plan, self.folder = absolute(plan), folder or folder_of(plan.output)
        self._shared = shared
        self._lock: int | None = None
        self._facts: dict[str, object] = {}
        self.digest = ""
        """Of all that decides the bytes of a segment: plan, files, libraries."""
        self.pieces: dict[int, Piece] = {}
        """Segments that are done and verified."""

    def __enter__(self) -> Self:
        self._facts = facts.facts(self.plan)
        self.digest = facts.digest(self.plan, self._facts)
        with self.writing():
            lock = locked(self.folder, self.plan.output, shared=self._shared)
            try:
                (self.folder / SEGMENTS).mkdir(exist_ok=True)
            except BaseException:  # nobody leaves what was not entered
                os.close(lock)
                raise
            self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # where the volume does not say what is there, all of it stays
            if not self._shared and not self._finished():  # a run that was refused, or did not get far, leaves nothing
                self.remove()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def begin(self, *, restart: bool = False, only: Sequence[int] | None = None) -> None:
        """Takes up what an earlier run left, or begins anew; `only` these segments are looked for, by default all.

        Raises PlanError where what was left belongs to another config, source or version, unless `restart`. A plan
        that is lost or damaged is written again: every segment says itself what made it.
        """
        with self.writing():
            if restart:
                self.clear()
            before = read(self.folder, PLAN)
            if before is None and self._strangers():
                self._refuse(["plan.json is lost or damaged, so nobody knows what"])
            if before is None or not self._finished():
                write(self.folder, PLAN, {**dump(self.plan), "facts": self._facts, "run": self.digest})
                if (read(self.folder, CHOICES) or {}).get("run") != self.digest:  # of a run that got nothing done
                    (self.folder / CHOICES).unlink(missing_ok=True)
            elif before.get("run") != self.digest:
                self._refuse(self._changes(before))
            self.sweep()
        for index in range(len(self.plan.segments)) if only is None else only:
            self.look(index)
        self.log("begin", segments=len(self.plan.segments), kept=len(self.pieces))

    def choices(self) -> tuple[Choice, ...] | None:
        """What the networks of this run run on, as whoever began it has chosen; None where nobody has yet.

        Raises PlanError where segments were rendered, and it is lost.
        """
        begun = self._finished()  # first: who renders has chosen before
        try:
            data = read(self.folder, CHOICES) or {}
            found = restored(tuple[Choice, ...], data["choices"]) if data.get("run") == self.digest else None
        except (KeyError, TypeError, ValueError):
            found = None
        if found is None and begun:
            raise PlanError(
                f"{len(begun)} segments are kept, and what says which engine their networks ran on is lost or damaged",
                where=str(self.folder / CHOICES),
                hint="`gpupipe run --restart` or `gpupipe clean` throws them away",
            )
        return found

    def choose(self, choices: tuple[Choice, ...]) -> None:
        """Keeps what was chosen, unless another process was faster: then that counts."""
        with self.writing():
            write(self.folder, CHOICES, {"run": self.digest, "choices": plain(choices)}, once=self._shared)

    def _strangers(self) -> bool:
        """Whether a segment says that it was made by another run."""
        for path in self._finished():
            with suppress(BadPieceError, OSError):
                if verify(path, thorough=False).digest != self.digest:
                    return True
        return False

    def _changes(self, before: dict[str, Any]) -> list[str]:
        told = facts.changed(before.get("facts"), self._facts)
        try:
            old = load(before, str(self.folder / PLAN)).deciding()
        except GpupipeError:
            return [f"gpupipe was {before.get('version')}, is {self.plan.version}", *told]
        return [*facts.changed(old, self.plan.deciding()), *told]

    def _refuse(self, changes: list[str]) -> NoReturn:
        done = len(self._finished())
        more = f" and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        raise PlanError(
            f"{done} segments of another run are kept: {'; '.join(changes[:_SHOWN])}{more}",
            where=str(self.folder),
            hint="`gpupipe run --restart` or `gpupipe clean` throws them away; with what made them the run goes on",
        )

    def look(self, index: int) -> Piece | None:
        """A segment's facts where its file verifies; a file that does not is taken away."""
        path = self.path(index)
        self.pieces.pop(index, None)
        try:
            piece = verify(path)
            if piece.digest != self.digest:
                raise BadPieceError("it is of another plan")  # noqa: TRY301
        except FileNotFoundError:
            return None
        except BadPieceError as error:
            self.distrust(index, str(error))
            return None
        except OSError as error:  # of a volume that is away for a moment, perhaps: what is there stays there
            self.log("unreadable", segment=index, why=str(error))
            return None
        self.pieces[index] = piece
        return piece

    def distrust(self, index: int, why: str) -> None:
        """Takes away a segment's file, which is not what was written."""
        self.pieces.pop(index, None)
        self.log("untrusted", segment=index, why=why)
        with suppress(OSError):
            self.path(index).unlink()

    def missing(self) -> list[int]:
        """Indices of the segments that are still to be rendered."""
        return [n for n in range(len(self.plan.segments)) if n not in self.pieces]

    def path(self, index: int) -> Path:
        """The file of a segment."""
        return self.folder / SEGMENTS / f"{index:06}.seg"

    def writer(self, index: int) -> PieceWriter:
        """A new file for a segment."""
        with self.writing():
            return PieceWriter(self.path(index), self.digest)

    def finished(self, index: int, piece: Piece) -> None:
        """A segment has its name."""
        self.pieces[index] = piece
        self.log("segment", segment=index, frames=piece.frames, pts=[piece.first, piece.last], hash=piece.hash)

    def log(self, event: str, **what: object) -> None:
        """A line of JSON in the log; a full disk does not matter here."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "host": socket.gethostname(), "process": os.getpid(), "event": event, **what})
        with suppress(OSError), (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What the system says, as a MediaError that names the volume and what to do."""
        try:
            yield
        except OSError as error:
            told = describe_os_error(error, self.plan.output)
            hint = "free some space" if "space" in told.message else told.hint
            kind = MediaError if isinstance(error, FileNotFoundError) else VolumeError  # as without a ledger
            raise kind(told.message, where=told.where, hint=hint) from error

    def joined(self, temporary: Path) -> None:
        """The output is whole and checked: all that is left is its name."""
        stat = temporary.stat()
        frames = sum(piece.frames for piece in self.pieces.values())
        with self.writing():
            write(
                self.folder,
                FINISHED,
                {"inode": stat.st_ino, "size": stat.st_size, "run": self.digest, "frames": frames},
            )

    def joined_before(self) -> int | None:
        """Frames of the output where an earlier run was killed between the rename and the end; None where none was."""
        found = read(self.folder, FINISHED) or {}
        try:
            stat = self.plan.output.stat()
        except OSError:
            return None
        same = (found.get("inode"), found.get("size"), found.get("run")) == (stat.st_ino, stat.st_size, self.digest)
        return int(found["frames"]) if same else None

    def sweep(self) -> None:
        """Takes away what a killed run left half written; other processes' work where the ledger is shared stays."""
        if self._shared:
            return
        (self.folder / FINISHED).unlink(missing_ok=True)
        for part in parts(self.folder):
            part.unlink(missing_ok=True)

    def _finished(self) -> list[Path]:
        return list(pieces(self.folder))

    def kept(self) -> int:
        """Segments that lie there, also those that a node has just finished and has not told of yet.

        Where the volume does not say, those that are known of: whoever asks has an error of its own to tell.
        """
        try:
            return len(self._finished())
        except OSError:
            return len(self.pieces)

    def clear(self) -> None:
        """Throws all that is done away; the folder stays."""
        self.sweep()
        for path in (*self._finished(), *(self.folder / name for name in (LOG, PLAN, CHOICES))):
            path.unlink(missing_ok=True)
        self.pieces = {}

    def remove(self) -> None:
        """The output has its name, or there is nothing to keep: the ledger goes."""
        take_away(self.folder)
