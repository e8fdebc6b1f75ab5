"""Reads .cube lookup tables; no torch.

Adobe Cube LUT Specification 1.0, and DaVinci Resolve's files, which may hold a 1D curve before the 3D table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpupipe.errors import PlanError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

_LARGEST = {"LUT_1D_SIZE": 65536, "LUT_3D_SIZE": 256}
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Table:
    """One table and the domain of its input, per channel."""

    values: npt.NDArray[np.float32]
    """(size, 3) of a 1D table; (size, size, size, 3) of a 3D table, indexed blue, green, red as the file runs."""
    low: Triple
    high: Triple


@dataclass(frozen=True)
class Cube:
    """A .cube file: a curve a channel, a 3D table, or the curves first and then the table."""

    title: str
    curve: Table | None
    lattice: Table | None


def read_cube(path: Path) -> Cube:
    """Reads a file. Raises PlanError naming file and line."""
    try:
        if path.exists() and not path.is_file():
            raise PlanError("cannot read the LUT: it is not a file", where=str(path), hint="name one .cube file")
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PlanError(f"cannot read the LUT: {error.strerror}", where=str(path), hint="check the path") from None
    return _Reader(path).read(text)


class _Reader:
    """State of one reading: keywords seen so far and the rows of numbers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = 0
        self._title = ""
        self._sizes: dict[str, int] = {}
        self._ranges: dict[str, Triple] = {}
        self._rows: list[list[float]] = []

    def read(self, text: str) -> Cube:
        for self._line, raw in enumerate(text.splitlines(), 1):
            line = raw.strip().removeprefix("\ufeff")
            if line and not line.startswith("#"):
                self._take(line)
        if not self._sizes:
            raise PlanError("has no LUT_3D_SIZE or LUT_1D_SIZE", where=str(self._path), hint="is it a .cube file?")
        return self._tables()

    def _error(self, message: str) -> PlanError:
        return PlanError(message, where=f"{self._path}:{self._line}")

    def _take(self, line: str) -> None:
        """One line: a keyword or three numbers."""
        word, *rest = line.split()
        if word == "TITLE":
            self._title = line[5:].strip().strip('"')
        elif word in _LARGEST:
            if self._rows or word in self._sizes:
                raise self._error(f"{word} comes twice or after the table's values")
            if len(rest) != 1 or not rest[0].isdigit() or not 2 <= int(rest[0]) <= _LARGEST[word]:
                raise self._error(f"{word} is a number from 2 to {_LARGEST[word]}, not {' '.join(rest)!r}")
            self._sizes[word] = int(rest[0])
        elif word in ("DOMAIN_MIN", "DOMAIN_MAX"):
            red, green, blue = self._numbers(rest, 3)
            self._ranges[word] = (red, green, blue)
        elif word in ("LUT_1D_INPUT_RANGE", "LUT_3D_INPUT_RANGE"):
            low, high = self._numbers(rest, 2)
            self._ranges[word + " low"], self._ranges[word + " high"] = (low,) * 3, (high,) * 3
        elif word[0].isalpha() and word.lower() not in ("nan", "inf", "infinity"):
            raise self._error(f"unknown keyword {word}")
        else:
            self._rows.append(self._numbers([word, *rest], 3))

    def _numbers(self, words: list[str], count: int) -> list[float]:
        try:
            numbers = [float(w) for w in words]
        except ValueError:
            numbers = []
        if len(numbers) != count or not np.isfinite(numbers).all():
            raise self._error(f"{count} finite numbers are wanted here, not {' '.join(words)[:60]!r}")
        return numbers

    def _tables(self) -> Cube:
        length, side = self._sizes.get("LUT_1D_SIZE", 0), self._sizes.get("LUT_3D_SIZE", 0)
        if len(self._rows) != length + side**3:
            raise self._error(f"holds {len(self._rows)} rows of numbers, and its size asks for {length + side**3}")
        rows = np.array(self._rows, dtype=np.float32)
        curve = Table(rows[:length], *self._domain("LUT_1D_INPUT_RANGE")) if length else None
        shape = (side, side, side, 3)
        lattice = Table(rows[length:].reshape(shape), *self._domain("LUT_3D_INPUT_RANGE")) if side else None
        return Cube(self._title, curve, lattice)

    def _domain(self, word: str) -> tuple[Triple, Triple]:
        low = self._ranges.get(word + " low", self._ranges.get("DOMAIN_MIN", (0.0, 0.0, 0.0)))
        high = self._ranges.get(word + " high", self._ranges.get("DOMAIN_MAX", (1.0, 1.0, 1.0)))
        if any(a >= b for a, b in zip(low, high, strict=True)):
            raise PlanError(f"its input domain {low} to {high} is empty", where=str(self._path))
        return low, high
