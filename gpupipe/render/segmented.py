"""A run in lanes: several runners side by side, and encoders behind them on a GPU."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.journal import Notes
from gpupipe.plan.memory import ENCODE_LANES, SLOTS
from gpupipe.plan.segments import AHEAD
from gpupipe.render import writer_process
from gpupipe.render.board import Board
from gpupipe.render.codecs import encoder_maker
from gpupipe.render.encode_lane import EncodeLane, Job
from gpupipe.render.guard import again
from gpupipe.render.join import Join
from gpupipe.render.lanes import Channel, Crew
from gpupipe.render.progress import Tally
from gpupipe.render.runner import Runner, SegmentWorker
from gpupipe.render.sessions import EncoderSessions
from gpupipe.render.slabs import Slabs
from gpupipe.render.target import open_muxer
from gpupipe.render.watch import enter
from gpupipe.render.writer import DirectWriter, PlainWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gpupipe.codecs.base import Encoder
    from gpupipe.device.base import Lane
    from gpupipe.engines.choice import Choice
    from gpupipe.journal import Journal
    from gpupipe.plan import Plan
    from gpupipe.render.guard import Guard
    from gpupipe.render.progress import Meter, StopFlag
    from gpupipe.render.writer import Writer

OPENING = 8
"""Decoder sessions that are opened at once: each spends its time in the driver."""


def in_lanes(plan: Plan) -> bool:
    """Whether a plan runs in lanes: cut in segments, or decoded on the GPU with nothing that counts over time."""
    return len(plan.segments) > 1 or (plan.decoder == "nvdec" and plan.retime is None)


def render_segments(
    guard: Guard, path: Path, stack: ExitStack, lanes: ExitStack, *, meter: Meter, journal: Journal, stop: StopFlag
) -> Tally:
    """Carries out a plan by lanes, which `lanes` closes, and writes the joined stream in step with the copied ones.

    Where memory is short it goes on from what is written, with the guard's smaller plan.
    """
    plan = guard.plan
    slabs = Slabs(plan.waiting_bytes) if plan.waiting_bytes and plan.sessions > 1 else None
    writer = _writer(plan, path, slabs, stack, journal=journal, stop=stop)
    stack.callback(writer.abort)
    join = Join(plan, writer, journal)
    while not _attempt(guard, join, lanes, meter, slabs=slabs, journal=journal, stop=stop):
        meter.again()
        guard.tidy()
    join.finish()
    enter("close")
    join.close()
    return Tally(meter.shown)


def _writer(
    plan: Plan, path: Path, slabs: Slabs | None, stack: ExitStack, *, journal: Journal, stop: StopFlag
) -> Writer:
    """In a process of its own where pictures are many and such a process can be had."""

    def here(kind: type[DirectWriter] = DirectWriter) -> DirectWriter:
        muxer = open_muxer(plan, path, journal)
        stack.callback(muxer.abort)
        return kind(plan, muxer, stack)

    if slabs is not None and writer_process.suits(plan, slabs):
        with suppress(OSError):
            instead = partial(here, PlainWriter)
            return writer_process.WriterProcess(plan, path, slabs, journal=journal, stop=stop, here=instead)
    return here()


def _attempt(
    guard: Guard, join: Join, lanes: ExitStack, meter: Meter, *, slabs: Slabs | None, journal: Journal, stop: StopFlag
) -> bool:
    """Starts lanes and writes what they give; False where memory was short and the guard has a smaller plan."""
    plan = guard.plan
    try:
        with ExitStack() as stack:
            stack.callback(guard.on, None)
            if slabs is not None:
                slabs.anew()
            make = encoder_maker(plan)
            shelf = partial(_board, plan, first=join.segment, slabs=slabs)
            board = start_lanes(plan, stack, journal, make, stop, shelf=shelf, chosen=guard.chosen)
            meter.open()
            enter("write")
            join.start(board)
            guard.on(board)
            for index, part in board.in_order(stop):
                new = join.add(index, part)
                meter.wrote(new.size)
                if new.frames:
                    meter.count(new.frames, new.pts[-1], plan.encoder.time_base)
            guard.on(None)  # nothing is left that fewer sessions would do
            lanes.push(stack.pop_all())
    except Exception as error:
        if join.writing:
            raise
        again(guard, error)
        return False
    return True


def _board(plan: Plan, crew: Crew, first: int = 0, slabs: Slabs | None = None) -> Board:
    return Board(crew, plan.segments, AHEAD * plan.sessions, first=first, runners=plan.sessions, slabs=slabs)


def start_lanes(
    plan: Plan, stack: ExitStack, journal: Journal, make: Callable[[Lane], Encoder], stop: StopFlag, *,
    shelf: Callable[[Crew], Board] | None = None,
    chosen: Callable[[tuple[Choice, ...]], None] = lambda _: None,
) -> Board:  # fmt: skip
    """Makes every runner, then opens them, then starts all lanes; they end when `stack` is left.

    In that order because a CUDA Graph cannot be captured while a decoder session runs. `shelf` makes another board.
    `chosen` is told what a GPU's networks run on.
    """
    if not gc.get_freeze_count():  # else who runs us has seen to it, and `unfreeze` would undo that too
        gc.freeze()  # lanes collect garbage often: only what is made from now on is looked at
        stack.callback(gc.unfreeze)
    crew = Crew()
    board = _board(plan, crew) if shelf is None else shelf(crew)
    workers: list[SegmentWorker] = []
    lanes: list[tuple[str, Callable[[], None]]] = []
    encoders = EncoderSessions(make, board, crew, journal)
    stack.callback(encoders.abandon)
    if plan.decoder == "nvdec":
        workers, lanes = _device_workers(
            plan, board, crew, journal=journal, make=make, encoders=encoders, stop=stop, chosen=chosen
        )
    else:
        notes = [Notes(journal) for _ in range(plan.sessions)]
        workers = [Runner(plan, one, board, encoders) for one in notes]
        pairs = zip(workers, notes, strict=True)
        lanes = [(f"runner-{n}", partial(_work_and_leave, board, *pair)) for n, pair in enumerate(pairs)]
    for worker in workers:
        stack.callback(worker.close)
    open_all(workers, OPENING if plan.decoder == "nvdec" else 1)
    stack.enter_context(crew)
    for name, work in lanes:
        crew.start(name, work)
    return board


def open_all(workers: Sequence[SegmentWorker], threads: int) -> None:
    """Opens workers, so many side by side; raises the first one's error when none is at it any more."""
    if threads == 1:
        for worker in workers:
            worker.open()
        return
    with ThreadPoolExecutor(threads, "open") as pool:
        opening = [pool.submit(copy_context().run, worker.open) for worker in workers]
    for one in opening:
        one.result()


