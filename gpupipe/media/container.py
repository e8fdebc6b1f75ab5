"""Opening a source with libavformat, quietly, and reading what PyAV has no attribute for.

PyAV discards libav's log by default, and gpupipe leaves it so: nothing of it reaches the terminal. A log callback in
Python would need the GIL in libav's worker threads, which can dead-lock when a decoder is closed, so decode errors are
counted by exceptions and `is_corrupt` flags instead, and logging is on only for the moments below, when no worker runs.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import av
import av.logging

from gpupipe.codecs.libav_log import captured_log
from gpupipe.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from av.container import InputContainer

_TAG = re.compile(r"\((\S{4}) / 0x[0-9A-F]{8}\)")
_CODEC = re.compile(r": (?:Data|Attachment|Unknown|Subtitle|Audio|Video): (\w+)")
_CROP = re.compile(r"Frame Cropping: (\d+)/(\d+)/(\d+)/(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StreamNotes:
    """What libav's own description of a stream says beyond PyAV's attributes."""

    codec: str = ""
    """libav's name; empty where it knows none."""
    tag: str | None = None
    """Four-character code, such as tmcd, where it is printable."""
    dolby_vision: bool = False
    clean_aperture: tuple[int, int, int, int] | None = None
    """Pixels the container asks to hide at left, right, top, bottom."""


def check_readable(path: Path) -> None:
    """Raises SourceError where a path cannot be a source, before libav says so less clearly."""
    name = str(path)
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise SourceError("no such file", where=name, hint="check the path") from None
    except PermissionError:
        raise SourceError("no permission to look into its folder", where=name, hint="check owner and mode") from None
    except OSError as error:  # too long a name, a link that points to itself
        raise SourceError(f"cannot be read: {error.strerror}", where=name, hint="check the path") from None
    if stat.S_ISDIR(found.st_mode):
        raise SourceError("is a directory, not a media file", where=name, hint="name one file")
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(
            "is not a regular file", where=name, hint="copy it to a file first; gpupipe reads a source twice"
        )
    if not os.access(path, os.R_OK):
        raise SourceError("no permission to read it", where=name, hint="check owner and mode")
    if found.st_size == 0:
        raise SourceError("is empty (0 bytes)", where=name, hint="copy or record it again")


def open_input(path: Path) -> InputContainer:
    """Opens a source. Raises SourceError naming the file.

    The path goes to libav as a `file:` URL, so colons, leading dashes and the like are never read as protocol names.
    """
    check_readable(path)
    url = f"file:{path.absolute()}"
    try:
        try:
            return av.open(url)
        except UnicodeDecodeError:  # PyAV 18; 19 does this by itself, and no longer has the argument
            return av.open(url, metadata_errors="surrogateescape")
    except UnicodeEncodeError:
        raise SourceError("its name is not valid UTF-8", where=repr(str(path)), hint="rename it") from None
    except (av.FFmpegError, OSError) as error:
        raise SourceError(
            f"cannot be read as a media file: {_reason(url, error)}",
            where=str(path),
            hint="truncated, damaged, or not a media file at all",
        ) from None


def clean_tags(tags: dict[str, str]) -> dict[str, str]:
    """Tags as text: those that are not UTF-8 (old cameras, AVI) are read as Latin-1, which loses nothing."""
    return {key: _clean(value) for key, value in tags.items()}


def _clean(text: str) -> str:
    raw = text.encode(errors="surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _reason(url: str, error: Exception) -> str:
    """Opens once more with the log on, for the line that says why."""
    short = str(getattr(error, "strerror", None) or error)
    with captured_log(av.logging.ERROR) as log:
        with suppress(av.FFmpegError, OSError):
            av.open(url).close()
        lines = [text.strip() for level, _, text in log if level <= av.logging.ERROR]
    return f"{short} ({lines[-1]})" if lines else short


def stream_notes(container: InputContainer) -> dict[int, StreamNotes]:
    """Facts by stream index, taken from `av_dump_format`.

    PyAV has no attribute for an attachment's codec, a data stream's four-character code or the side data of a
    stream, but libav prints them.
    Since libavformat 8.1.1 streams of a group stand deeper than others.
    """
    with captured_log(av.logging.INFO):
        text = str(cast("Any", container).dumps_format())  # missing in PyAV's stub
    notes: dict[int, StreamNotes] = {}
    for block in re.split(r"^ +(?=Stream #0:\d)", text, flags=re.MULTILINE)[1:]:
        head, _, rest = block.partition("\n")
        number = re.match(r"Stream #0:(\d+)", head)
        if number is None:
            continue
        codec, tag, crop = _CODEC.search(head), _TAG.search(head), _CROP.search(rest)
        notes[int(number[1])] = StreamNotes(
            codec=codec[1] if codec and codec[1] not in ("none", "unknown") else "",
            tag=tag[1] if tag else None,
            dolby_vision="DOVI configuration record" in rest,
            clean_aperture=(int(crop[1]), int(crop[2]), int(crop[3]), int(crop[4])) if crop else None,
        )
    return notes
