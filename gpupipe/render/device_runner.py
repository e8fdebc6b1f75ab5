"""The GPU's lanes that decode and compute, one thread a session; `encode_lane` has those that encode."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from gpupipe.codecs.nvdec import NvdecDecoder, surface_format
from gpupipe.device import enter_device
from gpupipe.device.cuda import CudaLane
from gpupipe.device.slots import Slot
from gpupipe.frame import NO_PTS, FrameBatch
from gpupipe.media.timeline import FrameClock
from gpupipe.plan.memory import SLOTS
from gpupipe.render.chain import Chain, FirstSize
from gpupipe.render.encode_lane import Job
from gpupipe.render.one_thread import Caller, OneThread, directly
from gpupipe.render.reading import open_reading

if TYPE_CHECKING:
    from gpupipe.codecs.nvdec import Surface
    from gpupipe.journal import Journal
    from gpupipe.media.segments import Segment
    from gpupipe.plan import Plan, Step
    from gpupipe.render.board import Board
    from gpupipe.render.lanes import Channel
    from gpupipe.render.progress import StopFlag


def _on_device(plan: Plan) -> list[Step]:
    return [step for step in plan.steps if step.kind != "download"]


@dataclass(slots=True)
class Compute:
    """What all runners of a GPU compute with: one chain, one lane and one graph pool, however many they are.

    A batch fills the GPU by itself, so lanes of their own would only hold temporary memory each. Decoders have theirs,
    and never wait for a batch to be computed.
    """

    chain: Chain
    lane: CudaLane
    pool: Any
    call: Caller = directly
    """Does the chain's work: as it is where graphs are replayed, else in one thread for all runners."""
    first: Slot | None = None
    """The first slot of all, which the others are like."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever gives a batch: a lane takes work of one thread at a time, and what a stage keeps for its calls
    (an engine's context and addresses, sizes that fit) is one for all."""

    @classmethod
    def of(cls, plan: Plan, journal: Journal) -> Compute:
        """Makes the chain's grids and tables."""
        lane, steps = CudaLane(plan.device), _on_device(plan)
        call: Caller = directly
        if steps and plan.graphs != "whole":
            call = OneThread(partial(enter_device, plan.device))
        graphs = plan.graphs != "off"  # of stages that capture their own; no decoder is open yet
        chain = call(partial(Chain, steps, lane, journal, rows=plan.batch, choices=plan.choices, graphs=graphs))
        return cls(chain, lane, torch.cuda.graph_pool_handle(), call)


