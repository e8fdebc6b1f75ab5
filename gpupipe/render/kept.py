"""A run that keeps what is done: missing segments are rendered into the ledger, then all are joined from it."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.codecs.libav import LibavEncoder, one_picture
from gpupipe.device import open_lane, release
from gpupipe.device.host import short_of_memory
from gpupipe.errors import GpupipeError, MediaError, PlanError, StoppedError
from gpupipe.events import happened
from gpupipe.journal import Journal
from gpupipe.media.output import OutputFile, check_space
from gpupipe.render import facts
from gpupipe.render.board import Board
from gpupipe.render.choices import settle
from gpupipe.render.codecs import encoder_maker, make_encoder
from gpupipe.render.feed import check_stop
from gpupipe.render.guard import Guard, again
from gpupipe.render.join import Join
from gpupipe.render.joined import inspect
from gpupipe.render.lanes import Crew
from gpupipe.render.ledger import Ledger
from gpupipe.render.pieces import BadPieceError, read
from gpupipe.render.progress import Outcome, Tally
from gpupipe.render.segmented import start_lanes
from gpupipe.render.shelf import Shelf
from gpupipe.render.short import short_memory
from gpupipe.render.target import measured, open_muxer
from gpupipe.render.watch import enter
from gpupipe.render.writer import DirectWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gpupipe.codecs.base import Encoder
    from gpupipe.plan import Plan
    from gpupipe.render.board import Part
    from gpupipe.render.progress import Meter, StopFlag
    from gpupipe.render.writer import Writer

_JOINS = 3
"""How often segments may be found changed while they are joined, before the volume is blamed."""


class Fill(Protocol):
    """Renders what a ledger lacks."""

    def __call__(self, ledger: Ledger, journal: Journal, stop: StopFlag, meter: Meter) -> None:
        """Returns when nothing is missing; raises what `render.render` raises."""
        ...


def nothing() -> None:
    """For those who need not know that the output has its name."""


def run_kept(
    plan: Plan, *, overwrite: bool, restart: bool, fill: Fill, journal: Journal, stop: StopFlag, meter: Meter
) -> Outcome:
    """Goes on with a run, or begins it; see `render`."""
    with Ledger(plan) as ledger:
        if (done := joined_before(ledger)) is not None:
            return done
        OutputFile(plan.output, overwrite=overwrite, inputs=facts.inputs(plan)).check()
        enter("verify")
        ledger.begin(restart=restart)
        _rehearse(ledger)
        for piece in ledger.pieces.values():
            meter.kept += piece.frames
            for entry in piece.warnings:
                journal.add(entry)
        meter.reach(meter.kept)
        with telling(ledger), short_memory():
            return _until_joined(ledger, fill, overwrite=overwrite, journal=journal, stop=stop, meter=meter)


def joined_before(ledger: Ledger, named: Callable[[], None] = nothing) -> Outcome | None:
    """What an earlier run did that was killed between the rename and the end."""
    frames = ledger.joined_before()
    if frames is None:
        return None
    size = ledger.plan.output.stat().st_size
    named()
    ledger.remove()
    return Outcome(Tally(frames), frames, size, ())


def _until_joined(
    ledger: Ledger, fill: Fill, *, overwrite: bool, journal: Journal, stop: StopFlag, meter: Meter
) -> Outcome:
    for _ in range(_JOINS):
        if ledger.missing():
            settle(ledger, journal)
        fill(ledger, journal, stop, meter)
        with suppress(BadPieceError):
            return join(ledger, overwrite=overwrite, journal=journal, stop=stop, meter=meter)
    raise MediaError("what is written there does not stay as it was", where=str(ledger.folder), hint="check the volume")


def _rehearse(ledger: Ledger) -> None:
    """Muxes one picture: a setting or a stream that the muxer refuses is told before days of work, not after."""
    plan = ledger.plan
    name = ledger.folder / f".rehearsal{plan.output.suffix}.part"
    with ledger.writing():
        name.touch()
    muxer = open_muxer(plan, name, Journal())
    try:
        if not encoder_facts(plan.encoder.encoder).on_device:  # those are what the muxer is made for
            encoder = LibavEncoder(plan.encoder)
            packets = one_picture(encoder, plan.start_pts or plan.source.video.start or 0)
            muxer.add_video(encoder.template(packets))
            for packet in packets:
                muxer.write_video(packet)
            encoder.close()
    except MediaError as error:
        error.where = str(plan.output)
        raise
    finally:
        muxer.abort()


class telling:  # noqa: N801  reads as a statement: with telling(ledger)
    """Adds to an error that leaves the block what is kept, and how to go on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        ledger, kept = self._ledger, self._ledger.kept()
        ledger.log("stopped", why=str(error) or type(error).__name__, kept=kept)
        if isinstance(error, GpupipeError) and kept and type(error) is not PlanError:  # that one would come again
            done = f"{kept} of {len(ledger.plan.segments)} segments are kept, the same command goes on"
            error.hint = done if error.hint is None or isinstance(error, StoppedError) else f"{error.hint}; {done}"


