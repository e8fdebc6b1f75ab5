"""A run in lanes: several runners side by side, their parts joined in order into one stream."""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import av

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.codecs.reorder import DtsClock
from gpupipe.errors import MediaError, SourceError
from gpupipe.journal import Journal, Notes
from gpupipe.media.demux import Demuxer
from gpupipe.plan.memory import ENCODE_LANES, SLOTS
from gpupipe.plan.segments import AHEAD
from gpupipe.render.board import Board, Part
from gpupipe.render.codecs import encoder_maker
from gpupipe.render.copied import CopiedStreams
from gpupipe.render.guard import again
from gpupipe.render.lanes import Channel, Crew
from gpupipe.render.progress import Tally
from gpupipe.render.repeat import Given
from gpupipe.render.runner import Runner, SegmentWorker
from gpupipe.render.sessions import EncoderSessions
from gpupipe.render.slabs import Slabs
from gpupipe.render.watch import enter

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpupipe.codecs.base import Encoder, Packet
    from gpupipe.device.base import Lane
    from gpupipe.engines.choice import Choice
    from gpupipe.media.mux import Muxer
    from gpupipe.plan import Plan
    from gpupipe.render.guard import Guard
    from gpupipe.render.progress import Meter, StopFlag

DEEPEST = 2
"""Pictures that x264 and x265 decode ahead of one shown before them: a P, and a B that other B pictures refer to."""


def in_lanes(plan: Plan) -> bool:
    """Whether a plan runs in lanes: cut in segments, or decoded on the GPU with nothing that counts over time."""
    return len(plan.segments) > 1 or (plan.decoder == "nvdec" and plan.retime is None)


def render_segments(
    guard: Guard, muxer: Muxer, stack: ExitStack, lanes: ExitStack, *, meter: Meter, journal: Journal, stop: StopFlag
) -> Tally:
    """Carries out a plan by lanes, which `lanes` closes, and writes the joined stream in step with the copied ones.

    Where memory is short it goes on from what is written, with the guard's smaller plan.
    """
    plan = guard.plan
    demuxer = stack.enter_context(Demuxer(plan.source, Journal(), range_start=plan.start_pts))
    copied = CopiedStreams(plan, demuxer, muxer)
    join = Join(plan, muxer, copied, journal)
    while not _attempt(guard, join, lanes, meter, journal=journal, stop=stop):
        meter.again()
        guard.tidy()
    join.finish()
    copied.rest()
    return Tally(meter.shown)


def _attempt(guard: Guard, join: Join, lanes: ExitStack, meter: Meter, *, journal: Journal, stop: StopFlag) -> bool:
    """Starts lanes and writes what they give; False where memory was short and the guard has a smaller plan."""
    plan = guard.plan
    try:
        with ExitStack() as stack:
            stack.callback(guard.on, None)
            slabs = Slabs(plan.waiting_bytes) if plan.waiting_bytes and plan.sessions > 1 else None
            make = encoder_maker(plan)
            shelf = partial(_board, plan, first=join.segment, slabs=slabs)
            board = start_lanes(plan, stack, journal, make, stop, shelf=shelf, chosen=guard.chosen)
            meter.open()
            enter("write")
            join.start(board)
            guard.on(board)
            for index, part in board.in_order(stop):
                new = join.add(index, part)
                meter.wrote(new.packets)
                if new.frames:
                    meter.count(new.frames, new.pts[-1], plan.encoder.time_base)
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
        worker.open()
    stack.enter_context(crew)
    for name, work in lanes:
        crew.start(name, work)
    return board


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
    from gpupipe.render.encode_lane import EncodeLane, Job  # noqa: PLC0415
    from gpupipe.render.unload_lane import AHEAD, UnloadLane  # noqa: PLC0415

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
    down = any(step.kind == "download" for step in plan.steps)
    for n, jobs in enumerate(ends):
        if down:
            pictures: Channel[Job] = Channel(crew, AHEAD, "pictures on the host")
            lanes.append((f"unload-{n}", UnloadLane(plan, board, jobs, pictures).work))
        else:
            pictures = jobs
        lanes.append((f"encode-{n}", EncodeLane(plan, board, pictures, make if shared else encoders).work))
    return workers, lanes


