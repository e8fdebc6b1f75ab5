"""How far a run is, what it did, and how it is told to stop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction
    from pathlib import Path

    from gpupipe.plan import Plan
    from gpupipe.render.watch import Watch

INTERVAL = 0.1  # seconds between reports


class StopFlag(Protocol):
    """Set from outside (a signal handler) to end a run early; threading.Event will do."""

    def is_set(self) -> bool:
        """Whether the run should end."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    frames: int
    """Frames handed to the encoder."""
    total: int | None
    """Frames expected; None where the container does not say."""
    pts_seconds: float
    """Time of the last frame, for display only."""
    elapsed: float
    """Seconds since the start."""
    kept: int = 0
    """Frames of them that an earlier run had rendered."""

    @property
    def rate(self) -> float:
        """Frames a second of this run."""
        return (self.frames - self.kept) / self.elapsed if self.elapsed > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Score:
    """A metric of quality over a run."""

    name: str
    mean: float
    """Of all pictures: of their mean error for PSNR (dB; infinite where they are the same), else their mean."""
    least: float
    """Of the worst picture."""
    least_seconds: float
    """Where that is, on the source's clock."""
    frames: int
    """Pictures that were compared."""
    threshold: float | None
    passed: bool

    @property
    def mean_text(self) -> str:
        """With a unit."""
        return self._text(self.mean)

    @property
    def least_text(self) -> str:
        """With a unit."""
        return self._text(self.least)

    def _text(self, value: float) -> str:
        return f"{value:.2f} dB" if self.name == "psnr" else f"{value:.5f}" if self.name == "ssim" else f"{value:.2f}"

    def __str__(self) -> str:
        limit = "" if self.threshold is None else f", at least {self.threshold:g} wanted"
        return (
            f"{self.name} {self.mean_text}, {self.least_text} at worst (at {self.least_seconds:.3f} s), "
            f"of {self.frames} pictures{limit}"
        )


@dataclass(frozen=True, slots=True)
class RenderResult:
    """What a finished run did."""

    output: Path
    frames: int
    """Frames in the output."""
    decoded: int
    repeated: int
    """Frames shown again by an fps stage."""
    dropped: int
    """Frames left out by an fps stage."""
    seconds: float
    startup: float
    """Seconds of them until file, decoders, graphs and encoders were open."""
    bytes: int
    quality: tuple[Score, ...] = ()
    """What the config asked to be measured."""
    kept: int = 0
    """Frames that earlier runs had rendered."""

    @property
    def rate(self) -> float:
        """Frames a second of this run."""
        return (self.frames - self.kept) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted on the way."""

    decoded: int
    repeated: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended that has its output."""

    tally: Tally
    frames: int
    """Frames in the output."""
    bytes: int
    scores: tuple[Score, ...]


class Meter:
    """Counts finished frames and reports them, not more often than every INTERVAL."""

    def __init__(self, plan: Plan, report: Callable[[Progress], None], watch: Watch, total: int | None = None) -> None:
        self._report, self._total, self._watch = report, total or expected(plan), watch
        watch.total, watch.frames = self._total, 0
        start = plan.start_pts if plan.start_pts is not None else plan.source.video.start or 0
        self._start = float(start * plan.source.video.time_base)
        self._length = float((self._total or 0) / plan.encoder.rate)
        """Seconds of the output; for display only."""
        self._began = self._reported = time.monotonic()
        self._at = self.startup = 0.0
        self.shown = 0
        self._last: tuple[int, Fraction] | None = None
        """pts and time base of the last frame."""
        self.kept = 0
        """Frames that an earlier run had rendered."""
        self._finished = False

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def open(self) -> None:
        """All is open; frames begin to flow."""
        self.startup = self.startup or self.elapsed

    def restart(self) -> None:
        """All that was done is lost."""
        self.shown = self._watch.frames = 0
        self._watch.written = 0
        self.again()

    def again(self) -> None:
        """Lanes begin anew: what they had computed ahead of the writer is lost."""
        self._watch.again(self.shown)

    def count(self, frames: int, pts: int, time_base: Fraction) -> None:
        """`frames` more are done, the last of them at `pts`."""
        self.shown += frames
        self._watch.frames, self._last = self.shown, (pts, time_base)
        now = time.monotonic()
        if now - self._reported >= INTERVAL:
            self._reported, self._at = now, float(pts * time_base)
            self._watch.media = self._at - self._start
            self._report(Progress(self.shown, self._total, self._at, now - self._began))

    def reach(self, frames: int) -> None:
        """So many are done, in no order: their times say nothing of how far the run is."""
        self.shown = self._watch.frames = frames
        self._watch.media = self._length * frames / self._total if self._total else 0.0
        self._at = self._start + self._watch.media
        now = time.monotonic()
        if now - self._reported >= INTERVAL:
            self._reported = now
            self._report(Progress(frames, self._total, self._at, now - self._began, self.kept))

    def wrote(self, size: int) -> None:
        """So many bytes of encoded packets went to the muxer."""
        self._watch.written += size

    def finish(self) -> None:
        """The last report: all is done. What is tidied up after it takes a while, so it is told once, when it is so."""
        if self._finished:
            return
        self._finished = True
        if self._last is not None:
            pts, time_base = self._last
            self._at = float(pts * time_base)
            self._watch.media = self._at - self._start
        self._report(Progress(self.shown, self.shown, self._at, self.elapsed, self.kept))


def expected(plan: Plan) -> int | None:
    """Frames to come, for a progress bar; an estimate where there is a range or a new rate."""
    video, rate = plan.source.video, plan.encoder.rate
    if plan.start_pts is None and plan.end_pts is None and plan.retime is None and video.frames:
        return video.frames
    first = plan.start_pts if plan.start_pts is not None else video.start or 0
    if plan.end_pts is not None:
        return max(1, round((plan.end_pts - first) * video.time_base * rate))
    if video.duration is None:
        return None
    return max(1, round(((video.start or 0) + video.duration - first) * video.time_base * rate))
