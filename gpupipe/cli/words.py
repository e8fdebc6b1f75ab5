"""Sizes and ages as people say them."""

from __future__ import annotations

_AGES = (("days", 86400), ("hours", 3600), ("minutes", 60))


def size(count: float) -> str:
    """`12.3 MB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def ago(seconds: float) -> str:
    """`3 days`; two of a unit at least."""
    for unit, length in _AGES:
        if seconds >= 2 * length:
            return f"{int(seconds / length)} {unit}"
    return f"{max(0, int(seconds))} seconds"