class Join:
    """Writes parts as they come: one header, one run of decoding times over the whole stream."""

    def __init__(self, plan: Plan, muxer: Muxer, copied: CopiedStreams, journal: Journal) -> None:
        self._plan, self._muxer, self._copied, self._journal = plan, muxer, copied, journal
        self._board: Board | None = None
        self._clock: DtsClock | None = None
        self._index, self._frames, self._coded = 0, 0, 0
        self._given = self._nothing()
        self._begun = False
        self.writing = False
        """A part is being written; where that fails nobody knows how much of it was."""
        self._early: list[int] = []
        """pts of the pictures that went in before the first packet came out."""

    @property
    def segment(self) -> int:
        """The first that is not written to its end."""
        return self._index if self._board is None else self._board.written

    def _nothing(self) -> Given:
        return Given(exact=not encoder_facts(self._plan.encoder.encoder).alone)

    def start(self, board: Board) -> None:
        """Parts come from that board from now on; the segment that is being written comes again from its beginning."""
        self._board, board.begun = board, self._begun
        self._given.rewind()

    def add(self, index: int, part: Part) -> Part:
        """The next part in the order of the source; returns what of it was new."""
        self.writing = True
        if index != self._index:
            self._check()
            self._index, self._frames, self._coded, self._given = index, 0, 0, self._nothing()
        part = self._given.new_of(part)
        self._frames += part.frames
        self._coded += len(part.packets)
        if not self._begun:
            self._early += part.pts
            if part.packets:
                self._begin(part)
        elif self._clock is not None:
            for pts in part.pts:
                self._clock.shown(pts)
        for packet in self._timed(part.packets):
            self._copied.up_to(packet)
            self._muxer.write_video(packet)
        self.writing = False
        return part

    def _begin(self, part: Part) -> None:
        assert self._board is not None
        assert part.encoder is not None  # runners leave it out only when they are told that this was done
        self._begun = self._board.begun = True
        self._muxer.add_video(part.encoder.template(part.packets))
        if len(self._plan.segments) > 1:  # one encoder's own times are right; those of several overlap
            codec = part.encoder.settings.codec
            self._clock = DtsClock(_depth(part.packets[0], self._early, codec))
            for pts in self._early:
                self._clock.shown(pts)

    def _timed(self, packets: list[Packet]) -> list[Packet]:
        clock = self._clock
        return packets if clock is None else [ready for packet in packets for ready in clock.coded(packet)]

    def finish(self) -> None:
        """Writes what the clock still holds; raises MediaError where nothing at all came."""
        self._check()
        for packet in self._clock.drain() if self._clock is not None else ():
            self._muxer.write_video(packet)
        if not self._begun:
            raise SourceError(
                "no frame could be decoded", where=str(self._plan.source.path), hint="see `gpupipe probe`"
            )

    def _check(self) -> None:
        """A segment is accepted when the encoder gave what it got; fewer pictures than the container has are told."""
        segment = self._plan.segments[self._index]
        if self._coded != self._frames:
            raise MediaError(
                f"the encoder gave {self._coded} pictures for {self._frames}",
                where=f"segment {self._index} at pts {segment.start}",
            )
        missing = segment.frames - self._frames
        if segment.frames and missing:
            message = f"a segment held {segment.frames} pictures and {self._frames} could be decoded"
            self._journal.warn("frames-missing", message, place=f"segment {self._index}, pts {segment.start}")


def _depth(first: Packet, shown: list[int], codec: str) -> int:
    """How many pictures are coded before one that is shown earlier: what dts must lie ahead by.

    Encoders put the first packet's dts before its pts by the time of so many pictures.

    Args:
        first: packet of the stream.
        shown: pts of the pictures that went in until it came out.
        codec: as libav names it.
    """
    if av.Codec(codec).reorder and len(shown) <= DEEPEST:  # so few say nothing of the segments to come
        return DEEPEST
    assert first.pts is not None  # encoders give every packet the pts of its picture
    ahead = 0 if first.dts is None else first.pts - first.dts
    return sum(pts - shown[0] < ahead for pts in shown)
