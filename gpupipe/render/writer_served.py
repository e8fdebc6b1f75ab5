"""The process of a `WriterProcess`: what it is told of it writes."""

from __future__ import annotations

import gc
import mmap
import os
import signal
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av

from gpupipe.codecs.described import described
from gpupipe.errors import carried
from gpupipe.journal import Journal
from gpupipe.plan.stored import load
from gpupipe.render.target import open_muxer
from gpupipe.render.writer import DirectWriter
from gpupipe.render.writer_process import COUNT, ROW, WRITTEN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from gpupipe.codecs.base import Packet


def serve(pipe: int, memory: int, counter: int) -> None:
    """What the process does, given its open files, until the output is whole or whoever started it is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they reach the whole group; the parent decides
        signal.signal(number, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 20)  # as the command line does
    there, journal, failed = Connection(pipe), Journal(), None
    try:
        _write(there, mmap.mmap(counter, mmap.PAGESIZE), memory, journal)
    except EOFError:  # nobody is left to tell
        os._exit(1)
    except Exception as error:  # noqa: BLE001  it is told to whoever asked
        failed = carried(error)
    with suppress(OSError):
        there.send((list(journal.entries.values()), failed))
    os._exit(0)


def _write(there: Connection, written: mmap.mmap, memory: int, journal: Journal) -> None:
    stored, path, size = there.recv()
    plan, number, scratch = load(stored, "the plan"), 0, []
    slabs = memoryview(mmap.mmap(memory, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ))

    def template(first: Sequence[Packet]) -> av.VideoStream:
        stream, needed = described(plan.encoder, bytes(first[0]))
        scratch.append(needed)
        return stream

    with ExitStack() as stack:
        muxer = open_muxer(plan, Path(path), journal)
        stack.callback(muxer.abort)
        writer = DirectWriter(plan, muxer, stack)
        while message := there.recv_bytes():
            packets = _packets(message, slabs, plan.encoder.time_base)
            if not number:
                writer.begin(template, packets)
            writer.write(packets)
            number += 1
            WRITTEN.pack_into(written, 0, number)
        writer.close()


def _packets(message: bytes, slabs: memoryview, time_base: Fraction) -> list[Packet]:
    """What a message tells of; its bytes where they are, or behind the rows."""
    (count,), packets = COUNT.unpack_from(message), []
    loose = COUNT.size + count * ROW.size
    for at, size, pts, dts, duration in ROW.iter_unpack(message[COUNT.size : loose]):
        data: Any = slabs[at : at + size] if at >= 0 else message[loose : loose + size]
        packet: Packet = av.Packet(data)
        loose += size if at < 0 else 0
        packet.pts, packet.dts, packet.duration = pts, dts, duration
        packet.time_base, packet.is_keyframe = time_base, True
        packets.append(packet)
    return packets
