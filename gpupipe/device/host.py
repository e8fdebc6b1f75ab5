"""Memory of this machine and of this process, as Linux tells it."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_CGROUP = Path("/sys/fs/cgroup")


def resident_bytes() -> int | None:
    """Memory that this process holds; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return None


def available_bytes() -> int | None:
    """Memory that may still be taken, the cgroup's limit included; None where the system does not say."""
    found = [size for size in (_machine("MemAvailable"), _cgroup()) if size is not None]
    return min(found, default=None)


def total_bytes() -> int | None:
    """Memory that there is, or the cgroup's limit; None where the system does not say."""
    found = [size for size in (_machine("MemTotal"), _limit(_CGROUP)) if size is not None]
    return min(found, default=None)


def _machine(key: str) -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _limit(folder: Path) -> int | None:
    try:
        return int((folder / "memory.max").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no cgroup, or "max": no limit
        return None


def _cgroup(folder: Path = _CGROUP) -> int | None:
    """Of a container; its page cache counts as free, since the kernel gives it up."""
    limit = _limit(folder)
    try:
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        statistics = (folder / "memory.stat").read_text(encoding="ascii")
        cache = next(int(line.split()[1]) for line in statistics.splitlines() if line.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):
        return None
    return None if limit is None else max(0, limit - used + cache)
