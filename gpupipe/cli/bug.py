"""What happens to an exception that nobody expected: one line for the user, all of it in a file."""

from __future__ import annotations

import platform
import sys
import tempfile
import traceback

import gpupipe


def report(error: Exception) -> str:
    """Writes the traceback to a file in the temporary folder; returns one line that says where."""
    kind = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    text = "".join(traceback.format_exception(error))
    head = f"gpupipe {gpupipe.__version__}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv!r}\n\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="gpupipe-bug-", suffix=".log", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write(head + text)
    except OSError as failure:
        return f"a bug in gpupipe: {kind} (its log could not be written: {failure.strerror})"
    return f"a bug in gpupipe: {kind} (please report it with {file.name})"
