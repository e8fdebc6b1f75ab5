"""C that is compiled when it is first wanted, by the compiler that Triton needs too; without one callers do without."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")
_SECONDS = 60


@lru_cache(maxsize=8)
def compiled(source: Path) -> ctypes.CDLL | None:
    """The functions of a C file, whose calls let go of Python's lock; None where it cannot be compiled here.

    Takes a twentieth of a second, once a process.
    """
    found = (_made(compiler, source) for compiler in filter(None, map(shutil.which, COMPILERS)))
    return next(filter(None, found), None)


def _made(compiler: str, source: Path) -> ctypes.CDLL | None:
    try:
        with tempfile.TemporaryDirectory(prefix="gpupipe-", ignore_cleanup_errors=True) as folder:
            made = Path(folder) / f"{source.stem}.so"
            command = [compiler, "-O2", "-std=c99", "-shared", "-fPIC", "-o", str(made), str(source)]
            subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)  # noqa: S603  our own
            return ctypes.CDLL(str(made))  # stays mapped when the file is gone
    except (OSError, subprocess.SubprocessError):  # also where no folder for temporary files can be written to
        return None
