"""What a bench found, as plain data: written to JSON, read back from it, and made into tables and a chart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from statistics import median
from typing import Literal, Self

from pydantic import TypeAdapter, ValidationError

from gpupipe.errors import MediaError, first_line
from gpupipe.plain import plain

Kind = Literal["limit", "step", "whole", "fewer", "baseline"]
"""Decode or the encoder by itself; the plan so far; all of it; with another number of sessions; what it is beside."""
SCHEMA = 1
"""Rises when a field changes its meaning or goes; fields may be added under the same number."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure measured several times."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: list[float]) -> Self:
        """Of at least one value, rounded to four digits or more."""
        return cls(*(float(f"{value:.5g}") for value in (median(values), min(values), max(values))))


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Medians of what NVML said while a row was timed; None where this GPU does not say."""

    gpu: float | None
    """Percent of the time in which a kernel ran."""
    memory: float | None
    """Percent of the time in which memory was read or written."""
    nvdec: float | None
    """Percent, over all of its engines."""
    nvenc: float | None
    nvjpg: float | None
    """Percent of the JPEG decoders; encoding by nvJPEG is work of kernels."""
    power_w: float | None
    sm_mhz: float | None
    video_mhz: float | None
    memory_mib: float | None
    """In use on the whole GPU."""
    samples: int


@dataclass(frozen=True, slots=True)
class Row:
    """One way to run the plan, or a part of it."""

    name: str
    """What `--only` calls it."""
    label: str
    kind: Kind
    frames: int
    """Of each run."""
    sessions: int
    """Decoders side by side."""
    rate: Spread | None = None
    """Frames a second, from when files, decoders, graphs and encoders are open; None: see `reason`."""
    whole_rate: Spread | None = None
    """The same with start-up, for rows that write a file."""
    startup: Spread | None = None
    """Seconds until all was open."""
    cores: float | None = None
    """CPU cores kept busy, by all threads of the process."""
    of_decode: Spread | None = None
    """Its rate over that of decode alone with as many sessions, run by run."""
    utilisation: Utilisation | None = None
    reason: str | None = None
    """Why it was not measured."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast the whole is as something else, run by run."""

    to: str
    """Name of the other row."""
    label: str
    value: Spread | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured."""

    cpu: str
    cores: int
    """That this process may use."""
    gpu: str | None
    driver: str | None
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Clip:
    """What was decoded."""

    name: str
    codec: str
    profile: str | None
    pixels: str
    width: int
    height: int
    rate: str
    frames: int
    megabits: float
    """A second, of the file."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was compared before anything was timed."""

    frames: int
    psnr: float
    """dB over all pictures in R'G'B', averaged over 2x2 samples: the output beside the CPU backend's lossless one."""
    worst: float
    """dB of the worst picture."""
    bias: float
    """Mean difference of the colour that is furthest off, in codes of 8 bit."""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole bench."""

    schema: int
    gpupipe: str
    command: str
    date: str
    machine: Machine
    clip: Clip
    plan: tuple[str, ...]
    """The plan in words, without its paths."""
    check: Check
    runs: int
    tried: dict[str, float]
    """Frames a second of decode alone by number of sessions; the best one was taken."""
    rows: tuple[Row, ...]
    ratios: tuple[Ratio, ...]
    bottleneck: str
    not_measured: tuple[str, ...]
    """What this machine could not tell, and why."""

    def row(self, name: str) -> Row | None:
        """The row of that name."""
        return next((row for row in self.rows if row.name == name), None)

    def to_json(self) -> str:
        """All of it, as JSON text."""
        return json.dumps(plain(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "JSON") -> Self:
        """What `to_json` wrote. Raises MediaError for anything else."""
        try:
            found = TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            raise MediaError(f"not a report of `gpupipe bench`: {first_line(error)}", where=where) from None
        if found.schema != SCHEMA:
            raise MediaError(f"a report of schema {found.schema}; this gpupipe reads {SCHEMA}", where=where)
        return found