def render_missing(
    ledger: Ledger, journal: Journal, stop: StopFlag, meter: Meter | None = None, *, only: Sequence[int] | None = None
) -> None:
    """Renders what the ledger lacks, or of it only some. A segment that fails is tried once more, with fresh decoders.

    Raises:
        StoppedError: `stop` was set.
        GpupipeError: a segment failed twice. Those in flight are lost then too; what is done is kept.
    """
    failed: set[int] = set()
    with Guard(ledger.plan) as guard:
        while wanted := [n for n in ledger.missing() if only is None or n in only]:
            failed |= _pass(guard, ledger, wanted, failed, journal=journal, stop=stop, meter=meter)
            guard.tidy()


def _pass(
    guard: Guard, ledger: Ledger, wanted: Sequence[int], failed: set[int], *,
    journal: Journal, stop: StopFlag, meter: Meter | None,
) -> set[int]:  # fmt: skip
    """One crew with fresh decoders over all that is missing; returns the segments that failed for the first time.

    Where memory was short the guard has a smaller plan afterwards, and no segment is to blame.
    """
    plan = guard.plan = replace(guard.plan, sessions=min(guard.plan.sessions, len(wanted)))
    shelves: list[Shelf] = []

    def shelf(crew: Crew) -> Board:
        shelves.append(Shelf(crew, ledger, wanted, runners=plan.sessions))
        return shelves[0]

    before = sum(piece.frames for piece in ledger.pieces.values())
    if meter is not None:
        meter.reach(before)
        meter.again()
    try:
        with ExitStack() as stack:
            stack.callback(abandon, shelves)
            stack.callback(guard.on, None)
            make = encoder_maker(plan)
            start_lanes(plan, stack, journal, make, stop, shelf=shelf)
            guard.on(shelves[0])
            if meter is not None:
                meter.open()
            for computed in shelves[0].computed(stop):
                if meter is not None:
                    meter.reach(before + computed)
    except StoppedError:
        raise
    except Exception as error:
        found = shelves[0].failed if shelves else set()
        why = str(error) or type(error).__name__
        ledger.log("failed", segments=sorted(found), why=why)
        if short_of_memory(error):
            again(guard, error)
            return set()
        if not found or found & failed:
            raise
        happened("retry", f"segment {min(found)}: {why}")
        release(plan.device)
        return found
    return set()


def abandon(shelves: Sequence[Shelf]) -> None:
    """Takes away what is half written."""
    for shelf in shelves:
        shelf.abandon()


def join(
    ledger: Ledger, *, overwrite: bool, journal: Journal, stop: StopFlag, meter: Meter,
    named: Callable[[], None] = nothing,
) -> Outcome:  # fmt: skip
    """Writes the output from a ledger that lacks nothing, looks at it, names it and takes the ledger away.

    Raises BadPieceError where a segment is not what was written; it is no part of the ledger any more.
    """
    plan = ledger.plan
    with ExitStack() as stack:
        check_space(plan.output, sum(piece.bytes for piece in ledger.pieces.values()))
        output = OutputFile(plan.output, overwrite=overwrite, inputs=facts.inputs(plan), within=ledger.folder)
        target = stack.enter_context(output)
        muxer = open_muxer(plan, target.path, journal)
        stack.callback(muxer.abort)
        ledger.log("join")
        enter("write")
        writer = DirectWriter(plan, muxer, stack)
        tally = _write(ledger, writer, stack, journal=journal, stop=stop, meter=meter)
        enter("close")
        writer.close()
        inspect(ledger, target.path, stop)
        scores = measured(plan, target.path, stop)
        ledger.joined(target.path)
        size = target.commit()
    named()
    ledger.remove()
    return Outcome(tally, meter.shown, size, scores)


def _write(
    ledger: Ledger, writer: Writer, stack: ExitStack, *, journal: Journal, stop: StopFlag, meter: Meter
) -> Tally:
    """The one stream that all segments make, in step with the copied ones."""
    plan = ledger.plan
    encoder = make_encoder(plan.encoder, open_lane(plan.device), plan.batch)
    stack.callback(encoder.close)
    joined = Join(plan, writer, journal)
    joined.start(Board(Crew(), plan.segments, 0))
    for index in range(len(plan.segments)):
        check_stop(stop)
        for part in _parts(ledger, index, encoder):
            joined.add(index, part)
            meter.wrote(part.size)
    joined.finish()
    meter.shown = sum(piece.frames for piece in ledger.pieces.values())
    return Tally(meter.shown)


def _parts(ledger: Ledger, index: int, encoder: Encoder) -> Iterator[Part]:
    """Of a segment's file; where it cannot be read, and only then, it is no part of the ledger any more."""
    try:
        yield from read(ledger.path(index), encoder)
    except (BadPieceError, OSError) as error:
        ledger.distrust(index, str(error))
        raise BadPieceError(str(error)) from None
