"""Runs a Plan: demux, decode, stages, encode, mux. The only place that waits."""

from __future__ import annotations

import gc
import re
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gpupipe.device import release
from gpupipe.errors import GpupipeError, first_line
from gpupipe.media.output import OutputFile, check_space
from gpupipe.render.children import on_devices
from gpupipe.render.choices import decided
from gpupipe.render.codecs import make_encoder
from gpupipe.render.facts import inputs
from gpupipe.render.guard import Guard, again
from gpupipe.render.kept import render_missing, run_kept
from gpupipe.render.progress import Meter, Outcome, Progress, RenderResult, StopFlag, Tally
from gpupipe.render.segmented import in_lanes, render_segments
from gpupipe.render.session import Session
from gpupipe.render.short import short_memory
from gpupipe.render.target import known_size, measured, open_muxer
from gpupipe.render.watch import Watch, enter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.frame import FrameBatch
    from gpupipe.journal import Journal
    from gpupipe.media.mux import Muxer
    from gpupipe.plan import Plan
    from gpupipe.render.kept import Fill

_INSIDE = re.compile(r"(segment|stage|pts) |at the end")
"""How places inside a source begin."""
__all__ = ["Progress", "RenderResult", "StopFlag", "Watch", "render"]


def render(
    plan: Plan,
    *,
    overwrite: bool,
    journal: Journal,
    stop: StopFlag,
    progress: Callable[[Progress], None] = lambda _: None,
    watch: Watch | None = None,
    restart: bool = False,
    fill: Fill | None = None,
) -> RenderResult:
    """Carries out a plan; the output appears under its name only when it is whole.

    Args:
        plan: what to do. With a ledger, finished segments are kept beside the output and taken up by the next run.
        overwrite: whether a file of the output's name may be replaced.
        journal: told of damage and repairs.
        stop: looked at all the time.
        progress: called some times a second, in this thread.
        watch: can be read from any thread meanwhile.
        restart: what another run left in the ledger is thrown away.
        fill: who renders segments that are kept; by default this process, or one for each of the plan's devices.

    Raises:
        StoppedError: `stop` was set; nothing is left under the output's name.
        PlanError: the ledger is of another config, source or version.
        MediaError: the source cannot be read or the output not written (disk full, permission).
        DeviceError: the GPU failed.
        ShortMemoryError: of the host or the GPU.
    """
    with watched(plan, watch or Watch(), progress) as meter, short_memory():
        if plan.quality is not None:
            from gpupipe.render.quality import check  # noqa: PLC0415  only where it is asked

            check(plan)
        fill = fill or (on_devices if len(plan.devices) > 1 else render_missing)
        carry_out = partial(run_kept, restart=restart, fill=fill) if plan.ledger else _at_once
        done = carry_out(plan, overwrite=overwrite, journal=journal, stop=stop, meter=meter)
        meter.finish()
    tally = done.tally
    return RenderResult(
        plan.output, done.frames, tally.decoded, tally.repeated, tally.dropped, seconds=meter.elapsed,
        startup=meter.startup, bytes=done.bytes, quality=done.scores,
        kept=meter.kept,
    )  # fmt: skip


@contextmanager
def watched(
    plan: Plan, watch: Watch, progress: Callable[[Progress], None], total: int | None = None
) -> Iterator[Meter]:
    """What every run has around it: a lane of the watch for this thread, and all memory given back at the end.

    Errors that name a segment, a stage or a pts name the source too. `total` are the frames to come, where they are
    not all of the plan's.
    """
    watch.lane("writer" if plan.ledger or in_lanes(plan) else "run", "open")
    try:
        yield Meter(plan, progress, watch, total)
    except GpupipeError as error:
        if error.where is not None and _INSIDE.match(error.where):
            error.where = f"{plan.source.path}: {error.where}"
        raise
    finally:
        watch.leave()
        watch.over()
        # PyAV's containers and streams refer to each other, so codecs and their threads would live on until the next
        # full collection, which may be many jobs away.
        gc.collect()
        release(plan.device)


