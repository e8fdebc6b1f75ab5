"""The output file: checked before work, written under a temporary name, and given its own only when it is whole."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gpupipe.errors import MediaError, VolumeError

if TYPE_CHECKING:
    from types import TracebackType

LEDGER = ".gpupipe"
"""What a folder beside the output is called, after the output, that holds the pieces of a long run."""
_TEMPORARY = re.compile(r"\.(.+)\.gpupipe-\d+(?:-\d+)?\.part", re.DOTALL)
UNFINISHED: set[Path] = set()
"""Files of this process that have no name of their own yet: who ends it at once takes them away first."""
FINISHED: set[Path] = set()
"""Outputs that this process has given their names: whole, whatever happens while decoders are closed."""
_NAME_BYTES = 255
"""Longest file name on the file systems in use (NAME_MAX)."""


def libav_url(path: Path) -> str:
    """A name libav takes as a plain file, whatever is in it: `a:b.mp4` is no protocol then, `-x` no option.

    A URL costs nothing, where an opened Python file would cost a call back into Python for each buffer, and MP4's
    fast start needs to open its own output again.
    """
    return f"file:{path}"


def shown(path: Path) -> str:
    """The name that people know: a temporary name of ours stands for the output's own."""
    match = _TEMPORARY.fullmatch(path.name)
    if match and path.parent.name == match[1] + LEDGER:
        path = path.parent
    return str(path.with_name(match[1]) if match else path)


def describe_os_error(error: OSError | Exception, path: Path) -> VolumeError:
    """The VolumeError for what the system said about `path`: which volume or folder, and what to do."""
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
        why = "no space left" if code == errno.ENOSPC else "disk quota exceeded"
        return VolumeError(
            f"{why} on the volume of {path.parent} ({free / 1e6:.1f} MB free)",
            where=shown(path),
            hint="free some space and start again; nothing was left under the output's name",
        )
    hints = {
        errno.EACCES: ("no permission to write", "check who owns the folder"),
        errno.EPERM: ("no permission to write", "check who owns the folder"),
        errno.EROFS: ("the volume is read-only", "choose another folder"),
        errno.EPIPE: ("the reader of the output went away", "write to a file"),
        errno.EFBIG: ("the file grew beyond what the system allows", "check ulimit -f and the volume's format"),
        errno.ENOENT: ("the folder does not exist", "create it first"),
        errno.EIO: ("the device failed while writing", "check the volume"),
    }
    text, hint = hints.get(code or 0, (f"cannot be written: {getattr(error, 'strerror', None) or error}", None))
    return VolumeError(text, where=shown(path), hint=hint)


def check_space(path: Path, needed: int) -> None:
    """Raises VolumeError where the volume of `path` has fewer than `needed` bytes free."""
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise VolumeError(
            f"about {needed / 1e9:.2f} GB needed on the volume of {path.parent}, {free / 1e9:.2f} GB free",
            where=str(path),
            hint="free some space or write elsewhere",
        )


def _settle(folder: Path) -> None:
    """After a power cut too the names in a folder are those of now, where the volume can promise that."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class OutputFile:
    """Checks and owns one output file; a context manager.

    Inside the `with` block write to `path`, and call `commit()` when the file is whole. Leaving the block without it
    removes what was written. Nothing ever stands under `name` but a whole file.
    """

    def __init__(
        self, name: Path, *, overwrite: bool = False, inputs: tuple[Path, ...] = (), within: Path | None = None
    ) -> None:
        self.name = name
        """What the user called it."""
        self.path = name
        """Where to write: in the same folder or `within` one in it, hidden, with our name and process number."""
        self._final = name
        """`name` with symbolic links followed, so that a link stays one."""
        self._overwrite = overwrite
        self._inputs, self._within = inputs, within
        self._created = False

    def check(self) -> None:
        """Raises MediaError where the output cannot be or must not be written. Touches nothing."""
        where = str(self.name)
        self._final = Path(os.path.realpath(self.name))
        try:
            mode = self._final.stat().st_mode
        except FileNotFoundError:
            mode = None
        except OSError as error:
            raise describe_os_error(error, self.name) from None
        folder = self._final.parent
        if mode is not None:
            self._check_existing(mode)
        elif not self._final.name or where.endswith("/"):
            raise MediaError("the output is a folder's name", where=where, hint="give a file name")
        if not folder.is_dir():
            raise MediaError(f"the folder {folder} does not exist", where=where, hint="create it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise VolumeError(f"no permission to write in {folder}", where=where, hint="check who owns the folder")

    def _check_existing(self, mode: int) -> None:
        where = str(self.name)
        if stat.S_ISDIR(mode):
            raise MediaError("the output is a folder", where=where, hint="give a file name in it")
        if not stat.S_ISREG(mode):
            raise MediaError(
                "the output is a device or pipe, not a file",
                where=where,
                hint="containers need a file they can seek in",
            )
        if any(one.exists() and self._final.samefile(one) for one in self._inputs):
            raise MediaError(
                "the output is the input", where=where, hint="choose another output; the source is never overwritten"
            )
        if not self._overwrite:
            raise MediaError("the output exists", where=where, hint="give --overwrite or another name")

    def __enter__(self) -> Self:
        self.check()
        suffix = f".gpupipe-{os.getpid()}"
        stem = os.fsencode(self._final.name)[: _NAME_BYTES - len(suffix) - 12]
        for attempt in range(1000):
            number = f"-{attempt}" if attempt else ""
            candidate = (self._within or self._final.parent) / os.fsdecode(
                b"." + stem + f"{suffix}{number}.part".encode()
            )
            try:
                os.close(os.open(candidate, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                continue
            except OSError as error:
                raise describe_os_error(error, self.name) from None
            self.path, self._created = candidate, True
            UNFINISHED.add(candidate)
            return self
        raise MediaError("no free temporary name", where=str(self.name), hint="remove old .gpupipe-*.part files")

    def commit(self) -> int:
        """Gives the file its name, atomically, and returns its size in bytes.

        Raises MediaError where it cannot, or a file of that name has appeared meanwhile.
        """
        try:
            handle = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(handle)  # network volumes report a full disk or quota only now
                size = os.fstat(handle).st_size
            finally:
                os.close(handle)
            if self._overwrite:
                self.path.replace(self._final)
            else:
                self._claim()
        except FileExistsError:
            raise MediaError(
                "a file of that name has appeared meanwhile",
                where=str(self.name),
                hint="it was left alone; choose another name",
            ) from None
        except OSError as error:
            raise describe_os_error(error, self.name) from None
        self._created = False
        UNFINISHED.discard(self.path)
        FINISHED.add(self.name)
        _settle(self._final.parent)
        return size

    def _claim(self) -> None:
        """Renames without replacing: a hard link fails where the name is taken, and so does an exclusive empty file."""
        try:
            os.link(self.path, self._final)
        except FileExistsError:
            raise
        except OSError:
            os.close(os.open(self._final, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            self.path.replace(self._final)
        else:
            self.path.unlink()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._created:
            self.path.unlink(missing_ok=True)
            self._created = False
            UNFINISHED.discard(self.path)
