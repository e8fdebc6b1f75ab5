"""This very Python once more, for a part of the work: the user's script is not run there, nor torch loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.process import ORIGINAL_DIR  # type: ignore[attr-defined]
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST = 3
"""The standard streams are the numbers below: where they are closed, other files get these."""


def can_be() -> bool:
    """Whether there is an interpreter to start: a program that has Python inside may have none."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def modules() -> list[str]:
    """Where this process finds modules, whatever folder it is in now. Other things than text it passes over too."""
    return [os.path.join(ORIGINAL_DIR, folder) for folder in sys.path if isinstance(folder, str)]  # noqa: PTH118


def start(code: str, files: Sequence[int]) -> subprocess.Popen[bytes]:
    """Starts a process that runs `code`, which may use `sys`, with the numbers of open files as arguments.

    Not multiprocessing's own way, which would run the user's script once more. In a session of its own: Ctrl-C in the
    terminal, or its end, reaches only this process, which decides. Raises OSError.
    """
    if min(files) < _FIRST:
        raise OSError("the standard streams are closed")
    whole = f"import sys; sys.path[:] = {modules()!a}\n{code}"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001  as multiprocessing
    return subprocess.Popen(  # noqa: S603
        [sys.executable, *flags, "-c", whole, *map(str, files)],
        pass_fds=files, stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