def _at_once(plan: Plan, *, overwrite: bool, journal: Journal, stop: StopFlag, meter: Meter) -> Outcome:
    """Muxes as it goes and keeps nothing; all that a run holds goes with this frame."""
    with ExitStack() as stack:
        if needed := known_size(plan):
            check_space(plan.output, needed)
        target = stack.enter_context(OutputFile(plan.output, overwrite=overwrite, inputs=inputs(plan)))
        if plan.device == "cpu" and len(plan.segments) > 1:  # each session, and each attempt, makes its own networks
            plan = decided(plan, journal)
        guard = stack.enter_context(Guard(plan))
        lanes = stack.enter_context(ExitStack())  # to close decoders takes half a second: after the file has its name
        while (tally := _attempt(guard, target.path, lanes, meter, journal=journal, stop=stop)) is None:
            meter.restart()
            guard.tidy()
        if plan.quality is not None:
            lanes.close()  # measuring wants their memory
        scores = measured(plan, target.path, stop)
        size = target.commit()
        meter.finish()
        _close(lanes, journal)
    return Outcome(tally, meter.shown, size, scores)


def _close(lanes: ExitStack, journal: Journal) -> None:
    """The output has its name: what fails in closing is told, and does not make a failure of it."""
    try:
        lanes.close()
    except Exception as error:  # noqa: BLE001  whatever a driver's library raises
        journal.warn("close-error", f"the output is whole, but closing what rendered it failed: {first_line(error)}")


def _attempt(
    guard: Guard, path: Path, lanes: ExitStack, meter: Meter, *, journal: Journal, stop: StopFlag
) -> Tally | None:
    """Writes the file; None where memory was short, and the guard has a smaller plan to write it anew with.

    `lanes` closes what rendered it.
    """
    plan = guard.plan
    try:
        with ExitStack() as stack:
            if in_lanes(plan):
                tally = render_segments(guard, path, stack, lanes, meter=meter, journal=journal, stop=stop)
            else:
                tally = _one_session(plan, path, stack, meter=meter, journal=journal, stop=stop)
    except Exception as error:
        if in_lanes(plan):  # which goes back by itself, and keeps what is written
            raise
        again(guard, error)
        return None
    return tally


def _one_session(plan: Plan, path: Path, stack: ExitStack, *, meter: Meter, journal: Journal, stop: StopFlag) -> Tally:
    """The whole run in one go: one decoder, one encoder, every packet written as it comes."""
    muxer = open_muxer(plan, path, journal)
    stack.callback(muxer.abort)
    make = partial(make_encoder, plan.encoder, batch=plan.batch)
    session = Session(plan, stack, make, journal=journal, stop=stop, copied=muxer.write_copied)
    writer, pictures = _Writer(session.encoder, muxer, meter), session.pictures
    meter.open()
    enter("decode")
    for batch in pictures:
        writer.encode(batch)
        meter.count(batch.valid, batch.pts[-1], batch.time_base)
    writer.finish()
    session.feed.check(pictures.decoded, meter.shown - pictures.repeated + pictures.dropped)
    enter("close")
    muxer.close()
    return Tally(pictures.decoded, pictures.repeated, pictures.dropped)


class _Writer:
    """Encoder to muxer; the header is written when the first packets tell what the stream is."""

    def __init__(self, encoder: Encoder, muxer: Muxer, meter: Meter) -> None:
        self._encoder, self._muxer, self._meter, self._begun = encoder, muxer, meter, False

    def encode(self, batch: FrameBatch) -> None:
        before = enter("encode")
        self._write(self._encoder.encode(batch))
        enter(before)

    def finish(self) -> None:
        enter("encode")
        self._write(self._encoder.finish())

    def _write(self, packets: list[Packet]) -> None:
        enter("write")
        self._meter.wrote(sum(packet.size for packet in packets))
        if packets and not self._begun:
            self._muxer.add_video(self._encoder.template(packets))
            self._begun = True
        for packet in packets:
            self._muxer.write_video(packet)