def _work(board: Board, worker: SegmentWorker, notes: Notes) -> None:
    while (index := board.take()) is not None:
        with board.rendering(index):
            worker.render(index)
            board.noted(index, notes.take())


def _work_and_leave(board: Board, worker: SegmentWorker, notes: Notes) -> None:
    """Of a runner on the CPU, which may be told to end before the others do: its memory is then free."""
    _work(board, worker, notes)
    worker.close()


def _device_workers(
    plan: Plan, board: Board, crew: Crew, *, journal: Journal, make: Callable[[Lane], Encoder],
    encoders: EncoderSessions, stop: StopFlag, chosen: Callable[[tuple[Choice, ...]], None],
) -> tuple[list[SegmentWorker], list[tuple[str, Callable[[], None]]]]:  # fmt: skip
    """Decode lanes and the encode lanes behind them, with channels between."""
    from gpupipe.device.cuda import release_spare  # noqa: PLC0415  imports torch
    from gpupipe.render.device_runner import Compute, DeviceRunner  # noqa: PLC0415

    shared = encoder_facts(plan.encoder.encoder).alone
    # Room for every slot and the end of a segment: what holds a decoder up is the lack of a slot, never the channel.
    one: Channel[Job] = Channel(crew, (SLOTS + 1) * plan.sessions)
    channels = [one if shared else Channel[Job](crew, SLOTS + 1) for _ in range(plan.sessions)]
    compute = Compute.of(plan, journal)
    chosen(compute.chain.choices)
    notes = [Notes(journal) for _ in channels]
    workers: list[SegmentWorker] = [
        DeviceRunner(plan, board, jobs, compute, journal=one, stop=stop)
        for jobs, one in zip(channels, notes, strict=True)
    ]
    release_spare()  # what the rehearsals before the captures took
    ends = [one] * ENCODE_LANES if shared else channels
    counting = threading.Lock()
    running = {id(channel): channels.count(channel) for channel in channels}

    def decode(worker: SegmentWorker, one: Notes, jobs: Channel[Job]) -> None:
        _work(board, worker, one)
        with counting:
            running[id(jobs)] -= 1
            last = running[id(jobs)] == 0
        if last:
            jobs.close()

    lanes: list[tuple[str, Callable[[], None]]] = [
        (f"runner-{n}", partial(decode, *three)) for n, three in enumerate(zip(workers, notes, channels, strict=True))
    ]
    return workers, lanes + _encode_lanes(plan, board, ends, make if shared else encoders)


def _encode_lanes(
    plan: Plan, board: Board, ends: Sequence[Channel[Job]], encoders: EncoderSessions | Callable[[Lane], Encoder]
) -> list[tuple[str, Callable[[], None]]]:
    """A lane for each end of a channel; where the encoder is on the CPU, one more that brings pictures down to it."""
    from gpupipe.render.unload_lane import AHEAD, UnloadLane  # noqa: PLC0415  imports torch

    down = any(step.kind == "download" for step in plan.steps)
    lanes: list[tuple[str, Callable[[], None]]] = []
    for n, jobs in enumerate(ends):
        pictures = jobs
        if down:
            pictures = Channel(jobs.crew, AHEAD, "pictures on the host")
            lanes.append((f"unload-{n}", UnloadLane(plan, board, jobs, pictures).work))
        lanes.append((f"encode-{n}", EncodeLane(plan, board, pictures, encoders).work))
    return lanes
