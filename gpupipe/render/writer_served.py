"""The process of a `WriterProcess`: what it is told of it writes."""

from __future__ import annotations

import gc
import mmap
import os
import signal
import threading
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gpupipe.codecs.described import described
from gpupipe.errors import carried
from gpupipe.journal import Journal
from gpupipe.media.output import UNFINISHED
from gpupipe.plan.stored import load
from gpupipe.render.rows import counts, heard
from gpupipe.render.short import short_memory
from gpupipe.render.target import open_muxer
from gpupipe.render.writer import DirectWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import av

    from gpupipe.codecs.base import Packet
    from gpupipe.plan import Plan


def serve(pipe: int, memory: int, counter: int) -> None:
    """What the process does, given its open files, until the output is whole or whoever started it is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a service's end reaches all; the parent decides
        signal.signal(number, signal.SIG_IGN)
    gc.set_threshold(100_000, 20, 20)  # as the command line does
    there, journal, path, failed = Connection(pipe), Journal(), None, None
    try:
        with short_memory():
            stored, name, size = there.recv()
            path = Path(name)
            plan = load(stored, "the plan")
            slabs = memoryview(mmap.mmap(memory, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ))
            there.send(None)  # from here on nobody else does it
            _write(plan, path, there, slabs, counts(counter), journal=journal)
    except (EOFError, BrokenPipeError):
        _forsaken(path)
    except Exception as error:  # noqa: BLE001  it is told to whoever asked
        failed = carried(error)
    try:
        there.send((list(journal.entries.values()), failed))
    except OSError:
        _forsaken(path)
    os._exit(0)


def _forsaken(path: Path | None) -> NoReturn:
    """Nobody is left to tell, or to take away what there is of the file."""
    for left in (*UNFINISHED, *filter(None, [path])):
        with suppress(OSError):
            left.unlink()
    os._exit(1)


def _write(
    plan: Plan, path: Path, there: Connection, slabs: memoryview, written: memoryview, *, journal: Journal
) -> None:  # fmt: skip
    number, scratch = 0, []
    alone = all(track.action == "drop" or track.index == plan.source.video.index for track in plan.tracks)

    def template(first: Sequence[Packet]) -> av.VideoStream:
        stream, needed = described(plan.encoder, bytes(first[0]))
        scratch.append(needed)
        return stream

    with ExitStack() as stack:
        muxer = open_muxer(plan, path, journal)
        stack.callback(muxer.abort)
        writer = DirectWriter(plan, muxer, stack)
        while message := there.recv_bytes():
            packets = heard(message, slabs, plan.encoder.time_base, alone=alone)
            if not number:
                writer.begin(template, packets)
            writer.write(packets)
            number += 1
            written[0] = number
        threading.Thread(target=_mind, args=(there, path), daemon=True).start()
        writer.close()


def _mind(there: Connection, path: Path) -> None:
    """To close a file may take minutes: where nobody waits for it any more, this process ends and leaves nothing."""
    with suppress(OSError, EOFError):
        there.recv_bytes()  # nothing more is said: this ends when they do
    _forsaken(path)
