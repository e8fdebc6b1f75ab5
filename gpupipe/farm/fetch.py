"""Sources behind URLs: one copy on each machine, made once, by fsspec."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from pathlib import Path, PurePosixPath

from gpupipe.errors import CapabilityError, SourceError, first_line

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(name: str) -> bool:
    """Whether a name is a URL, such as s3://bucket/clip.mov."""
    return _URL.match(name) is not None


def local_copy(url: str, folder: Path) -> Path:
    """A file with what the URL holds, in `folder`; fetched if it is not there, by one process of this machine.

    Its name says which version it is, and its time is 0, so that the same source has the same facts everywhere.

    Raises CapabilityError where fsspec or its part for this kind of URL is missing, SourceError where the URL cannot be
    read.
    """
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415  only where there is a URL
    except ImportError:
        raise CapabilityError("fsspec is missing", where=url, hint="pip install 'gpupipe[farm]'") from None
    try:
        system, path = url_to_fs(url)
        version = hashlib.sha256(f"{url}\n{system.ukey(path)}".encode()).hexdigest()[:20]
    except ImportError as error:
        raise CapabilityError(f"no library for this kind of URL: {first_line(error)}", where=url) from None
    except Exception as error:  # noqa: BLE001  every store has errors of its own
        raise _unreadable(url, error) from None
    target = folder / f"{version}{PurePosixPath(path).suffix}"
    part = target.with_name(target.name + ".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.with_suffix(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_file():
                system.get_file(path, str(part))
                os.utime(part, (0, 0))
                part.replace(target)
    except Exception as error:  # noqa: BLE001
        raise _unreadable(url, error) from None
    return target


def _unreadable(url: str, error: Exception) -> SourceError:
    return SourceError(f"cannot be fetched: {first_line(error)}", where=url, hint="check the URL and who may read it")
