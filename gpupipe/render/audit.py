"""Whether pixels stayed on the GPU: bytes copied to and from it beside those of the bitstreams."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from gpupipe.media.timeline import Window
from gpupipe.media.weigh import video_bytes
from gpupipe.render.board import PARTS
from gpupipe.render.watch import WAIT, current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpupipe.device.copies import CopyWatch
    from gpupipe.plan import Plan
    from gpupipe.render.progress import Progress
    from gpupipe.render.watch import Watch

ALLOWED, SPARE = 1.02, 1_000_000
"""Copies may have so many times the bitstream's bytes, and so many bytes for tables and settings."""
PATIENCE, _LOOK = 10.0, 0.02
"""Seconds that lanes have to come to a stand, and between looks."""


@dataclass(frozen=True, slots=True)
class Direction:
    """Copies one way beside the bitstream that goes that way."""

    copied: int
    compressed: int
    mostly: str = ""
    """Which copies these were, in words."""

    @property
    def within_limit(self) -> bool:
        """Whether there is no room for pixels among them."""
        return self.copied <= ALLOWED * self.compressed + SPARE


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What was copied during a run, in bytes."""

    device: str
    to_device: Direction | None
    """Beside the compressed input; None where there was nothing to audit."""
    to_host: Direction | None
    """Beside the encoded output."""
    within_device: int
    blind: int
    """How often lanes did not stand still while the counting was read out: what they copied then is missing."""
    within_limits: bool
    message: str

    def lines(self) -> list[str]:
        """A short table, or why there is none."""
        if self.to_device is None or self.to_host is None:
            return [f"copies   {self.message}"]
        return [
            _row("host to GPU", self.to_device, "input"),
            _row("GPU to host", self.to_host, "output"),
            f"copies   on the GPU   {self.within_device:>18,} bytes",
            f"copies   {self.message}",
        ]


def _row(name: str, way: Direction, stream: str) -> str:
    ratio = f" (x {way.copied / way.compressed:.3f})" if way.compressed else ""
    what = f"; {way.mostly}" if way.mostly else ""
    return f"copies   {name}  {way.copied:>18,} bytes; the {stream}'s bitstream {way.compressed:>16,}{ratio}{what}"


class CopyAudit:
    """Counts copies while it is entered; `watching` wraps a run's progress report.

    On the CPU it does nothing, and its report says so.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._watch: CopyWatch | None = None

    def __enter__(self) -> Self:
        """Raises DeviceError where CUPTI cannot be used."""
        if self._plan.device != "cpu":
            from gpupipe.device.copies import CopyWatch  # noqa: PLC0415  a run on the CPU needs none

            self._watch = CopyWatch(self._plan.device, still)
            self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.stop()

    def watching(self, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """The same report, which also keeps what the audit holds in memory bounded."""
        watch = self._watch
        if watch is None:
            return report

        def both(progress: Progress) -> None:
            watch.tick(progress.frames)
            report(progress)

        return both

    def report(self, output: Path | None) -> AuditReport:
        """After it was left: what was copied beside the bitstreams of the source and of `output`, if there is one."""
        plan = self._plan
        if self._watch is None:
            message = "nothing to audit: the run is on the CPU, so nothing is copied to or from a GPU"
            return AuditReport(plan.device, None, None, 0, 0, within_limits=True, message=message)
        copies, blind = self._watch.copies, self._watch.blind
        taken = video_bytes(plan.source.path, Window(plan.start_pts, plan.end_pts))
        to_device = Direction(copies.to_device, taken, copies.mostly("to_device"))
        given = video_bytes(output) if output is not None else 0
        to_host = Direction(copies.to_host, given, copies.mostly("to_host"))
        within = to_device.within_limit and to_host.within_limit
        message = _verdict(plan, to_device, to_host)
        if blind:
            message += f" (at least: {blind} times lanes went on while the counting was read out)"
        return AuditReport(plan.device, to_device, to_host, copies.within, blind, within_limits=within, message=message)


@contextmanager
def still() -> Iterator[bool]:
    """All lanes of this thread's run stand between two batches meanwhile; says whether they came to a stand."""
    watch = current()
    if watch is None:
        yield True
        return
    watch.held = True
    try:
        yield _stands(watch)
    finally:
        watch.held = False


def _stands(watch: Watch) -> bool:
    """A lane that was woken may not know it yet, so three looks in a row count."""
    until, looks = time.monotonic() + PATIENCE, 0
    while looks < 3:
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK)
        now = watch.read()
        others = [lane.state for lane in now.lanes if lane.kind not in ("run", "writer")]
        busy = any(state != "done" and not state.startswith(WAIT) for state in others)
        work = any(waiting for queue, waiting in now.queues.items() if queue != PARTS)
        looks = looks + 1 if not busy and not work else 0
    return True


def _verdict(plan: Plan, to_device: Direction, to_host: Direction) -> str:
    limit = f"{ALLOWED:g} times the bitstream and {SPARE // 1_000_000} MB"
    if to_device.within_limit and to_host.within_limit:
        return f"each way at most {limit}: pixels stayed on the GPU"
    why = []
    if not to_device.within_limit:
        why.append(f"{plan.decoder} decodes {plan.decoder_reason}")
    if not to_host.within_limit:
        why.append(f"{plan.encoder.encoder} encodes: {plan.encoder_reason}")
    return f"more than {limit}: {'; '.join(why)}"
