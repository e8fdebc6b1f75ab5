"""Memory of this machine and of this process, as Linux tells it."""

from __future__ import annotations

import ctypes
import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path

from gpupipe.errors import ShortMemoryError

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Room:
    """Memory in bytes."""

    left: int
    """That this process may still take."""
    total: int
    """That there is, for everyone who shares it."""


def rooms(limit: int | None = None) -> list[Room]:
    """What each of machine or container, address space of the process and `limit` leaves; the fewest bytes first.

    Args:
        limit: bytes that this process is to hold at most.
    """
    found = []
    if (left := available_bytes()) is not None and (total := total_bytes()) is not None:
        found.append(Room(left, total))
    if limit is not None and (held := resident_bytes()) is not None:
        found.append(Room(max(0, limit - held), limit))
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY and (mapped := mapped_bytes()) is not None:
        found.append(Room(max(0, most - mapped), most))
    return sorted(found, key=lambda room: room.left)


LEAST = (0.03, 512 << 20)
"""Share of the memory there is, and bytes at most: with less than that left what fails may fail for that reason."""


def nearly_full() -> bool:
    """Whether hardly any memory is left."""
    return any(room.left < min(LEAST[0] * room.total, LEAST[1]) for room in rooms())


_SHORT = re.compile(
    r"out.of.memory|can't allocate memory|not enough memory|can't start new thread|ALLOCATOR_FAILURE", re.IGNORECASE
)


def short_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it came from, means that memory was short, of the host or of a GPU.

    Libraries have no common way to say it: torch's CPU allocator raises a plain RuntimeError.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (MemoryError, ShortMemoryError)) or _SHORT.search(str(seen)):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def trim() -> None:
    """Gives memory that was freed back to the system; where the C library keeps it for later, as glibc does."""
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


def resident_bytes() -> int | None:
    """Memory that this process holds; None where the system does not say."""
    return _pages(1)


def mapped_bytes() -> int | None:
    """Address space of this process; None where the system does not say."""
    return _pages(0)


def _pages(column: int) -> int | None:
    """A figure of /proc/self/statm in bytes."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[column]) * _PAGE
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


def _cgroup() -> int | None:
    """Of a container; its page cache counts as free, since the kernel gives it up."""
    limit = _limit(_CGROUP)
    try:
        used = int((_CGROUP / "memory.current").read_text(encoding="ascii"))
        statistics = (_CGROUP / "memory.stat").read_text(encoding="ascii")
        cache = next(int(line.split()[1]) for line in statistics.splitlines() if line.startswith("inactive_file "))
    except (OSError, ValueError, StopIteration):
        return None
    return None if limit is None else max(0, limit - used + cache)