class DeviceRunner:
    """Feeds one NVDEC session, fills slots with its surfaces and replays the chain over them; see `SegmentWorker`.

    Args:
        plan: what is run.
        board: says which segment is next.
        jobs: takes what was computed.
        compute: the same for all runners.
        journal: told of damage.
        stop: looked at between packets.
    """

    def __init__(
        self, plan: Plan, board: Board, jobs: Channel[Job], compute: Compute, *, journal: Journal, stop: StopFlag
    ) -> None:
        self._plan, self._journal, self._board, self._jobs, self._stop = plan, journal, board, jobs, stop
        self._free = jobs.crew.meeting()
        """Where the runner waits for a slot."""
        video = plan.source.video
        self._lane = CudaLane(plan.device, priority=-2)
        self.format = surface_format(video, plan.device)
        """Of the surfaces that are copied as they are."""
        device_steps = _on_device(plan)
        self._chain, self._memories = compute.chain, compute.chain.remember()
        self._turn, self._call = compute.turn, compute.call
        graphed = plan.graphs == "whole" and bool(device_steps)
        slot = partial(
            Slot, self.format, plan.batch, partial(compute.chain.transform, memories=self._memories), self._lane,
            compute.lane if device_steps else self._lane, graphed=graphed, pool=compute.pool,
        )  # fmt: skip
        self._slots = deque[Slot]()
        for _ in range(SLOTS):
            self._slots.append(compute.call(partial(slot, like=compute.first)))
            compute.first = compute.first or self._slots[0]
        self._target = device_steps[-1].target if device_steps else self.format
        self._same = FirstSize(self.format, plan.size_change, journal, self._lane)
        self._time_base = plan.encoder.time_base
        self._opened = ExitStack()

    def open(self) -> None:
        """See `SegmentWorker`; others may be opened meanwhile, in threads of their own."""
        enter_device(self._plan.device)
        video = self._plan.source.video
        self._reading = open_reading(self._plan, self._journal, self._stop)
        self._opened.callback(self._reading.close)
        stream = self._reading.video_stream
        self._decoder = NvdecDecoder(stream, self.format, video.time_base, self._journal, self._lane)
        self._opened.callback(self._decoder.close)
        self._opened.callback(self._lane.synchronize)
        packet = self._reading.first()
        if packet is not None and packet.is_keyframe:
            self._decoder.rehearse(packet)

    def render(self, index: int) -> None:
        """See `SegmentWorker`."""
        enter_device(self._plan.device)
        segment, video = self._board.segments[index], self._plan.source.video
        clock = FrameClock(video.time_base, video.rate, self._journal, start=video.start or 0)
        self._chain.begin(segment.number, self._memories)
        filling = Filling(self, index, clock, segment)
        packed = self._reading.packed(segment)
        if packed is not None:
            for surface in self._decoder.packed(*packed):
                filling.add(surface)
        else:
            self._one_by_one(segment, filling)
        self._decoder.restart()
        parts = filling.finish()
        self._reading.check(filling.decoded, filling.shown)
        self._jobs.put(Job(index, parts))

    def _one_by_one(self, segment: Segment, filling: Filling) -> None:
        packets = self._reading.read(segment)
        for packet in packets:
            for surface in self._decoder.surfaces(packet):
                packets.past_end = filling.add(surface)
        if not packets.past_end:
            for surface in self._decoder.surfaces(None):
                filling.add(surface)

    def take_slot(self) -> Slot:
        """A slot that no encoder reads any more; waits for one."""
        with self._free:
            self._free.until(lambda: bool(self._slots), "a free slot")
            return self._slots.popleft()

    def _give_back(self, slot: Slot) -> None:
        with self._free:
            self._slots.append(slot)
            self._free.notify_all()

    def scaled(self, surface: Surface, pts: int) -> FrameBatch:
        """A surface of another size than the first one's, in that."""
        return self._same(self._decoder.batch_of(surface).with_(pts=(pts,)))

    def submit(self, index: int, number: int, filled: Filled, lead: int) -> bool:
        """Computes a filled slot and hands it to the encode lanes, without its first `lead` pictures.

        False where nothing is left to hand on.
        """
        self._board.wait_for_room(index)
        slot = filled.slot
        with self._turn:
            ready = self._call(slot.run)
        if lead == len(filled.pts):
            ready.synchronize()  # nobody else waits for it, and it is filled again next
            self._give_back(slot)
            return False
        batch = FrameBatch(
            self._target,
            tuple(filled.pts[lead:]),
            self._time_base,
            planes=tuple(plane[lead:] for plane in slot.outputs) if lead else slot.outputs,
            durations=tuple(filled.durations[lead:]),
            ready=ready,
        )
        self._jobs.put(Job(index, number, batch, partial(self._give_back, slot)))
        return True

    def close(self) -> None:
        """See `SegmentWorker`."""
        self._opened.close()


class Filled:
    """A slot, and when its pictures are shown and how long."""

    def __init__(self, slot: Slot) -> None:
        self.slot, self.rows = slot, slot.rows
        self.pts: list[int] = []
        self.durations: list[int] = []


class Filling:
    """The slot that is being filled with pictures of one segment."""

    def __init__(self, runner: DeviceRunner, index: int, clock: FrameClock, segment: Segment) -> None:
        self._runner, self._index, self._clock, self._format = runner, index, clock, runner.format
        # Without ends of the range pts are compared with the least and the largest there may be.
        self._begin = NO_PTS if segment.begin is None else segment.begin
        self._first = NO_PTS if segment.start is None else segment.start
        self._end = -NO_PTS if segment.end is None else segment.end
        self._now: Filled | None = None
        self._parts = 0
        self.decoded = self.shown = 0

    def add(self, surface: Surface) -> bool:
        """Takes a decoded picture, in display order; says whether it lies behind the window."""
        pts = self._clock.stamp(surface.pts, surface.duration)
        self.decoded += 1
        if not self._begin <= pts < self._end:
            return pts >= self._end
        now = self._now
        if now is None:
            now = self._now = Filled(self._runner.take_slot())
        if surface.format is self._format:
            now.slot.copy(len(now.pts), surface.address)
        else:
            now.slot.fill(len(now.pts), self._runner.scaled(surface, pts).planes)
        now.pts.append(pts)
        now.durations.append(surface.duration)
        if len(now.pts) == now.rows:
            self._submit(now)
        return False

    def _submit(self, filled: Filled) -> None:
        lead = bisect_left(filled.pts, self._first)
        self.shown += len(filled.pts) - lead
        self._parts += self._runner.submit(self._index, self._parts, filled, lead)
        self._now = None

    def finish(self) -> int:
        """Submits what is left; returns the number of parts."""
        if self._now is not None:
            self._submit(self._now)
        return self._parts
